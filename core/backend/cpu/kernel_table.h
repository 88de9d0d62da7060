// The CPU's kernels: one row for every op that is not a view.
#pragma once

#include <span>

#include "core/backend/backend.h"

namespace kerascnn {

std::span<const KernelTableRow> cpu_kernel_table();

}  // namespace kerascnn
