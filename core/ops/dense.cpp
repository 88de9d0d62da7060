// A dense layer in one op: activation(x w + bias).
#include "core/ops/activation_kind.h"
#include "core/ops/cost.h"
#include "core/ops/definitions.h"
#include "core/ops/fused_gradient.h"

namespace kerascnn {
namespace {

std::vector<TensorSpec> infer_dense(const Attributes& attributes, Specs inputs) {
  if (inputs.size() < 2) check_num_inputs("dense", inputs, 2);
  check_floating("dense", "the input", inputs[0]);
  check_same_dtype("dense", inputs);
  check_rank("dense", "the input", inputs[0], 2);
  check_rank("dense", "the kernel", inputs[1], 2);
  const Shape& x = inputs[0].shape;
  const Shape& kernel = inputs[1].shape;
  if (x[1] != kernel[0]) {
    throw ValueError(message("dense: the input has ", x[1], " features but the kernel takes ",
                             kernel[0], " (input ", shape_string(x), ", kernel ",
                             shape_string(kernel), ")"));
  }
  check_bias("dense", inputs, kernel[1]);
  fused_activation("dense", attributes);
  return {{inputs[0].dtype, {x[0], kernel[1]}}};
}

std::vector<ValueId> dense_gradient(GradientContext& context) {
  const ValueId g = before_activation(context, "dense");
  std::vector<ValueId> gradients = {
      context.apply("matmul", {g, context.input(1)},
                    {{"transpose_a", false}, {"transpose_b", true}}),
      context.apply("matmul", {context.input(0), g},
                    {{"transpose_a", true}, {"transpose_b", false}}),
  };
  if (context.num_inputs() == 3) {
    gradients.push_back(
        context.apply("reduce_sum", {g}, {{"axes", std::vector<int64_t>{0}}, {"keepdims", false}}));
  }
  return gradients;
}

OpCost dense_cost(const Attributes&, Specs inputs, Specs, OpCost usual) {
  const Shape& kernel = inputs[1].shape;
  return {product_flop(inputs[0].shape[0], kernel[0], kernel[1]), usual.bytes};
}

}  // namespace

const OpDef op_dense = {
    .name = "dense",
    .infer = infer_dense,
    .gradient = dense_gradient,
    .cost = dense_cost,
};

}  // namespace kerascnn
