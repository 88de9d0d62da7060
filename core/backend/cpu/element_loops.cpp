#include "core/backend/cpu/element_loops_impl.h"
