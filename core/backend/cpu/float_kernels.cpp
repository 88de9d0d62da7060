#include "core/backend/cpu/float_kernels_impl.h"
