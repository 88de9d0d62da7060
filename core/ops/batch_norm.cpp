// Batch normalization over all axes but the last, in training: statistics of this batch.
#include "core/ops/cost.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

// What both ops ask of x.
void check_normalized(std::string_view op, const TensorSpec& x) {
  check_floating(op, "the input", x);
  if (x.shape.size() < 2) {
    throw ValueError(message(op,
                             ": the input must have 2 or more axes, the last one being the "
                             "channels, received shape ",
                             shape_string(x.shape)));
  }
  if (num_elements(x.shape) == 0) {
    throw ValueError(message(op, ": an empty input of shape ", shape_string(x.shape),
                             " has no mean and variance"));
  }
}

double check_epsilon(std::string_view op, const Attributes& attributes) {
  const double epsilon = attributes.get_double("epsilon");
  if (!(epsilon >= 0.0)) {
    throw ValueError(message(op, ": epsilon must not be negative, received ", epsilon));
  }
  return epsilon;
}

std::vector<TensorSpec> infer_batch_norm(const Attributes& attributes, Specs inputs) {
  check_num_inputs("batch_norm", inputs, 3);
  check_same_dtype("batch_norm", inputs);
  check_normalized("batch_norm", inputs[0]);
  check_epsilon("batch_norm", attributes);
  const Shape channels = {inputs[0].shape.back()};
  check_shape("batch_norm", "gamma", inputs[1], channels);
  check_shape("batch_norm", "beta", inputs[2], channels);
  const TensorSpec statistic = {inputs[0].dtype, channels};
  return {inputs[0], statistic, statistic, statistic};
}

std::vector<TensorSpec> infer_batch_norm_grad(const Attributes&, Specs inputs) {
  check_num_inputs("batch_norm_grad", inputs, 5);
  check_same_dtype("batch_norm_grad", inputs);
  check_normalized("batch_norm_grad", inputs[1]);
  check_shape("batch_norm_grad", "the gradient", inputs[0], inputs[1].shape);
  const TensorSpec channels = {inputs[1].dtype, {inputs[1].shape.back()}};
  check_shape("batch_norm_grad", "gamma", inputs[2], channels.shape);
  check_shape("batch_norm_grad", "the mean", inputs[3], channels.shape);
  check_shape("batch_norm_grad", "the inverse standard deviation", inputs[4], channels.shape);
  return {inputs[1], channels, channels};
}

std::vector<ValueId> batch_norm_gradient(GradientContext& context) {
  for (size_t i = 1; i < 4; ++i) {
    if (context.output_gradient(i) != kNoValue) {
      throw ValueError(
          "batch_norm: the loss depends on the batch's mean, variance or inverse standard "
          "deviation, through which no gradient is defined; compute them with reduce_mean instead");
    }
  }
  return context.apply_all("batch_norm_grad",
                           {context.output_gradient(0), context.input(0), context.input(1),
                            context.output(1), context.output(3)});
}

}  // namespace

const OpDef op_batch_norm = {
    .name = "batch_norm",
    .infer = infer_batch_norm,
    .gradient = batch_norm_gradient,
    .cost = cost_per_element<8>,
};

const OpDef op_batch_norm_grad = {
    .name = "batch_norm_grad",
    .infer = infer_batch_norm_grad,
    .not_differentiable = kNoSecondDerivative,
    .cost = cost_per_element<12>,
};

}  // namespace kerascnn
