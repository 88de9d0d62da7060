// Many float32 tensors in a 16-bit dtype, or the other way round, in one call. A step in mixed
// precision reads its weights in this way, and gives gradients to other processes. One kernel for
// all of them costs one launch.
#include "core/ops/cost.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

std::vector<TensorSpec> infer_cast_all(const Attributes& attributes, Specs inputs) {
  const DType dtype = attributes.get_dtype("dtype");
  if (inputs.empty()) throw ValueError("cast_all: expected at least 1 input, received none");
  const auto is_16_bit = [](DType type) {
    return type == DType::Float16 || type == DType::BFloat16;
  };
  if (!is_16_bit(dtype) && dtype != DType::Float32) {
    throw ValueError(message("cast_all: dtype must be float16, bfloat16 or float32, received ",
                             dtype_name(dtype), "; use cast"));
  }
  const DType from = inputs[0].dtype;
  std::vector<TensorSpec> outputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_expected = is_16_bit(dtype)
                                 ? inputs[i].dtype == DType::Float32
                                 : is_16_bit(inputs[i].dtype) && inputs[i].dtype == from;
    if (!is_expected) {
      throw TypeError(message("cast_all: for ", dtype_name(dtype), " inputs must be ",
                              is_16_bit(dtype) ? "float32" : "all float16 or all bfloat16",
                              ", but input ", i, " is ", spec_string(inputs[i]), "; use cast"));
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
