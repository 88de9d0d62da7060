#include "core/backend/cpu/channel_kernels_impl.h"
