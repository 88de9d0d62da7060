#include "core/backend/cpu/recurrent_kernels_impl.h"
