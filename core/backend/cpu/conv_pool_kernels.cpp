#include "core/backend/cpu/conv_pool_kernels_impl.h"
