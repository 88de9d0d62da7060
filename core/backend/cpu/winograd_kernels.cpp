#include "core/backend/cpu/winograd_kernels_impl.h"
