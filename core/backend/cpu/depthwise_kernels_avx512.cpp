#include "core/backend/cpu/depthwise_kernels_impl.h"
