// Counter-based random numbers (philox.h). The state is an int64 tensor {seed, counter}; an op is a
// pure function of the state, its shape and its stream, and random_advance gives the state of the
// next step. Calls that share a state take different streams.
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

constexpr std::string_view kNoFloatingInput =
    "its only input is the random state, which is integer";

void check_state(std::string_view op, const TensorSpec& state) {
  check_spec(op, "the random state", state, {DType::Int64, {2}});
}

void check_stream(std::string_view op, const Attributes& attributes) {
  const int64_t stream = attributes.get_int("stream");
  if (stream < 0 || stream > int64_t{UINT32_MAX}) {
    throw ValueError(message(op, ": stream must be in [0, 2^32), received ", stream));
  }
}

template <OpName name>
TensorSpec infer_drawn(const Attributes& attributes, Specs inputs) {
  check_num_inputs(name, inputs, 1);
  check_state(name, inputs[0]);
  check_stream(name, attributes);
  const TensorSpec result = {attributes.get_dtype("dtype"), attributes.get_ints("shape")};
  num_elements(result.shape);
  return result;
}

std::vector<TensorSpec> infer_uniform(const Attributes& attributes, Specs inputs) {
  const TensorSpec result = infer_drawn<"random_uniform">(attributes, inputs);
  check_floating("random_uniform", "the result", result);
  const double low = attributes.get_double("minval");
  const double high = attributes.get_double("maxval");
  if (!(low <= high)) {
    throw ValueError(
        message("random_uniform: minval must not exceed maxval, received ", low, " and ", high));
  }
  return {result};
}

std::vector<TensorSpec> infer_normal(const Attributes& attributes, Specs inputs) {
  const TensorSpec result = infer_drawn<"random_normal">(attributes, inputs);
  check_floating("random_normal", "the result", result);
  attributes.get_double("mean");
  check_not_negative("random_normal", attributes, "stddev");
  return {result};
}

std::vector<TensorSpec> infer_bernoulli(const Attributes& attributes, Specs inputs) {
  check_range("random_bernoulli", attributes, "p", 1, true);
  return {infer_drawn<"random_bernoulli">(attributes, inputs)};
}

std::vector<TensorSpec> infer_dropout(const Attributes& attributes, Specs inputs) {
  check_num_inputs("dropout", inputs, 2);
  check_floating("dropout", "the input", inputs[0]);
  check_state("dropout", inputs[1]);
  check_stream("dropout", attributes);
  check_range("dropout", attributes, "rate", 1, true);
  return {inputs[0]};
}

// The same elements are dropped, as state and stream are the same.
std::vector<ValueId> dropout_gradient(GradientContext& context) {
  return {
      context.apply("dropout", {context.output_gradient(), context.input(1)}, context.attributes()),
      kNoValue};
}

std::vector<TensorSpec> infer_advance(const Attributes& attributes, Specs inputs) {
  check_num_inputs("random_advance", inputs, 1);
  check_state("random_advance", inputs[0]);
  attributes.get_int("amount");
  return {inputs[0]};
}

}  // namespace

const OpDef op_random_uniform = {
    .name = "random_uniform",
    .infer = infer_uniform,
    .not_differentiable = kNoFloatingInput,
};

const OpDef op_random_normal = {
    .name = "random_normal",
    .infer = infer_normal,
    .not_differentiable = kNoFloatingInput,
};

const OpDef op_random_bernoulli = {
    .name = "random_bernoulli",
    .infer = infer_bernoulli,
    .not_differentiable = kNoFloatingInput,
};

const OpDef op_dropout = {
    .name = "dropout",
    .infer = infer_dropout,
    .gradient = dropout_gradient,
    .in_place = in_place_first,
};

const OpDef op_random_advance = {
    .name = "random_advance",
    .infer = infer_advance,
    .not_differentiable = kNoFloatingInput,
    .in_place = in_place_first,
};

}  // namespace kerascnn
