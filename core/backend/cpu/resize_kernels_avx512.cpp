#include "core/backend/cpu/resize_kernels_impl.h"
