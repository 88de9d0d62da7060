#include "core/ops/conv2d_max_pool2d.h"

#include <array>

#include "core/ops/cost.h"
#include "core/ops/definitions.h"
#include "core/ops/fused_gradient.h"
#include "core/ops/partial_sums.h"

namespace kerascnn {
namespace {

constexpr std::string_view kForward = "conv2d_max_pool2d";
constexpr std::string_view kDgrad = "conv2d_max_pool2d_dgrad";
constexpr std::string_view kWgrad = "conv2d_max_pool2d_wgrad";

// Where a gradient op has the pooled gradient; y and the index follow it.
size_t gradient_position(std::string_view op) { return op == kDgrad ? 0 : 1; }

// Specs of the convolution's input and kernel, one of which the gradient ops have as an attribute.
std::array<TensorSpec, 2> forward_specs(std::string_view op, const Attributes& attributes,
                                        Specs inputs) {
  if (op == kDgrad) {
    return {TensorSpec{inputs[0].dtype, check_ints(op, attributes, "input_shape", 4, 0)},
            inputs[3]};
  }
  if (op == kWgrad) {
    return {inputs[0],
            TensorSpec{inputs[0].dtype, check_ints(op, attributes, "kernel_shape", 4, 0)}};
  }
  return {inputs[0], inputs[1]};
}

void check_pooled(std::string_view op, const Pool2DGeometry& pool, Specs gradient_inputs) {
  check_shape(op, "the gradient", gradient_inputs[0], pool.output_shape());
  check_shape(op, "the output", gradient_inputs[1], pool.output_shape());
  const TensorSpec index{pool.index_dtype(), pool.output_shape()};
  if (gradient_inputs[2] != index) {
    throw ValueError(message(op, ": the index must be ", spec_string(index), ", received ",
                             spec_string(gradient_inputs[2])));
  }
}

std::vector<TensorSpec> infer_forward(const Attributes& attributes, Specs inputs) {
  const Conv2DMaxPool2DGeometry g = conv2d_max_pool2d_geometry(kForward, attributes, inputs);
  check_floating(kForward, "the input", inputs[0]);
  check_same_dtype(kForward, inputs);
  return {{inputs[0].dtype, g.pool.output_shape()}, {g.pool.index_dtype(), g.pool.output_shape()}};
}

std::vector<TensorSpec> infer_dgrad(const Attributes& attributes, Specs inputs) {
  const Conv2DMaxPool2DGeometry g = conv2d_max_pool2d_geometry(kDgrad, attributes, inputs);
  check_floating(kDgrad, "the gradient", inputs[0]);
  check_same_dtype(kDgrad, std::array{inputs[0], inputs[1], inputs[3]});
  return {{inputs[0].dtype, g.conv.input_shape()}};
}

std::vector<TensorSpec> infer_wgrad(const Attributes& attributes, Specs inputs) {
  const Conv2DMaxPool2DGeometry g = conv2d_max_pool2d_geometry(kWgrad, attributes, inputs);
  check_floating(kWgrad, "the input", inputs[0]);
  check_same_dtype(kWgrad, inputs.first(3));
  return stack_sums(
      kWgrad, attributes,
      {{inputs[0].dtype, g.conv.kernel_shape()}, {inputs[0].dtype, {g.conv.output_channels}}});
}

constexpr std::string_view kMadeByPass =
    "it is made after differentiation, by the pass that joins convolution and pooling";

}  // namespace

Conv2DMaxPool2DGeometry conv2d_max_pool2d_geometry(std::string_view op,
                                                   const Attributes& attributes, Specs inputs) {
  const bool is_forward = op == kForward;
  if (is_forward) {
    if (inputs.size() != 3) check_num_inputs(op, inputs, 2);
  } else {
    check_num_inputs(op, inputs, 4);
  }
  Conv2DMaxPool2DGeometry g;
  g.conv = conv2d_geometry(op, attributes, forward_specs(op, attributes, inputs));
  if (is_forward) check_bias(op, inputs, g.conv.output_channels);
  g.pool = pool2d_geometry(op,
                           {{"window", check_ints(op, attributes, "window", 2, 1)},
                            {"strides", check_ints(op, attributes, "pool_strides", 2, 1)},
                            {"padding", check_ints(op, attributes, "pool_padding", 4, 0)}},
                           g.conv.output_shape());
  g.activation = fused_activation(op, attributes);
  if (!gradient_uses_output(g.activation.kind)) {
    throw ValueError(message(op, ": the gradient of ", activation_name(g.activation.kind),
                             " does not follow from its output; apply conv2d, ",
                             activation_name(g.activation.kind), " and max_pool2d one by one"));
  }
  if (!is_forward) check_pooled(op, g.pool, inputs.subspan(gradient_position(op), 3));
  return g;
}

namespace {

template <const std::string_view& op>
OpCost conv_pool_cost(const Attributes& attributes, Specs inputs, Specs, OpCost usual) {
  return {conv2d_flop(conv2d_max_pool2d_geometry(op, attributes, inputs).conv), usual.bytes};
}

}  // namespace

const OpDef op_conv2d_max_pool2d = {
    .name = kForward,
    .infer = infer_forward,
    .not_differentiable = kMadeByPass,
    .first_optional_output = 1,
    .cost = conv_pool_cost<kForward>,
};

const OpDef op_conv2d_max_pool2d_dgrad = {
    .name = kDgrad,
    .infer = infer_dgrad,
    .not_differentiable = kMadeByPass,
    .cost = conv_pool_cost<kDgrad>,
};

const OpDef op_conv2d_max_pool2d_wgrad = {
    .name = kWgrad,
    .infer = infer_wgrad,
    .not_differentiable = kMadeByPass,
    .first_optional_output = 1,
    .cost = conv_pool_cost<kWgrad>,
};

}  // namespace kerascnn
