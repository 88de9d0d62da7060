// The kernels of LSTMs and GRUs over whole sequences.
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "core/ops/recurrent.h"

namespace kerascnn::cuda {

// Kernels that keep the recurrent kernel in the registers of a cluster of blocks from the first
// step to the last one; null where the sizes, the dtype or the device don't allow it.
std::unique_ptr<Kernel> plan_recurrent_cluster(const PlanRequest& request);
std::unique_ptr<Kernel> plan_recurrent_cluster_grad(const PlanRequest& request);

}  // namespace kerascnn::cuda
