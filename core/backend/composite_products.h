// The ops of core/ops/fused_products.h with the kernels of the ops that they stand for: the same
// bits as those ops one by one. For every device and every call.
#pragma once

#include <memory>
#include <span>

#include "core/backend/backend.h"

namespace kerascnn {

// `request` is for one of these ops; `table` is the kernel table of the device, which is current.
std::unique_ptr<Kernel> plan_composite_product(std::span<const KernelTableRow> table,
                                               const PlanRequest& request);

}  // namespace kerascnn
