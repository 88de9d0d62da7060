// The kernels of LSTMs and GRUs over whole sequences.
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "core/ops/recurrent.h"

namespace kerascnn::cuda {

// Kernels that keep the recurrent kernel on the multiprocessors of a cluster of blocks from the
// first step to the last one; null where the sizes, the dtype or the device don't allow it. The
// kernels by rows are for float32 and up to 256 units; those by tiles use tensor cores, for 16-bit
// dtypes and float32 and up to 512 units.
std::unique_ptr<Kernel> plan_recurrent_rows(const PlanRequest& request);
std::unique_ptr<Kernel> plan_recurrent_rows_grad(const PlanRequest& request);
std::unique_ptr<Kernel> plan_recurrent_tiles(const PlanRequest& request);
std::unique_ptr<Kernel> plan_recurrent_tiles_grad(const PlanRequest& request);

}  // namespace kerascnn::cuda
