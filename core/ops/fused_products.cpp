// Products joined with what follows them or stands beside them. Passes make these after
// differentiation, where a device has one kernel for the whole.
#include "core/ops/fused_products.h"

#include <array>

#include "core/ops/activation_kind.h"
#include "core/ops/cost.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

constexpr std::string_view kActivationGrad = "matmul_activation_grad";
constexpr std::string_view kDenseLoss = "dense_sparse_softmax_cross_entropy";
constexpr std::string_view kDenseLossDgrad = "dense_sparse_softmax_cross_entropy_dgrad";
constexpr std::string_view kDenseWgrad = "dense_wgrad";

constexpr std::string_view kMadeByPass =
    "it is made after differentiation, by a pass that joins products with what belongs to them";

void check_output_gradient(std::string_view op, const Attributes& attributes) {
  const Activation activation = fused_activation(op, attributes).kind;
  if (gradient_uses_output(activation)) return;
  throw ValueError(message(op, ": the gradient of ", activation_name(activation),
                           " does not follow from its output; apply ", activation_name(activation),
                           "_grad by itself"));
}

std::vector<TensorSpec> infer_activation_grad(const Attributes& attributes, Specs inputs) {
  check_num_inputs(kActivationGrad, inputs, 3);
  check_floating(kActivationGrad, "the first input", inputs[0]);
  check_same_dtype(kActivationGrad, inputs);
  check_rank(kActivationGrad, "the first input", inputs[0], 2);
  check_rank(kActivationGrad, "the second input", inputs[1], 2);
  const bool transpose_a = attributes.get_bool("transpose_a");
  const bool transpose_b = attributes.get_bool("transpose_b");
  const Shape& a = inputs[0].shape;
  const Shape& b = inputs[1].shape;
  if (a[transpose_a ? 0 : 1] != b[transpose_b ? 1 : 0]) {
    throw ValueError(message(kActivationGrad, ": the inner extents of ", shape_string(a), " and ",
                             shape_string(b),
                             " (after the transpositions asked for) must be equal"));
  }
  check_output_gradient(kActivationGrad, attributes);
  const Shape product = {a[transpose_a ? 1 : 0], b[transpose_b ? 0 : 1]};
  check_shape(kActivationGrad, "the activation's output", inputs[2], product);
  return {{inputs[0].dtype, product}};
}

// The outputs of the layer and its loss; `inputs` are those of dense_sparse_softmax_cross_entropy.
std::vector<TensorSpec> infer_layer_and_loss(std::string_view op, const Attributes& attributes,
                                             Specs inputs) {
  const DenseLossInputs at(inputs.size());
  check_floating(op, "the input", inputs[at.x]);
  check_rank(op, "the input", inputs[at.x], 2);
  check_rank(op, "the kernel", inputs[at.kernel], 2);
  const TensorSpec logits =
      infer_outputs(find_op("dense"), dense_loss_layer(), inputs.first(at.labels))[0];
  return infer_outputs(find_op("sparse_softmax_cross_entropy"),
                       {{"epsilon", attributes.get_double("epsilon")}},
                       std::array{logits, inputs[at.labels], inputs[at.gradient]});
}

std::vector<TensorSpec> infer_dense_loss(const Attributes& attributes, Specs inputs) {
  if (inputs.size() != 5) check_num_inputs(kDenseLoss, inputs, 4);
  return infer_layer_and_loss(kDenseLoss, attributes, inputs);
}

std::vector<TensorSpec> infer_dense_loss_dgrad(const Attributes& attributes, Specs inputs) {
  const bool drops = has_dropout(attributes);
  const size_t with_bias = drops ? 6 : 5;
  if (inputs.size() != with_bias) check_num_inputs(kDenseLossDgrad, inputs, with_bias - 1);
  check_output_gradient(kDenseLossDgrad, attributes);
  std::vector<TensorSpec> outputs = infer_layer_and_loss(
      kDenseLossDgrad, attributes, inputs.first(drops ? inputs.size() - 1 : inputs.size()));
  outputs.push_back(inputs[DenseLossInputs::x]);
  if (drops) {
    const TensorSpec& state = inputs[DenseLossInputs(inputs.size(), drops).state];
    outputs.push_back(infer_outputs(find_op("dropout"), dropout_attributes(attributes),
                                    std::array{inputs[DenseLossInputs::x], state})[0]);
  }
  return outputs;
}

std::vector<TensorSpec> infer_dense_wgrad(const Attributes&, Specs inputs) {
  check_num_inputs(kDenseWgrad, inputs, 2);
  check_floating(kDenseWgrad, "the input", inputs[0]);
  check_same_dtype(kDenseWgrad, inputs);
  check_rank(kDenseWgrad, "the input", inputs[0], 2);
  check_rank(kDenseWgrad, "the gradient", inputs[1], 2);
  const Shape& x = inputs[0].shape;
  const Shape& g = inputs[1].shape;
  if (x[0] != g[0]) {
    throw ValueError(message(kDenseWgrad, ": the input ", shape_string(x), " and the gradient ",
                             shape_string(g), " must have the same number of samples"));
  }
  return {{inputs[0].dtype, {x[1], g[1]}}, {inputs[0].dtype, {g[1]}}};
}

OpCost activation_grad_cost(const Attributes& attributes, Specs inputs, Specs outputs,
                            OpCost usual) {
  const int64_t inner = inputs[0].shape[attributes.get_bool("transpose_a") ? 0 : 1];
  return {product_flop(num_elements(outputs[0].shape), inner, 1), usual.bytes};
}

// The number of products of the layer's size: its own, and one for the gradient of its input.
template <int64_t products>
OpCost dense_loss_cost(const Attributes&, Specs inputs, Specs, OpCost usual) {
  const Shape& kernel = inputs[DenseLossInputs::kernel].shape;
  const int64_t samples = inputs[DenseLossInputs::x].shape[0];
  return {products * product_flop(samples, kernel[0], kernel[1]), usual.bytes};
}

OpCost dense_wgrad_cost(const Attributes&, Specs inputs, Specs, OpCost usual) {
  const Shape& x = inputs[0].shape;
  return {product_flop(x[1], x[0], inputs[1].shape[1]), usual.bytes};
}

}  // namespace

Attributes dense_loss_layer() {
  return {{"activation", std::string(activation_name(Activation::Linear))},
          {"activation_alpha", 0.0}};
}

bool has_dropout(const Attributes& attributes) { return attributes.has("rate"); }

Attributes dropout_attributes(const Attributes& attributes) {
  return {{"rate", attributes.get_double("rate")}, {"stream", attributes.get_int("stream")}};
}

const OpDef op_matmul_activation_grad = {
    .name = kActivationGrad,
    .infer = infer_activation_grad,
    .not_differentiable = kMadeByPass,
    .cost = activation_grad_cost,
};

const OpDef op_dense_sparse_softmax_cross_entropy = {
    .name = kDenseLoss,
    .infer = infer_dense_loss,
    .not_differentiable = kMadeByPass,
    .cost = dense_loss_cost<1>,
};

const OpDef op_dense_sparse_softmax_cross_entropy_dgrad = {
    .name = kDenseLossDgrad,
    .infer = infer_dense_loss_dgrad,
    .not_differentiable = kMadeByPass,
    .first_optional_output = DenseLossOutputs::dropped,
    .cost = dense_loss_cost<2>,
};

const OpDef op_dense_wgrad = {
    .name = kDenseWgrad,
    .infer = infer_dense_wgrad,
    .not_differentiable = kMadeByPass,
    .cost = dense_wgrad_cost,
};

}  // namespace kerascnn
