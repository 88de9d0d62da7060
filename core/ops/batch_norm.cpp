// Batch normalization over all axes but the last, in training, with the statistics of this batch;
// and these statistics alone.
#include <algorithm>
#include <numeric>

#include "core/ops/cost.h"
#include "core/ops/definitions.h"
#include "core/ops/gradient_expression.h"

namespace kerascnn {
namespace {

// Checks what both ops require of x.
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

std::vector<TensorSpec> infer_batch_norm(const Attributes& attributes, Specs inputs) {
  check_num_inputs("batch_norm", inputs, 3);
  check_same_dtype("batch_norm", inputs);
  check_normalized("batch_norm", inputs[0]);
  check_not_negative("batch_norm", attributes, "epsilon");
  const Shape channels = {inputs[0].shape.back()};
  check_shape("batch_norm", "gamma", inputs[1], channels);
  check_shape("batch_norm", "beta", inputs[2], channels);
  const TensorSpec statistic = {inputs[0].dtype, channels};
  return {inputs[0], statistic, statistic, statistic};
}

// x (..., c) -> mean (c,), biased variance (c,). With `outer_axes` a, the first a axes have
// statistics of their own: (n, ..., c) -> (n, 1, ..., 1, c) where a is 1.
std::vector<TensorSpec> infer_column_moments(const Attributes& attributes, Specs inputs) {
  check_num_inputs("column_moments", inputs, 1);
  check_normalized("column_moments", inputs[0]);
  const Shape& shape = inputs[0].shape;
  const int64_t outer_axes = column_moments_outer_axes(attributes);
  if (outer_axes < 0 || outer_axes > static_cast<int64_t>(shape.size()) - 2) {
    throw ValueError(message("column_moments: outer_axes must be from 0 to ", shape.size() - 2,
                             " for an input of shape ", shape_string(shape), ", received ",
                             outer_axes));
  }
  TensorSpec moment = {inputs[0].dtype, {shape.back()}};
  if (outer_axes > 0) {
    moment.shape = shape;
    std::fill(moment.shape.begin() + outer_axes, moment.shape.end() - 1, 1);
  }
  return {moment, moment};
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

// How many rows a statistic is made of.
double num_rows(const Shape& shape) {
  return static_cast<double>(num_elements(shape) / shape.back());
}

// Sums over all axes but the last.
Expression sum_rows(Expression x) {
  Shape axes(x.context->spec(x.id).shape.size() - 1);
  std::iota(axes.begin(), axes.end(), 0);
  return x.call("reduce_sum", {{"axes", axes}, {"keepdims", false}});
}

void add_to(Expression& sum, Expression addend) {
  sum = sum.id == kNoValue ? addend : sum + addend;
}

// The gradient through mean and variance: dv / dx = 2 (x - m) / n. It has no value where nothing
// depends on them. Statistics broadcast to x.
Expression through_moments(GradientContext& context, Expression mean, Expression by_mean,
                           Expression by_variance) {
  const Expression x{&context, context.input(0)};
  const Shape shape = context.spec(x.id).shape;
  Expression gradient{&context, kNoValue};
  const double rows = static_cast<double>(num_elements(shape)) /
                      static_cast<double>(num_elements(context.spec(mean.id).shape));
  if (by_variance.id != kNoValue) gradient = (x - mean) * (2.0 / rows * by_variance);
  if (by_mean.id != kNoValue) {
    const Expression share = 1.0 / rows * by_mean;
    add_to(gradient, share.call("broadcast_to", {{"shape", shape}}));
  }
  return gradient;
}

// With the inverse deviation i = (v + epsilon)^(-1/2) too: di / dv = -i^3 / 2.
Expression through_statistics(GradientContext& context) {
  const Expression mean{&context, context.output(1)}, inverse{&context, context.output(3)};
  Expression by_variance{&context, context.output_gradient(2)};
  if (context.output_gradient(3) != kNoValue) {
    const Expression by_inverse{&context, context.output_gradient(3)};
    add_to(by_variance, -0.5 * (by_inverse * inverse * inverse * inverse));
  }
  return through_moments(context, mean, {&context, context.output_gradient(1)}, by_variance);
}

std::vector<ValueId> column_moments_gradient(GradientContext& context) {
  return {through_moments(context, {&context, context.output(0)},
                          {&context, context.output_gradient(0)},
                          {&context, context.output_gradient(1)})
              .id};
}

std::vector<ValueId> batch_norm_gradient(GradientContext& context) {
  std::vector<ValueId> gradients(3, kNoValue);
  if (context.output_gradient(0) != kNoValue) {
    gradients = context.apply_all("batch_norm_grad",
                                  {context.output_gradient(0), context.input(0), context.input(1),
                                   context.output(1), context.output(3)});
  }
  const Expression more = through_statistics(context);
  if (more.id != kNoValue) {
    Expression gx{&context, gradients[0]};
    add_to(gx, more);
    gradients[0] = gx.id;
  }
  return gradients;
}

// With z = (x - m) i the op gives gx = gamma i (gy - sum(gy) / n - z sum(gy z) / n), ggamma =
// sum(gy z) and gbeta = sum(gy). This takes the gradients a, b and c of the three back. The op is
// symmetric in gy, so the first of them gives the op itself, applied to a. The mean and the inverse
// deviation are inputs here.
std::vector<ValueId> batch_norm_grad_gradient(GradientContext& context) {
  const auto value = [&](ValueId id) { return Expression{&context, id}; };
  const Expression gy = value(context.input(0)), x = value(context.input(1));
  const Expression gamma = value(context.input(2)), mean = value(context.input(3));
  const Expression inverse = value(context.input(4));
  const Expression ggamma = value(context.output(1)), gbeta = value(context.output(2));
  const Expression a = value(context.output_gradient(0)), b = value(context.output_gradient(1));
  const Expression c = value(context.output_gradient(2));
  const Shape shape = context.spec(x.id).shape;
  const double share = 1.0 / num_rows(shape);
  const Expression centered = x - mean, z = centered * inverse;
  Expression by_gy = value(kNoValue), by_z = value(kNoValue), by_gamma = value(kNoValue);
  Expression by_inverse = value(kNoValue);
  if (a.id != kNoValue) {
    const std::vector<ValueId> back =
        context.apply_all("batch_norm_grad", {a.id, x.id, gamma.id, mean.id, inverse.id});
    by_gy = value(back[0]);
    by_z = (-share * (gamma * inverse)) * (a * ggamma + value(back[1]) * gy);
    const Expression projected = gy - share * gbeta - z * (share * ggamma);
    const Expression scale = sum_rows(a * projected);  // by gamma i
    by_gamma = scale * inverse;
    by_inverse = scale * gamma;
  }
  if (b.id != kNoValue) {
    add_to(by_gy, b * z);
    add_to(by_z, b * gy);
  }
  if (c.id != kNoValue) add_to(by_gy, c.call("broadcast_to", {{"shape", shape}}));
  if (by_z.id == kNoValue) return {by_gy.id, kNoValue, kNoValue, kNoValue, kNoValue};
  add_to(by_inverse, sum_rows(by_z * centered));
  const Expression by_x = by_z * inverse;
  return {by_gy.id, by_x.id, by_gamma.id, (-sum_rows(by_x)).id, by_inverse.id};
}

}  // namespace

int64_t column_moments_outer_axes(const Attributes& attributes) {
  return attributes.has("outer_axes") ? attributes.get_int("outer_axes") : 0;
}

const OpDef op_batch_norm = {
    .name = "batch_norm",
    .infer = infer_batch_norm,
    .gradient = batch_norm_gradient,
    .cost = cost_per_element<8>,
};

const OpDef op_batch_norm_grad = {
    .name = "batch_norm_grad",
    .infer = infer_batch_norm_grad,
    .gradient = batch_norm_grad_gradient,
    .cost = cost_per_element<12>,
};

const OpDef op_column_moments = {
    .name = "column_moments",
    .infer = infer_column_moments,
    .gradient = column_moments_gradient,
    .cost = cost_per_element<4>,
};

}  // namespace kerascnn
