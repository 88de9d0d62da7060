// Convolution is bilinear in input and kernel, so its three ops (forward, input gradient, kernel
// gradient) are one another's gradients:
//   y = conv2d(x, w):          gx = dgrad(gy, w),       gw = wgrad(x, gy)
//   gx = dgrad(gy, w), with G: ggy = conv2d(G, w),      gw = wgrad(G, gy)
//   gw = wgrad(x, gy), with G: gx = dgrad(gy, G),       ggy = conv2d(x, G)
#include "core/ops/conv2d.h"

#include "core/ops/activation_kind.h"
#include "core/ops/cost.h"
#include "core/ops/definitions.h"
#include "core/ops/fused_gradient.h"

namespace kerascnn {
namespace {

// One direction: how many positions the kernel has, 0 or less where it does not fit.
int64_t output_extent(int64_t input, int64_t kernel, int64_t stride, int64_t padding,
                      int64_t dilation) {
  const int64_t room = input + padding - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

void check_kernel_fits(std::string_view op, const char* direction, int64_t input, int64_t kernel,
                       int64_t padding, int64_t dilation) {
  const int64_t covered = dilation * (kernel - 1) + 1;
  if (covered > input + padding) {
    throw ValueError(message(
        op, ": a kernel of ", direction, " ", kernel,
        dilation > 1 ? message(" (", covered, " with dilation ", dilation, ")") : std::string(),
        " is larger than the input's ", direction, " ", input,
        padding > 0 ? message(" (", input + padding, " with padding)") : std::string(),
        "; use a smaller kernel, padding \"same\", or larger images"));
  }
}

void set_shapes(std::string_view op, Conv2DGeometry& g, const Shape& input, const Shape& kernel) {
  if (input[3] < 1 || input[3] % g.groups != 0 || kernel[2] != input[3] / g.groups) {
    throw ValueError(message(op, ": the input has ", input[3], " channels in ", g.groups,
                             g.groups == 1 ? " group" : " groups", " but the kernel takes ",
                             kernel[2], " a group (input ", shape_string(input), ", kernel ",
                             shape_string(kernel), ")"));
  }
  if (kernel[0] < 1 || kernel[1] < 1 || kernel[3] < 1 || kernel[3] % g.groups != 0) {
    throw ValueError(message(op,
                             ": the kernel must be (height, width, channels / groups, filters) "
                             "with positive extents and filters divisible by the ",
                             g.groups, " groups, received ", shape_string(kernel)));
  }
  g.input_channels = input[3];
  g.kernel_height = kernel[0];
  g.kernel_width = kernel[1];
  g.output_channels = kernel[3];
}

Shape shape_attribute(std::string_view op, const Attributes& attributes, std::string_view name) {
  return check_ints(op, attributes, name, 4, 0);
}

}  // namespace

Conv2DGeometry conv2d_geometry(const OpDef& definition, const Attributes& attributes,
                               Specs inputs) {
  const std::string_view op = definition.name;
  if (inputs.size() < 2) check_num_inputs(op, inputs, 2);
  const bool is_dgrad = &definition == &op_conv2d_dgrad;
  const bool is_wgrad = &definition == &op_conv2d_wgrad;
  check_rank(op, is_dgrad ? "the gradient" : "the input", inputs[0], 4);
  check_rank(op, is_wgrad ? "the gradient" : "the kernel", inputs[1], 4);

  Conv2DGeometry g;
  const Shape input = is_dgrad ? shape_attribute(op, attributes, "input_shape") : inputs[0].shape;
  g.set(op, attributes, input);
  const auto& dilations = check_ints(op, attributes, "dilations", 2, 1);
  g.dilation_height = dilations[0];
  g.dilation_width = dilations[1];
  g.groups = check_positive(op, attributes, "groups");

  set_shapes(op, g, input,
             is_wgrad ? shape_attribute(op, attributes, "kernel_shape") : inputs[1].shape);
  const int64_t pad_height = g.pad_top + g.pad_bottom;
  const int64_t pad_width = g.pad_left + g.pad_right;
  check_kernel_fits(op, "height", g.input_height, g.kernel_height, pad_height, g.dilation_height);
  check_kernel_fits(op, "width", g.input_width, g.kernel_width, pad_width, g.dilation_width);
  g.output_height = output_extent(g.input_height, g.kernel_height, g.stride_height, pad_height,
                                  g.dilation_height);
  g.output_width =
      output_extent(g.input_width, g.kernel_width, g.stride_width, pad_width, g.dilation_width);
  if (is_dgrad) check_shape(op, "the gradient", inputs[0], g.output_shape());
  if (is_wgrad) check_shape(op, "the gradient", inputs[1], g.output_shape());
  return g;
}

namespace {

std::vector<TensorSpec> infer_conv2d(const Attributes& attributes, Specs inputs) {
  const Conv2DGeometry g = conv2d_geometry(op_conv2d, attributes, inputs);
  check_floating("conv2d", "the input", inputs[0]);
  check_same_dtype("conv2d", inputs);
  check_bias("conv2d", inputs, g.output_channels);
  fused_activation("conv2d", attributes);
  return {{inputs[0].dtype, g.output_shape()}};
}

template <const OpDef& op, Shape (Conv2DGeometry::*result)() const>
std::vector<TensorSpec> infer_conv2d_gradient(const Attributes& attributes, Specs inputs) {
  check_num_inputs(op.name, inputs, 2);
  check_floating(op.name, "the first input", inputs[0]);
  check_same_dtype(op.name, inputs);
  const Conv2DGeometry g = conv2d_geometry(op, attributes, inputs);
  return {{inputs[0].dtype, (g.*result)()}};
}

// The context's strides, padding, dilations and groups, which all three ops have.
Attributes window_attributes(const GradientContext& context) {
  const Attributes& from = context.attributes();
  return {{"strides", from.get_ints("strides")},
          {"padding", from.get_ints("padding")},
          {"dilations", from.get_ints("dilations")},
          {"groups", from.get_int("groups")}};
}

ValueId conv2d(GradientContext& context, ValueId x, ValueId kernel) {
  Attributes attributes = window_attributes(context);
  attributes.set("activation", std::string("linear"));
  attributes.set("activation_alpha", 0.0);
  return context.apply("conv2d", {x, kernel}, attributes);
}

// The gradient for `x`.
ValueId dgrad(GradientContext& context, ValueId gy, ValueId kernel, ValueId x) {
  Attributes attributes = window_attributes(context);
  attributes.set("input_shape", context.spec(x).shape);
  return context.apply("conv2d_dgrad", {gy, kernel}, attributes);
}

// The gradient for `kernel`.
ValueId wgrad(GradientContext& context, ValueId x, ValueId gy, ValueId kernel) {
  Attributes attributes = window_attributes(context);
  attributes.set("kernel_shape", context.spec(kernel).shape);
  return context.apply("conv2d_wgrad", {x, gy}, attributes);
}

std::vector<ValueId> conv2d_gradient(GradientContext& context) {
  const ValueId x = context.input(0), kernel = context.input(1);
  const ValueId g = before_activation(context, "conv2d");
  std::vector<ValueId> gradients = {dgrad(context, g, kernel, x), wgrad(context, x, g, kernel)};
  if (context.num_inputs() == 3) {
    gradients.push_back(context.apply(
        "reduce_sum", {g}, {{"axes", std::vector<int64_t>{0, 1, 2}}, {"keepdims", false}}));
  }
  return gradients;
}

std::vector<ValueId> dgrad_gradient(GradientContext& context) {
  const ValueId gy = context.input(0), kernel = context.input(1);
  const ValueId g = context.output_gradient();
  return {conv2d(context, g, kernel), wgrad(context, g, gy, kernel)};
}

std::vector<ValueId> wgrad_gradient(GradientContext& context) {
  const ValueId x = context.input(0), gy = context.input(1);
  const ValueId g = context.output_gradient();
  return {dgrad(context, gy, g, x), conv2d(context, x, g)};
}

// Every place of the output times every element of a filter, those that meet padding included.
template <const OpDef& op>
OpCost conv2d_cost(const Attributes& attributes, Specs inputs, Specs, OpCost usual) {
  const Conv2DGeometry g = conv2d_geometry(op, attributes, inputs);
  return {conv2d_flop(g), usual.bytes};
}

}  // namespace

int64_t conv2d_flop(const Conv2DGeometry& g) {
  return product_flop(g.batch * g.output_height * g.output_width, g.num_taps(), g.output_channels);
}

const OpDef op_conv2d = {
    .name = "conv2d",
    .infer = infer_conv2d,
    .gradient = conv2d_gradient,
    .cost = conv2d_cost<op_conv2d>,
};

const OpDef op_conv2d_dgrad = {
    .name = "conv2d_dgrad",
    .infer = infer_conv2d_gradient<op_conv2d_dgrad, &Conv2DGeometry::input_shape>,
    .gradient = dgrad_gradient,
    .cost = conv2d_cost<op_conv2d_dgrad>,
};

const OpDef op_conv2d_wgrad = {
    .name = "conv2d_wgrad",
    .infer = infer_conv2d_gradient<op_conv2d_wgrad, &Conv2DGeometry::kernel_shape>,
    .gradient = wgrad_gradient,
    .cost = conv2d_cost<op_conv2d_wgrad>,
};

}  // namespace kerascnn
