// Runs an op on float16 or bfloat16 tensors through its float32 kernel: inputs are widened into the
// workspace and the results are rounded once, at the end. Tensors of other dtypes stay as they are.
#pragma once

#include <memory>
#include <vector>

#include "core/backend/backend.h"

namespace kerascnn::cpu {

// `plan` is the op's own plan function, which is called again with every floating spec as float32.
// The first output is floating.
std::unique_ptr<Kernel> plan_in_float32(const PlanRequest& request, PlanFunction plan);

// The specs with float32 in place of other floating dtypes.
std::vector<TensorSpec> in_float32(Specs specs);
// Runs `kernel`, which writes float32, and rounds its results to the floating outputs of `request`.
std::unique_ptr<Kernel> round_results(const PlanRequest& request, std::unique_ptr<Kernel> kernel);

}  // namespace kerascnn::cpu
