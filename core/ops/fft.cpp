// Fourier transforms along the last axis. Complex tensors are two real ones.
//
//   fft(re, im; inverse, scale):        y_k = scale * sum_j x_j e^(-+2 pi i j k / n), + for inverse
//   rfft(x; scale, middle):             the first n / 2 + 1 of these y_k of real x
//   irfft(re, im; length, scale, middle): the real y_j of which these are the first half
//
// Elements of a half that stand for two are multiplied by `middle`. With it each of the ops is the
// gradient of another one, as the transpose of a transform is one in the other direction.
#include "core/ops/fft.h"

#include <algorithm>
#include <bit>

#include "core/ops/cost.h"
#include "core/ops/definitions.h"

namespace kerascnn {

FftSizes fft_sizes(const TensorSpec& spec, int64_t length) {
  const int64_t width = spec.shape.back();
  return {width == 0 ? 0 : num_elements(spec.shape) / width, length};
}

namespace {

// The length of the last axis, after what can be wrong with one floating input has been checked.
int64_t last_axis(std::string_view op, Specs inputs) {
  check_floating(op, "the input", inputs[0]);
  if (inputs[0].shape.empty()) {
    throw ValueError(
        message(op, ": the input must have an axis. Received: ", specs_string(inputs)));
  }
  return inputs[0].shape.back();
}

int64_t last_axis_of_pair(std::string_view op, Specs inputs) {
  check_num_inputs(op, inputs, 2);
  const int64_t width = last_axis(op, inputs);
  check_same_spec(op, inputs);
  return width;
}

TensorSpec with_last_axis(const TensorSpec& spec, int64_t width) {
  TensorSpec result = spec;
  result.shape.back() = width;
  return result;
}

std::vector<TensorSpec> infer_fft(const Attributes& attributes, Specs inputs) {
  last_axis_of_pair("fft", inputs);
  attributes.get_bool("inverse");
  attributes.get_double("scale");
  return {inputs[0], inputs[1]};
}

std::vector<TensorSpec> infer_rfft(const Attributes& attributes, Specs inputs) {
  check_num_inputs("rfft", inputs, 1);
  const int64_t length = last_axis("rfft", inputs);
  if (length < 1) {
    throw ValueError(message("rfft: the last axis must have one element or more. Received: ",
                             specs_string(inputs)));
  }
  attributes.get_double("scale");
  attributes.get_double("middle");
  return std::vector<TensorSpec>(2, with_last_axis(inputs[0], length / 2 + 1));
}

std::vector<TensorSpec> infer_irfft(const Attributes& attributes, Specs inputs) {
  const int64_t width = last_axis_of_pair("irfft", inputs);
  const int64_t length = attributes.get_int("length");
  if (length < 1 || width != length / 2 + 1) {
    throw ValueError(
        message("irfft: for a positive length n the last axis must have n / 2 + 1 "
                "elements. Received: length=",
                length, ", ", specs_string(inputs)));
  }
  attributes.get_double("scale");
  attributes.get_double("middle");
  return {with_last_axis(inputs[0], length)};
}

// The gradients of both parts of a complex output.
std::vector<ValueId> both_gradients(GradientContext& context) {
  return {context.output_gradient_or_zeros(0), context.output_gradient_or_zeros(1)};
}

std::vector<ValueId> fft_gradient(GradientContext& context) {
  Attributes attributes = context.attributes();
  attributes.set("inverse", !attributes.get_bool("inverse"));
  return context.apply_all("fft", both_gradients(context), attributes);
}

std::vector<ValueId> rfft_gradient(GradientContext& context) {
  const Attributes& attributes = context.attributes();
  return {context.apply("irfft", both_gradients(context),
                        {{"length", context.spec(context.input(0)).shape.back()},
                         {"scale", attributes.get_double("scale")},
                         {"middle", attributes.get_double("middle") / 2}})};
}

std::vector<ValueId> irfft_gradient(GradientContext& context) {
  const Attributes& attributes = context.attributes();
  return context.apply_all(
      "rfft", {context.output_gradient()},
      {{"scale", attributes.get_double("scale")}, {"middle", attributes.get_double("middle") * 2}});
}

// A transform of n complex numbers has 5 n log2(n) operations, one of real numbers half of them.
template <int64_t twice_operations>
OpCost cost_of_transform(const Attributes&, Specs inputs, Specs outputs, OpCost usual) {
  const int64_t width = inputs[0].shape.back();
  const int64_t length = outputs.empty() ? width : std::max(width, outputs[0].shape.back());
  if (length == 0) return {0, usual.bytes};
  const int64_t stages = std::bit_width(static_cast<uint64_t>(length - 1));
  const int64_t lines = fft_sizes(inputs[0], length).lines;
  return {twice_operations * lines * length * stages / 2, usual.bytes};
}

}  // namespace

const OpDef op_fft = {
    .name = "fft",
    .infer = infer_fft,
    .gradient = fft_gradient,
    .in_place = [](const Attributes&, size_t) { return std::vector<InPlace>{{0, 0}, {1, 1}}; },
    .cost = cost_of_transform<10>,
};

const OpDef op_rfft = {
    .name = "rfft",
    .infer = infer_rfft,
    .gradient = rfft_gradient,
    .cost = cost_of_transform<5>,
};

const OpDef op_irfft = {
    .name = "irfft",
    .infer = infer_irfft,
    .gradient = irfft_gradient,
    .cost = cost_of_transform<5>,
};

}  // namespace kerascnn
