// Layers with a state over whole sequences: the serial part only. What goes into the gates from the
// inputs, one product over all steps, is done by the caller, and the gradient of the recurrent
// kernel is one product over all steps too, made of other ops here.
//
// lstm: x (n, t, 4u), h0 and c0 (n, u), the recurrent kernel (u, 4u), and where the attribute
// "masked" says so a mask (n, t). Outputs: the last h and c (n, u), and the optional ones, all h
// (n, t, u), and what the gradient needs: the gates (n, t, 4u), c after each step and h before each
// step (n, t, u). gru: x (n, t, 3u), h0, the recurrent kernel (u, 3u), its bias (3u), [mask];
// outputs: the last h, all h, the gates (n, t, 4u), h before each step. GRUs reset behind the
// product, as cuDNN's do (Cho et al., Learning phrase representations using RNN encoder-decoder,
// 2014, reset before it).
//
// Everything along the time axis lies where the inputs lie that it belongs to, also where "reverse"
// makes the last one the first to be read. Where the mask is false, the state stays as it is, and
// the output is h.
#include "core/ops/recurrent.h"

#include "core/ops/cost.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

constexpr std::string_view kNoSecondRecurrence =
    "it is itself the gradient of a recurrent layer over a whole sequence, whose derivative is not "
    "defined; for second derivatives give the layer unroll=True";

// The units of a recurrent kernel (units, gates * units).
int64_t check_kernel(std::string_view op, const TensorSpec& kernel, int64_t gates) {
  check_floating(op, "the recurrent kernel", kernel);
  check_rank(op, "the recurrent kernel", kernel, 2);
  const int64_t units = kernel.shape[0];
  if (units < 1 || kernel.shape[1] != gates * units) {
    throw ValueError(message(op, ": the recurrent kernel must have shape (units, ", gates,
                             " * units) with at least 1 unit, received ",
                             shape_string(kernel.shape)));
  }
  return units;
}

void check_mask(std::string_view op, const TensorSpec& mask, const Shape& steps) {
  if (mask.dtype != DType::Bool) {
    throw TypeError(message(op, ": the mask must be boolean, received ", dtype_name(mask.dtype),
                            "; cast it first"));
  }
  check_shape(op, "the mask", mask, steps);
}

void check_dtype(std::string_view op, Specs inputs, const TensorSpec& kernel) {
  for (const TensorSpec& spec : inputs) {
    if (spec.dtype != DType::Bool && spec.dtype != kernel.dtype) {
      throw TypeError(message(op, ": all inputs but the mask must have one dtype, received ",
                              specs_string(inputs), "; cast some of them first"));
    }
  }
}

// Checks for (batch, time, gates * units) with the sizes of the kernel.
void check_sequence(std::string_view op, std::string_view argument, const TensorSpec& spec,
                    int64_t columns) {
  check_rank(op, argument, spec, 3);
  if (spec.shape[2] != columns) {
    throw ValueError(message(op, ": ", argument, " must have ", columns,
                             " columns for this recurrent kernel, received shape ",
                             shape_string(spec.shape)));
  }
}

Shape state_shape(const RecurrentSizes& s) { return {s.batch, s.units}; }
Shape sequence_shape(const RecurrentSizes& s, int64_t gates = 1) {
  return {s.batch, s.time, gates * s.units};
}

RecurrentSizes sizes_of(bool is_lstm, const Attributes& attributes, const TensorSpec& sequence,
                        const TensorSpec& kernel) {
  return {sequence.shape[0], sequence.shape[1], kernel.shape[0], is_lstm,
          attributes.get_bool("reverse")};
}

template <const OpDef& definition>
std::vector<TensorSpec> infer_forward(const Attributes& attributes, Specs inputs) {
  constexpr bool is_lstm = &definition == &op_lstm;
  const std::string_view op = definition.name;
  const bool masked = attributes.get_bool("masked");
  check_num_inputs(op, inputs, masked ? 5 : 4);
  const TensorSpec& kernel = inputs[is_lstm ? 3 : 2];
  const int64_t gates = is_lstm ? 4 : 3;
  const int64_t units = check_kernel(op, kernel, gates);
  check_sequence(op, "x", inputs[0], gates * units);
  check_dtype(op, inputs, kernel);
  const RecurrentSizes s = sizes_of(is_lstm, attributes, inputs[0], kernel);
  check_shape(op, "h0", inputs[1], state_shape(s));
  if (is_lstm) {
    check_shape(op, "c0", inputs[2], state_shape(s));
  } else {
    check_shape(op, "the recurrent bias", inputs[3], {gates * units});
  }
  if (masked) check_mask(op, inputs[4], {s.batch, s.time});
  const TensorSpec state = {kernel.dtype, state_shape(s)};
  const TensorSpec sequence = {kernel.dtype, sequence_shape(s)};
  const TensorSpec saved = {kernel.dtype, sequence_shape(s, kSavedGates)};
  if (is_lstm) return {state, state, sequence, saved, sequence, sequence};
  return {state, sequence, saved, sequence};
}

RecurrentGradientInputs gradient_inputs(bool is_lstm, const Attributes& attributes) {
  RecurrentGradientInputs places;
  places.count = is_lstm ? 4 : 3;
  const auto place = [&](std::string_view name) {
    return attributes.get_bool(name) ? places.count++ : -1;
  };
  places.mask = place("masked");
  places.last_h = place("has_last_h");
  if (is_lstm) places.last_c = place("has_last_c");
  places.outputs = place("has_outputs");
  return places;
}

template <const OpDef& definition>
std::vector<TensorSpec> infer_backward(const Attributes& attributes, Specs inputs) {
  constexpr bool is_lstm = &definition == &op_lstm_grad;
  const std::string_view op = definition.name;
  const RecurrentGradientInputs places = gradient_inputs(is_lstm, attributes);
  check_num_inputs(op, inputs, static_cast<size_t>(places.count));
  const int64_t gates = is_lstm ? 4 : 3;
  const int64_t units = check_kernel(op, inputs[0], gates);
  check_sequence(op, "the gates", inputs[1], kSavedGates * units);
  check_dtype(op, inputs, inputs[0]);
  const RecurrentSizes s = sizes_of(is_lstm, attributes, inputs[1], inputs[0]);
  check_shape(op, is_lstm ? "the cells" : "the previous states", inputs[2], sequence_shape(s));
  if (is_lstm) check_shape(op, "c0", inputs[3], state_shape(s));
  const auto check_at = [&](int place, std::string_view argument, const Shape& shape) {
    if (place >= 0) check_shape(op, argument, inputs[static_cast<size_t>(place)], shape);
  };
  if (places.mask >= 0) {
    check_mask(op, inputs[static_cast<size_t>(places.mask)], {s.batch, s.time});
  }
  check_at(places.last_h, "the gradient of the last h", state_shape(s));
  check_at(places.last_c, "the gradient of the last c", state_shape(s));
  check_at(places.outputs, "the gradient of the outputs", sequence_shape(s));
  const TensorSpec state = {inputs[0].dtype, state_shape(s)};
  const TensorSpec sequence = {inputs[0].dtype, sequence_shape(s, gates)};
  if (is_lstm) return {sequence, state, state};
  return {sequence, sequence, state};
}

// Outputs from `first` on are for the gradient alone.
void check_no_gradient(const GradientContext& context, std::string_view op, size_t first,
                       size_t count) {
  for (size_t i = first; i < count; ++i) {
    if (context.output_gradient(i) != kNoValue) {
      throw ValueError(message(op, ": the loss depends on output ", i,
                               ", which is kept for the gradient only; no gradient is defined "
                               "through it, use the states instead"));
    }
  }
}

// (n, t, columns) -> (n t, columns).
ValueId rows_of(GradientContext& context, ValueId value) {
  const Shape shape = context.spec(value).shape;
  return context.apply("reshape", {value}, {{"shape", Shape{shape[0] * shape[1], shape[2]}}});
}

// Applies the gradient op to `inputs`, the mask and the gradients of outputs, as far as there are
// any.
std::vector<ValueId> apply_gradient_op(GradientContext& context, const OpDef& op,
                                       std::vector<ValueId> inputs, size_t mask) {
  const bool is_lstm = &op == &op_lstm_grad;
  const bool masked = context.attributes().get_bool("masked");
  Attributes attributes = {{"reverse", context.attributes().get_bool("reverse")},
                           {"masked", masked}};
  if (masked) inputs.push_back(context.input(mask));
  size_t output = 0;
  const auto add = [&](std::string name) {
    const ValueId gradient = context.output_gradient(output++);
    attributes.set(std::move(name), gradient != kNoValue);
    if (gradient != kNoValue) inputs.push_back(gradient);
  };
  add("has_last_h");
  if (is_lstm) add("has_last_c");
  add("has_outputs");
  return context.apply_all(op, inputs, attributes);
}

std::vector<ValueId> with_mask(const GradientContext& context, std::vector<ValueId> gradients) {
  gradients.resize(context.num_inputs(), kNoValue);
  return gradients;
}

// a^T b, for the rows of two sequences.
ValueId sum_of_products(GradientContext& context, ValueId a, ValueId b) {
  return context.apply("matmul", {rows_of(context, a), rows_of(context, b)},
                       {{"transpose_a", true}, {"transpose_b", false}});
}

std::vector<ValueId> lstm_gradient(GradientContext& context) {
  check_no_gradient(context, "lstm", 3, 6);
  const std::vector<ValueId> serial = apply_gradient_op(
      context, op_lstm_grad,
      {context.input(3), context.output(3), context.output(4), context.input(2)}, 4);
  const ValueId kernel = sum_of_products(context, context.output(5), serial[0]);
  return with_mask(context, {serial[0], serial[1], serial[2], kernel});
}

std::vector<ValueId> gru_gradient(GradientContext& context) {
  check_no_gradient(context, "gru", 2, 4);
  const std::vector<ValueId> serial = apply_gradient_op(
      context, op_gru_grad, {context.input(2), context.output(2), context.output(3)}, 4);
  const ValueId kernel = sum_of_products(context, context.output(3), serial[1]);
  const ValueId bias = context.apply("reduce_sum", {rows_of(context, serial[1])},
                                     {{"axes", std::vector<int64_t>{0}}, {"keepdims", false}});
  return with_mask(context, {serial[0], serial[2], kernel, bias});
}

// The parameters say which inputs are the recurrent kernel and a sequence.
template <size_t kernel_at, size_t sequence_at>
OpCost recurrent_cost(const Attributes&, Specs inputs, Specs, OpCost usual) {
  const TensorSpec &kernel = inputs[kernel_at], &sequence = inputs[sequence_at];
  const int64_t rows = sequence.shape[0] * sequence.shape[1];
  // The functions of each unit take about 30 operations.
  return {product_flop(rows, kernel.shape[0], kernel.shape[1]) + 30 * rows * kernel.shape[0],
          usual.bytes};
}

}  // namespace

RecurrentSizes recurrent_sizes(const OpDef& op, const Attributes& attributes, Specs inputs) {
  const bool is_lstm = &op == &op_lstm || &op == &op_lstm_grad;
  if (&op == &op_lstm_grad || &op == &op_gru_grad) {
    return sizes_of(is_lstm, attributes, inputs[1], inputs[0]);
  }
  return sizes_of(is_lstm, attributes, inputs[0], inputs[is_lstm ? 3 : 2]);
}

RecurrentGradientInputs recurrent_gradient_inputs(const OpDef& op, const Attributes& attributes) {
  return gradient_inputs(&op == &op_lstm_grad, attributes);
}

const OpDef op_lstm = {
    .name = "lstm",
    .infer = infer_forward<op_lstm>,
    .gradient = lstm_gradient,
    .first_optional_output = 2,
    .cost = recurrent_cost<3, 0>,
};

const OpDef op_lstm_grad = {
    .name = "lstm_grad",
    .infer = infer_backward<op_lstm_grad>,
    .not_differentiable = kNoSecondRecurrence,
    .first_optional_output = 1,
    .cost = recurrent_cost<0, 1>,
};

const OpDef op_gru = {
    .name = "gru",
    .infer = infer_forward<op_gru>,
    .gradient = gru_gradient,
    .first_optional_output = 1,
    .cost = recurrent_cost<2, 0>,
};

const OpDef op_gru_grad = {
    .name = "gru_grad",
    .infer = infer_backward<op_gru_grad>,
    .not_differentiable = kNoSecondRecurrence,
    .first_optional_output = 1,
    .cost = recurrent_cost<0, 1>,
};

}  // namespace kerascnn
