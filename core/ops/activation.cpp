// Activations and their gradients. A gradient op takes (gy, y) where the slope follows from the
// output, so that the input need not be kept; for gelu, silu and softplus it takes (gy, x).
#include <cmath>
#include <numbers>

#include "core/ops/activation_kind.h"
#include "core/ops/cost.h"
#include "core/ops/definitions.h"
#include "core/ops/gradient_expression.h"

namespace kerascnn {
namespace {

template <Activation kind, OpName name>
std::vector<TensorSpec> infer_activation(const Attributes& attributes, Specs inputs) {
  check_num_inputs(name, inputs, 1);
  check_floating(name, "the input", inputs[0]);
  activation_call(kind, attributes);
  return {inputs[0]};
}

template <Activation kind, OpName name>
std::vector<TensorSpec> infer_activation_grad(const Attributes& attributes, Specs inputs) {
  check_num_inputs(name, inputs, 2);
  check_floating(name, "the first input", inputs[0]);
  check_same_spec(name, inputs);
  activation_call(kind, attributes);
  return {inputs[0]};
}

template <Activation kind>
std::vector<ValueId> activation_gradient(GradientContext& context) {
  const ValueId reference = gradient_uses_output(kind) ? context.output(0) : context.input(0);
  return {context.apply(activation_gradient_op(kind), {context.output_gradient(), reference},
                        context.attributes())};
}

// Second derivatives: a gradient op f(gy, r) = gy * slope(r) is linear in gy, and d f / d r is
// gy * slope'(r).
struct SecondOrder {
  explicit SecondOrder(GradientContext& context)
      : g{&context, context.output_gradient()},
        gy{&context, context.input(0)},
        r{&context, context.input(1)} {}

  std::vector<ValueId> result(OpRef op, ValueId to_reference) const {
    return {g.call(op, r, g.context->attributes()).id, to_reference};
  }
  Expression g, gy, r;
};

template <Activation kind>
std::vector<ValueId> piecewise_linear_second(GradientContext& context) {
  const SecondOrder v(context);
  return v.result(activation_gradient_op(kind), context.full_like(context.input(1), 0.0));
}
constexpr auto relu_second = piecewise_linear_second<Activation::Relu>;
constexpr auto leaky_relu_second = piecewise_linear_second<Activation::LeakyRelu>;
constexpr auto clipped_relu_second = piecewise_linear_second<Activation::ClippedRelu>;

// slope(y) = y + alpha for y <= 0, else 1.
std::vector<ValueId> elu_second(GradientContext& context) {
  const SecondOrder v(context);
  return v.result("elu_grad", (v.g * v.gy * v.r.indicator("less_equal", 0.0)).id);
}

// slope(y) = y (1 - y).
std::vector<ValueId> sigmoid_second(GradientContext& context) {
  const SecondOrder v(context);
  return v.result("sigmoid_grad", (v.g * v.gy * (1.0 - 2.0 * v.r)).id);
}

// slope(y) = 1 - y^2.
std::vector<ValueId> tanh_second(GradientContext& context) {
  const SecondOrder v(context);
  return v.result("tanh_grad", (v.g * v.gy * (-2.0 * v.r)).id);
}

// slope(x) = s, s' = s (1 - s).
std::vector<ValueId> softplus_second(GradientContext& context) {
  const SecondOrder v(context);
  const Expression s = v.r.call("sigmoid");
  return v.result("softplus_grad", (v.g * v.gy).call("sigmoid_grad", s).id);
}

// slope(x) = s (1 + x (1 - s)), slope' = s (1 - s) (2 + x (1 - 2 s)).
std::vector<ValueId> silu_second(GradientContext& context) {
  const SecondOrder v(context);
  const Expression s = v.r.call("sigmoid");
  const Expression factor = v.r * (1.0 - 2.0 * s) + 2.0;
  return v.result("silu_grad", (v.g * v.gy).call("sigmoid_grad", s).call("multiply", factor).id);
}

// Exact: gelu = x P(x), slope' = p(x) (2 - x^2) with the normal density p. Approximate: with
// u = a (x + b x^3), t = tanh u: slope' = (1 - t^2) (u' + x u''/2 - x t u'^2).
std::vector<ValueId> gelu_second(GradientContext& context) {
  const SecondOrder v(context);
  const Expression x = v.r;
  const Expression x2 = x.call("square");
  const Expression weight = v.g * v.gy;
  if (!context.attributes().get_bool("approximate")) {
    const double scale = 0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2;  // 1 / sqrt(2 pi)
    const Expression density = scale * (-0.5 * x2).call("exp");
    return v.result("gelu_grad", (weight * (density * (2.0 - x2))).id);
  }
  const double a = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
  const double b = 0.044715;
  const Expression t = (a * (x + b * (x * x2))).call("tanh");
  const Expression du = a * (3.0 * b * x2 + 1.0);
  const Expression half_xd2u = (3.0 * a * b) * x2;
  const Expression bracket = du + half_xd2u - x * t * du.call("square");
  return v.result("gelu_grad", ((weight * bracket).call("tanh_grad", t)).id);
}

template <OpName name>
std::vector<TensorSpec> infer_softmax(const Attributes& attributes, Specs inputs) {
  check_num_inputs(name, inputs, 1);
  check_floating(name, "the input", inputs[0]);
  normalize_axis(name, attributes.get_int("axis"), inputs[0].shape.size());
  return {inputs[0]};
}

template <OpName name>
std::vector<TensorSpec> infer_softmax_grad(const Attributes& attributes, Specs inputs) {
  check_num_inputs(name, inputs, 2);
  check_same_spec(name, inputs);
  return infer_softmax<name>(attributes, inputs.first(1));
}

template <OpName grad_op>
std::vector<ValueId> softmax_gradient(GradientContext& context) {
  return {context.apply(std::string_view(grad_op), {context.output_gradient(), context.output(0)},
                        context.attributes())};
}

Expression sum_over_axis(Expression value) {
  const std::vector<int64_t> axes = {value.context->attributes().get_int("axis")};
  return value.call("reduce_sum", {{"axes", axes}, {"keepdims", true}});
}

// softmax_grad(gy, y) = y (gy - sum(gy y)).
std::vector<ValueId> softmax_second(GradientContext& context) {
  const SecondOrder v(context);
  const Expression to_y =
      v.g * (v.gy - sum_over_axis(v.gy * v.r)) - v.gy * sum_over_axis(v.g * v.r);
  return v.result("softmax_grad", to_y.id);
}

// log_softmax_grad(gy, y) = gy - exp(y) sum(gy).
std::vector<ValueId> log_softmax_second(GradientContext& context) {
  const SecondOrder v(context);
  const Expression weighted = v.g * v.r.call("exp");
  return {(v.g - sum_over_axis(weighted)).id, (-(weighted * sum_over_axis(v.gy))).id};
}

}  // namespace

#define KERASCNN_ACTIVATION(kind, op_name, ...)                           \
  const OpDef op_##op_name = {                                            \
      .name = #op_name,                                                   \
      .infer = infer_activation<Activation::kind, #op_name>,              \
      .gradient = activation_gradient<Activation::kind>,                  \
      .in_place = in_place_first,                                         \
      .is_elementwise = true,                                             \
  };                                                                      \
  const OpDef op_##op_name##_grad = {                                     \
      .name = #op_name "_grad",                                           \
      .infer = infer_activation_grad<Activation::kind, #op_name "_grad">, \
      .gradient = op_name##_second,                                       \
      .in_place = in_place_both,                                          \
      .is_elementwise = true,                                             \
  };
KERASCNN_ACTIVATION_LIST(KERASCNN_ACTIVATION)
#undef KERASCNN_ACTIVATION

#define KERASCNN_SOFTMAX(op_name, second)             \
  const OpDef op_##op_name = {                        \
      .name = #op_name,                               \
      .infer = infer_softmax<#op_name>,               \
      .gradient = softmax_gradient<#op_name "_grad">, \
      .in_place = in_place_first,                     \
      .cost = cost_per_element<5>,                    \
  };                                                  \
  const OpDef op_##op_name##_grad = {                 \
      .name = #op_name "_grad",                       \
      .infer = infer_softmax_grad<#op_name "_grad">,  \
      .gradient = second,                             \
      .in_place = in_place_both,                      \
  };
KERASCNN_SOFTMAX(softmax, softmax_second)
KERASCNN_SOFTMAX(log_softmax, log_softmax_second)
#undef KERASCNN_SOFTMAX

}  // namespace kerascnn
