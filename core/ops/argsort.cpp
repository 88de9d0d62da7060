// argsort gives the positions of an axis' elements in the order of the elements.
#include "core/ops/definitions.h"
#include "core/ops/geometry.h"

namespace kerascnn {
namespace {

std::vector<TensorSpec> infer_argsort(const Attributes& attributes, Specs inputs) {
  check_num_inputs("argsort", inputs, 1);
  check_number("argsort", "the input", inputs[0]);
  attributes.get_bool("descending");
  const int64_t axis =
      normalize_axis("argsort", attributes.get_int("axis"), inputs[0].shape.size());
  // Kernels round the length up to a power of two.
  if (inputs[0].shape[axis] > INT32_MAX / 2) {
    throw ValueError(message("argsort: axis ", axis, " has ", inputs[0].shape[axis],
                             " elements, more than can be sorted"));
  }
  return {{DType::Int32, inputs[0].shape}};
}

}  // namespace

const OpDef op_argsort = {
    .name = "argsort",
    .infer = infer_argsort,
    .not_differentiable = "its result is an integer index",
};

}  // namespace kerascnn
