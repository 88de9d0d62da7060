// Selection of elements by index tensors. Indices outside an axis are clamped to it by the kernels,
// which can't raise; whoever has the values on the host checks them before.
#include "core/ops/cost.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

void check_not_empty(std::string_view op, const Shape& shape, int64_t axis, const Shape& indices) {
  if (shape[axis] == 0 && num_elements(indices) > 0) {
    throw ValueError(message(op, ": there is nothing to select from: axis ", axis, " of shape ",
                             shape_string(shape), " is empty"));
  }
}

Shape gathered_shape(std::string_view op, const Shape& shape, int64_t axis, const Shape& indices) {
  axis = normalize_axis(op, axis, shape.size());
  check_not_empty(op, shape, axis, indices);
  Shape result(shape.begin(), shape.begin() + axis);
  result.insert(result.end(), indices.begin(), indices.end());
  result.insert(result.end(), shape.begin() + axis + 1, shape.end());
  return result;
}

std::vector<TensorSpec> infer_gather(const Attributes& attributes, Specs inputs) {
  check_num_inputs("gather", inputs, 2);
  check_index("gather", "the indices", inputs[1]);
  return {{inputs[0].dtype,
           gathered_shape("gather", inputs[0].shape, attributes.get_int("axis"), inputs[1].shape)}};
}

std::vector<ValueId> gather_gradient(GradientContext& context) {
  return {context.apply_with_input_shape("gather_grad", {context.input(1)}), kNoValue};
}

std::vector<TensorSpec> infer_gather_grad(const Attributes& attributes, Specs inputs) {
  check_num_inputs("gather_grad", inputs, 2);
  check_floating("gather_grad", "the gradient", inputs[0]);
  check_index("gather_grad", "the indices", inputs[1]);
  const Shape& shape = attributes.get_ints("input_shape");
  check_shape("gather_grad", "the gradient", inputs[0],
              gathered_shape("gather_grad", shape, attributes.get_int("axis"), inputs[1].shape));
  return {{inputs[0].dtype, shape}};
}

std::vector<ValueId> gather_grad_gradient(GradientContext& context) {
  const Attributes axis = {{"axis", context.attributes().get_int("axis")}};
  return {context.apply("gather", {context.output_gradient(), context.input(1)}, axis), kNoValue};
}

std::vector<TensorSpec> infer_one_hot(const Attributes& attributes, Specs inputs) {
  check_num_inputs("one_hot", inputs, 1);
  check_index("one_hot", "the indices", inputs[0]);
  Shape shape = inputs[0].shape;
  shape.push_back(check_positive("one_hot", attributes, "depth"));
  return {{attributes.get_dtype("dtype"), shape}};
}

// One batch of the data.
std::vector<TensorSpec> infer_take_batch(const Attributes& attributes, Specs inputs) {
  check_num_inputs("take_batch", inputs, 3);
  const TensorSpec& data = inputs[0];
  const TensorSpec& order = inputs[1];
  if (data.shape.empty()) {
    throw ValueError("take_batch: the data must have at least 1 axis, received a scalar");
  }
  check_rank("take_batch", "the order", order, 1);
  if (order.dtype != DType::Int32) {
    throw TypeError(message("take_batch: the order must be int32, received ", spec_string(order)));
  }
  check_spec("take_batch", "the step", inputs[2], {DType::Int64, {}});
  const int64_t batch_size = check_positive("take_batch", attributes, "batch_size");
  check_not_empty("take_batch", data.shape, 0, {batch_size});
  check_not_empty("take_batch", order.shape, 0, {batch_size});
  TensorSpec batch = data;
  batch.shape[0] = batch_size;
  return {batch};
}

// Inputs: the buffer (rows, ...), a batch of rows and its number. Output: the buffer with the rows
// from number * batch size on replaced. Rows of the batch that the buffer does not have are left
// out.
std::vector<TensorSpec> infer_put_batch(const Attributes&, Specs inputs) {
  check_num_inputs("put_batch", inputs, 3);
  if (inputs[0].shape.empty()) {
    throw ValueError("put_batch: the buffer must have at least 1 axis, received a scalar");
  }
  check_same_dtype("put_batch", inputs.first(2));
  check_rank("put_batch", "the batch", inputs[1], inputs[0].shape.size());
  Shape expected = inputs[0].shape;
  expected[0] = inputs[1].shape[0];
  check_shape("put_batch", "the batch", inputs[1], expected);
  check_spec("put_batch", "the step", inputs[2], {DType::Int64, {}});
  return {inputs[0]};
}

// Writes a batch into its place among many.
OpCost put_batch_cost(const Attributes&, Specs inputs, Specs, OpCost) {
  return {0, 2 * num_bytes(inputs[1])};
}

}  // namespace

const OpDef op_gather = {
    .name = "gather",
    .infer = infer_gather,
    .gradient = gather_gradient,
    .cost = cost_of_picking,
};

const OpDef op_gather_grad = {
    .name = "gather_grad",
    .infer = infer_gather_grad,
    .gradient = gather_grad_gradient,
};

const OpDef op_one_hot = {
    .name = "one_hot",
    .infer = infer_one_hot,
    .not_differentiable = "its input is an integer index",
    .cost = cost_of_moving,
};

const OpDef op_take_batch = {
    .name = "take_batch",
    .infer = infer_take_batch,
    .not_differentiable = "it reads samples out of a data set, which is not trained; use gather",
    .cost = cost_of_picking,
};

const OpDef op_put_batch = {
    .name = "put_batch",
    .infer = infer_put_batch,
    .not_differentiable = "it keeps results for the host; use concatenate",
    .in_place = in_place_first,
    .cost = put_batch_cost,
};

}  // namespace kerascnn
