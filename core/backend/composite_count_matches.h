// count_matches with the kernels of the ops that it stands for: the same bits as those ops one by
// one. For every device and every call.
#pragma once

#include <memory>
#include <span>

#include "core/backend/backend.h"

namespace kerascnn {

// `table` is the kernel table of the device, which is current.
std::unique_ptr<Kernel> plan_composite_count_matches(std::span<const KernelTableRow> table,
                                                     const PlanRequest& request);

}  // namespace kerascnn
