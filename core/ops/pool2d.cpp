#include "core/ops/pool2d.h"

#include "core/ops/definitions.h"
#include "core/ops/gradient_expression.h"

namespace kerascnn {
namespace {

int64_t pooled_extent(std::string_view op, const char* direction, int64_t input, int64_t window,
                      int64_t stride, int64_t before, int64_t after) {
  if (before >= window || after >= window) {
    throw ValueError(message(op, ": padding must be smaller than the window, received ", before,
                             " and ", after, " for a window of ", direction, " ", window));
  }
  const int64_t padded = input + before + after;
  if (input < 1 || window > padded) {
    throw ValueError(message(
        op, ": a window of ", direction, " ", window, " is larger than the input's ", direction,
        " ", input, padded > input ? message(" (", padded, " with padding)") : std::string(),
        "; use a smaller pool_size, padding \"same\", or larger images"));
  }
  return (padded - window) / stride + 1;
}

}  // namespace

Pool2DGeometry pool2d_geometry(std::string_view op, const Attributes& attributes,
                               const Shape& shape) {
  if (shape.size() != 4) {
    throw ValueError(message(op,
                             ": the input must have 4 axes (batch, height, width, channels), "
                             "received shape ",
                             shape_string(shape)));
  }
  Pool2DGeometry g;
  const auto& window = check_ints(op, attributes, "window", 2, 1);
  g.set(op, attributes, shape);
  g.channels = shape[3];
  g.window_height = window[0];
  g.window_width = window[1];
  g.output_height = pooled_extent(op, "height", g.input_height, g.window_height, g.stride_height,
                                  g.pad_top, g.pad_bottom);
  g.output_width = pooled_extent(op, "width", g.input_width, g.window_width, g.stride_width,
                                 g.pad_left, g.pad_right);
  return g;
}

namespace {

template <const OpDef& op>
std::vector<TensorSpec> infer_pool(const Attributes& attributes, Specs inputs) {
  check_num_inputs(op.name, inputs, 1);
  check_floating(op.name, "the input", inputs[0]);
  const Pool2DGeometry g = pool2d_geometry(op.name, attributes, inputs[0].shape);
  std::vector<TensorSpec> outputs = {{inputs[0].dtype, g.output_shape()}};
  if (&op == &op_max_pool2d) outputs.push_back({g.index_dtype(), g.output_shape()});
  return outputs;
}

Pool2DGeometry gradient_geometry(std::string_view op, const Attributes& attributes, Specs inputs) {
  check_floating(op, "the gradient", inputs[0]);
  const Shape& shape = attributes.get_ints("input_shape");
  const Pool2DGeometry g = pool2d_geometry(op, attributes, shape);
  check_shape(op, "the gradient", inputs[0], g.output_shape());
  return g;
}

std::vector<TensorSpec> infer_max_pool2d_grad(const Attributes& attributes, Specs inputs) {
  check_num_inputs("max_pool2d_grad", inputs, 2);
  const Pool2DGeometry g = gradient_geometry("max_pool2d_grad", attributes, inputs);
  check_spec("max_pool2d_grad", "the index", inputs[1], {g.index_dtype(), g.output_shape()});
  return {{inputs[0].dtype, g.input_shape()}};
}

std::vector<TensorSpec> infer_avg_pool2d_grad(const Attributes& attributes, Specs inputs) {
  check_num_inputs("avg_pool2d_grad", inputs, 1);
  const Pool2DGeometry g = gradient_geometry("avg_pool2d_grad", attributes, inputs);
  return {{inputs[0].dtype, g.input_shape()}};
}

std::vector<ValueId> max_pool2d_gradient(GradientContext& context) {
  return {context.apply_with_input_shape("max_pool2d_grad", {context.output(1)})};
}

std::vector<ValueId> avg_pool2d_gradient(GradientContext& context) {
  return {context.apply_with_input_shape("avg_pool2d_grad")};
}

// 0, step, 2 step, ... along one of 4 axes.
Expression steps_along(Expression like, size_t axis, int64_t count, int64_t step) {
  Shape shape(4, 1);
  shape[axis] = count;
  // Equal elements keep their order when they are sorted: this counts from 0.
  const Attributes order = {{"axis", static_cast<int64_t>(axis)}, {"descending", false}};
  Expression numbers =
      like.number(0.0).call("broadcast_to", {{"shape", shape}}).call("argsort", order);
  const DType dtype = like.context->spec(like.id).dtype;
  if (dtype != DType::Int32) numbers = numbers.call("cast", {{"dtype", dtype_name(dtype)}});
  return static_cast<double>(step) * numbers;
}

// Where the elements that max_pool2d chose lie in the input, seen as one axis.
Expression chosen_elements(GradientContext& context, const Pool2DGeometry& g, ValueId index) {
  const int64_t row = g.input_width * g.channels;
  const DType dtype = num_elements(g.input_shape()) <= INT32_MAX ? DType::Int32 : DType::Int64;
  const Expression at = Expression{&context, index}.call("cast", {{"dtype", dtype_name(dtype)}});
  const Expression row_in_window =
      at.call("floor_divide", at.number(static_cast<double>(g.window_width)));
  // The distance from the end of a window's row to the beginning of the next.
  const int64_t skipped = (g.input_width - g.window_width) * g.channels;
  const Expression in_window =
      static_cast<double>(g.channels) * at + static_cast<double>(skipped) * row_in_window;
  // Windows may begin in the padding, but the elements that they choose lie in the input.
  const Expression window = steps_along(at, 0, g.batch, g.input_height * row) +
                            steps_along(at, 1, g.output_height, g.stride_height * row) +
                            steps_along(at, 2, g.output_width, g.stride_width * g.channels) +
                            steps_along(at, 3, g.channels, 1);
  const int64_t before = g.pad_top * row + g.pad_left * g.channels;
  return in_window + window + static_cast<double>(-before);
}

// The op moves each element of the gradient to where its maximum was. On the way back the elements
// of these places are picked.
std::vector<ValueId> max_pool2d_grad_gradient(GradientContext& context) {
  const Attributes& attributes = context.attributes();
  const Pool2DGeometry g =
      pool2d_geometry("max_pool2d_grad", attributes, attributes.get_ints("input_shape"));
  const int64_t size = num_elements(g.input_shape());
  const Expression places = chosen_elements(context, g, context.input(1));
  const Expression upstream{&context, context.output_gradient()};
  const Expression picked = upstream.call("reshape", {{"shape", Shape{size}}})
                                .call("gather", places, {{"axis", int64_t{0}}});
  return {picked.id, kNoValue};
}

// avg_pool2d_grad is the transpose of the linear map avg_pool2d.
std::vector<ValueId> avg_pool2d_grad_gradient(GradientContext& context) {
  const Attributes& attributes = context.attributes();
  return {context.apply("avg_pool2d", {context.output_gradient()},
                        {{"window", attributes.get_ints("window")},
                         {"strides", attributes.get_ints("strides")},
                         {"padding", attributes.get_ints("padding")}})};
}

}  // namespace

const OpDef op_max_pool2d = {
    .name = "max_pool2d",
    .infer = infer_pool<op_max_pool2d>,
    .gradient = max_pool2d_gradient,
    .first_optional_output = 1,
};

const OpDef op_max_pool2d_grad = {
    .name = "max_pool2d_grad",
    .infer = infer_max_pool2d_grad,
    .gradient = max_pool2d_grad_gradient,
};

const OpDef op_avg_pool2d = {
    .name = "avg_pool2d",
    .infer = infer_pool<op_avg_pool2d>,
    .gradient = avg_pool2d_gradient,
};

const OpDef op_avg_pool2d_grad = {
    .name = "avg_pool2d_grad",
    .infer = infer_avg_pool2d_grad,
    .gradient = avg_pool2d_grad_gradient,
};

}  // namespace kerascnn
