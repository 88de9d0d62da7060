// Ops that move or select elements by position.
#include "core/ops/cost.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

std::vector<TensorSpec> infer_reshape(const Attributes& attributes, Specs inputs) {
  check_num_inputs("reshape", inputs, 1);
  const Shape& shape = attributes.get_ints("shape");
  const int64_t received = num_elements(inputs[0].shape);
  if (num_elements(shape) != received) {
    throw ValueError(message("reshape: shape ", shape_string(inputs[0].shape), " with ", received,
                             " elements can't become ", shape_string(shape), " with ",
                             num_elements(shape)));
  }
  return {{inputs[0].dtype, shape}};
}

std::vector<ValueId> reshape_gradient(GradientContext& context) {
  const Shape shape = context.spec(context.input(0)).shape;
  return {context.apply("reshape", {context.output_gradient()}, {{"shape", shape}})};
}

template <OpName name>
std::vector<TensorSpec> infer_same(const Attributes&, Specs inputs) {
  check_num_inputs(name, inputs, 1);
  return {inputs[0]};
}

std::vector<ValueId> no_gradient(GradientContext&) { return {kNoValue}; }

std::vector<ValueId> barrier_gradient(GradientContext& context) {
  return {context.output_gradient()};
}

std::vector<TensorSpec> infer_transpose(const Attributes& attributes, Specs inputs) {
  check_num_inputs("transpose", inputs, 1);
  const std::vector<int64_t>& permutation = attributes.get_ints("permutation");
  const Shape& shape = inputs[0].shape;
  std::vector<bool> seen(shape.size(), false);
  Shape result;
  for (int64_t axis : permutation) {
    if (axis < 0 || axis >= static_cast<int64_t>(shape.size()) || seen[axis]) break;
    seen[axis] = true;
    result.push_back(shape[axis]);
  }
  if (result.size() != shape.size() || permutation.size() != shape.size()) {
    throw ValueError(message("transpose: permutation must hold each axis 0 to rank - 1 once for ",
                             spec_string(inputs[0]), ", received ", ints_string(permutation)));
  }
  return {{inputs[0].dtype, result}};
}

std::vector<ValueId> transpose_gradient(GradientContext& context) {
  const std::vector<int64_t>& permutation = context.attributes().get_ints("permutation");
  std::vector<int64_t> inverse(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i) inverse[permutation[i]] = static_cast<int64_t>(i);
  return {context.apply("transpose", {context.output_gradient()}, {{"permutation", inverse}})};
}

std::vector<TensorSpec> infer_broadcast_to(const Attributes& attributes, Specs inputs) {
  check_num_inputs("broadcast_to", inputs, 1);
  const Shape& shape = attributes.get_ints("shape");
  num_elements(shape);
  const bool fits = inputs[0].shape.size() <= shape.size();
  if (!fits || broadcast_shapes("broadcast_to", inputs[0].shape, shape) != shape) {
    throw ValueError(message("broadcast_to: shape ", shape_string(inputs[0].shape),
                             " does not broadcast to ", shape_string(shape),
                             "; only extents of 1 can grow"));
  }
  return {{inputs[0].dtype, shape}};
}

std::vector<ValueId> broadcast_to_gradient(GradientContext& context) {
  return {context.sum_to_shape_of(context.output_gradient(), context.input(0))};
}

std::vector<TensorSpec> infer_concatenate(const Attributes& attributes, Specs inputs) {
  if (inputs.empty()) throw ValueError("concatenate: expected at least 1 input, received none");
  check_same_dtype("concatenate", inputs);
  TensorSpec result = inputs[0];
  const int64_t axis =
      normalize_axis("concatenate", attributes.get_int("axis"), result.shape.size());
  result.shape[axis] = 0;
  for (const TensorSpec& input : inputs) {
    Shape others = input.shape;
    if (others.size() == result.shape.size()) others[axis] = result.shape[axis];
    if (others != result.shape) {
      throw ValueError(message("concatenate: all shapes must agree but on axis ", axis,
                               ", received ", specs_string(inputs)));
    }
    result.shape[axis] += input.shape[axis];
  }
  return {result};
}

std::vector<ValueId> concatenate_gradient(GradientContext& context) {
  const Shape output = context.spec(context.output(0)).shape;
  const int64_t axis =
      normalize_axis("concatenate", context.attributes().get_int("axis"), output.size());
  std::vector<ValueId> gradients;
  std::vector<int64_t> starts(output.size(), 0);
  const std::vector<int64_t> ones(output.size(), 1);
  for (size_t i = 0; i < context.num_inputs(); ++i) {
    const Shape sizes = context.spec(context.input(i)).shape;
    gradients.push_back(context.apply("slice", {context.output_gradient()},
                                      {{"starts", starts}, {"sizes", sizes}, {"strides", ones}}));
    starts[axis] += sizes[axis];
  }
  return gradients;
}

// Checks the attributes of slice and slice_grad against the shape that is sliced.
void check_slice(std::string_view op, const Attributes& attributes, const Shape& shape) {
  const auto& starts = check_ints(op, attributes, "starts", shape.size(), 0);
  const auto& sizes = check_ints(op, attributes, "sizes", shape.size(), 0);
  const auto& strides = check_ints(op, attributes, "strides", shape.size(), INT64_MIN);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (strides[i] == 0) {
      throw ValueError(message(op, ": strides must not be 0, received ", ints_string(strides)));
    }
    if (sizes[i] == 0) continue;
    const int64_t last = starts[i] + (sizes[i] - 1) * strides[i];
    if (starts[i] >= shape[i] || last < 0 || last >= shape[i]) {
      throw ValueError(message(op, ": on axis ", i, " the slice from ", starts[i], " to ", last,
                               " leaves shape ", shape_string(shape)));
    }
  }
}

std::vector<TensorSpec> infer_slice(const Attributes& attributes, Specs inputs) {
  check_num_inputs("slice", inputs, 1);
  check_slice("slice", attributes, inputs[0].shape);
  return {{inputs[0].dtype, attributes.get_ints("sizes")}};
}

std::vector<ValueId> slice_gradient(GradientContext& context) {
  return {context.apply_with_input_shape("slice_grad")};
}

std::vector<TensorSpec> infer_slice_grad(const Attributes& attributes, Specs inputs) {
  check_num_inputs("slice_grad", inputs, 1);
  const Shape& shape = attributes.get_ints("input_shape");
  check_slice("slice_grad", attributes, shape);
  check_shape("slice_grad", "the gradient", inputs[0], attributes.get_ints("sizes"));
  return {{inputs[0].dtype, shape}};
}

std::vector<ValueId> slice_grad_gradient(GradientContext& context) {
  const Attributes& attributes = context.attributes();
  return {context.apply("slice", {context.output_gradient()},
                        {{"starts", attributes.get_ints("starts")},
                         {"sizes", attributes.get_ints("sizes")},
                         {"strides", attributes.get_ints("strides")}})};
}

}  // namespace

const OpDef op_reshape = {
    .name = "reshape",
    .infer = infer_reshape,
    .gradient = reshape_gradient,
    .is_view = true,
};

const OpDef op_stop_gradient = {
    .name = "stop_gradient",
    .infer = infer_same<"stop_gradient">,
    .gradient = no_gradient,
    .is_view = true,
};

// The same value, but no pass knows that it is the same: what is computed from it is computed
// again.
const OpDef op_barrier = {
    .name = "barrier",
    .infer = infer_same<"barrier">,
    .gradient = barrier_gradient,
    .is_view = true,
    .is_stateful = true,
};

const OpDef op_transpose = {
    .name = "transpose",
    .infer = infer_transpose,
    .gradient = transpose_gradient,
    .cost = cost_of_moving,
};

const OpDef op_broadcast_to = {
    .name = "broadcast_to",
    .infer = infer_broadcast_to,
    .gradient = broadcast_to_gradient,
    .cost = cost_of_moving,
};

const OpDef op_concatenate = {
    .name = "concatenate",
    .infer = infer_concatenate,
    .gradient = concatenate_gradient,
    .cost = cost_of_moving,
};

const OpDef op_slice = {
    .name = "slice",
    .infer = infer_slice,
    .gradient = slice_gradient,
    .cost = cost_of_picking,
};

const OpDef op_slice_grad = {
    .name = "slice_grad",
    .infer = infer_slice_grad,
    .gradient = slice_grad_gradient,
    .cost = cost_of_moving,
};

}  // namespace kerascnn
