// Runs an op on float16 or bfloat16 tensors through its float32 kernel: inputs are widened into the
// workspace and the results are rounded once, at the end. Inputs of other dtypes stay as they are.
#pragma once

#include "core/backend/backend.h"

namespace kerascnn::cpu {

// `plan` is the op's own plan function, which is called again with every floating spec as float32.
// All outputs are floating.
std::unique_ptr<Kernel> plan_in_float32(const PlanRequest& request, PlanFunction plan);

}  // namespace kerascnn::cpu
