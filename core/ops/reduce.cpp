// Reductions over any set of axes.
#include "core/ops/definitions.h"
#include "core/ops/geometry.h"
#include "core/ops/gradient_expression.h"

namespace kerascnn {
namespace {

std::vector<bool> reduced_axes(std::string_view op, const std::vector<int64_t>& axes, size_t rank) {
  std::vector<bool> reduced(rank, axes.empty());
  for (int64_t axis : axes) {
    const int64_t index = normalize_axis(op, axis, rank);
    if (reduced[index]) {
      throw ValueError(message(op, ": axes ", ints_string(axes), " name axis ", index, " twice"));
    }
    reduced[index] = true;
  }
  return reduced;
}

Shape reduced_shape(std::string_view op, const std::vector<int64_t>& axes, const Shape& shape,
                    bool keepdims) {
  const std::vector<bool> reduced = reduced_axes(op, axes, shape.size());
  Shape result;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!reduced[i]) {
      result.push_back(shape[i]);
    } else if (keepdims) {
      result.push_back(1);
    }
  }
  return result;
}

template <OpName name>
std::vector<TensorSpec> infer_reduce(const Attributes& attributes, Specs inputs) {
  check_num_inputs(name, inputs, 1);
  check_number(name, "the input", inputs[0]);
  return {{inputs[0].dtype, reduced_shape(name, attributes.get_ints("axes"), inputs[0].shape,
                                          attributes.get_bool("keepdims"))}};
}

std::vector<TensorSpec> infer_mean(const Attributes& attributes, Specs inputs) {
  std::vector<TensorSpec> outputs = infer_reduce<"reduce_mean">(attributes, inputs);
  check_floating("reduce_mean", "the input", inputs[0]);
  return outputs;
}

template <OpName name>
std::vector<TensorSpec> infer_extremum(const Attributes& attributes, Specs inputs) {
  std::vector<TensorSpec> outputs = infer_reduce<name>(attributes, inputs);
  const ReduceGeometry geometry = reduce_geometry(inputs[0].shape, attributes.get_ints("axes"));
  if (geometry.reduce == 0 && geometry.outputs > 0) {
    throw ValueError(message(std::string_view(name), ": no element to choose from along axes ",
                             ints_string(attributes.get_ints("axes")), " of shape ",
                             shape_string(inputs[0].shape)));
  }
  return outputs;
}

std::vector<TensorSpec> infer_argmax(const Attributes& attributes, Specs inputs) {
  check_num_inputs("argmax", inputs, 1);
  check_number("argmax", "the input", inputs[0]);
  const std::vector<int64_t> axes = {attributes.get_int("axis")};
  const Shape shape = reduced_shape("argmax", axes, inputs[0].shape, false);
  const AxisGeometry geometry = axis_geometry(inputs[0].shape, axes[0]);
  if (geometry.length == 0 && num_elements(shape) > 0) {
    throw ValueError(message("argmax: no element to choose from along axis ", axes[0], " of shape ",
                             shape_string(inputs[0].shape)));
  }
  if (geometry.length > INT32_MAX) {
    throw ValueError(message("argmax: axis ", axes[0], " has ", geometry.length,
                             " elements, more than its int32 result can count"));
  }
  return {{DType::Int32, shape}};
}

// `value` has the reduction's output shape; it is reshaped so that it broadcasts against the input.
Expression against_input(GradientContext& context, ValueId value) {
  const Shape input = context.spec(context.input(0)).shape;
  const Shape kept = reduced_shape("reduce", context.attributes().get_ints("axes"), input, true);
  if (context.spec(value).shape == kept) return {&context, value};
  return {&context, context.apply("reshape", {value}, {{"shape", kept}})};
}

std::vector<ValueId> sum_gradient(GradientContext& context) {
  const Shape shape = context.spec(context.input(0)).shape;
  const Expression gy = against_input(context, context.output_gradient());
  return {gy.call("broadcast_to", {{"shape", shape}}).id};
}

std::vector<ValueId> mean_gradient(GradientContext& context) {
  const Shape shape = context.spec(context.input(0)).shape;
  const int64_t count = reduce_geometry(shape, context.attributes().get_ints("axes")).reduce;
  const Expression gy = against_input(context, context.output_gradient());
  const double share = count == 0 ? 0.0 : 1.0 / static_cast<double>(count);
  return {(share * gy).call("broadcast_to", {{"shape", shape}}).id};
}

// Equal extremes share the gradient.
std::vector<ValueId> extremum_gradient(GradientContext& context) {
  const Expression x{&context, context.input(0)};
  const Expression wins = x.indicator("equal", against_input(context, context.output(0)));
  Attributes over_axes = context.attributes();
  over_axes.set("keepdims", true);
  const Expression count = wins.call("reduce_sum", over_axes);
  return {(wins * (against_input(context, context.output_gradient()) / count)).id};
}

}  // namespace

const OpDef op_reduce_sum = {
    .name = "reduce_sum",
    .infer = infer_reduce<"reduce_sum">,
    .gradient = sum_gradient,
};

const OpDef op_reduce_mean = {
    .name = "reduce_mean",
    .infer = infer_mean,
    .gradient = mean_gradient,
};

const OpDef op_reduce_max = {
    .name = "reduce_max",
    .infer = infer_extremum<"reduce_max">,
    .gradient = extremum_gradient,
};

const OpDef op_reduce_min = {
    .name = "reduce_min",
    .infer = infer_extremum<"reduce_min">,
    .gradient = extremum_gradient,
};

const OpDef op_argmax = {
    .name = "argmax",
    .infer = infer_argmax,
    .not_differentiable = "its result is an integer index",
};

}  // namespace kerascnn
