#include "core/backend/cpu/integer_kernels_impl.h"
