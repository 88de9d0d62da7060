#include "core/backend/cpu/resample_kernels_impl.h"
