// Many float32 tensors in a 16-bit dtype, in one call. A step in mixed precision reads its weights
// in this way, and one kernel for all of them costs one launch.
#include "core/ops/cost.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

std::vector<TensorSpec> infer_cast_all(const Attributes& attributes, Specs inputs) {
  const DType dtype = attributes.get_dtype("dtype");
  if (inputs.empty()) throw ValueError("cast_all: expected at least 1 input, received none");
  if (dtype != DType::Float16 && dtype != DType::BFloat16) {
    throw ValueError(message("cast_all: dtype must be float16 or bfloat16, received ",
                             dtype_name(dtype), "; use cast"));
  }
  std::vector<TensorSpec> outputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dtype != DType::Float32) {
      throw TypeError(message("cast_all: inputs must be float32, but input ", i, " is ",
                              spec_string(inputs[i]), "; use cast"));
    }
    outputs.push_back({dtype, inputs[i].shape});
  }
  return outputs;
}

}  // namespace

const OpDef op_cast_all = {
    .name = "cast_all",
    .infer = infer_cast_all,
    .not_differentiable = "it is made after differentiation, by the pass join_casts; use cast",
    .cost = cost_of_moving,
};

}  // namespace kerascnn
