// Functions of one element.
#include "core/ops/definitions.h"
#include "core/ops/element_ops.h"
#include "core/ops/gradient_expression.h"

namespace kerascnn {
namespace {

template <ElementOp op>
std::vector<TensorSpec> infer_unary(const Attributes&, Specs inputs) {
  constexpr std::string_view name = element_op_name(op);
  check_num_inputs(name, inputs, 1);
  check_number(name, "the input", inputs[0]);
  if (element_kind(op) == ElementKind::Floating) check_floating(name, "the input", inputs[0]);
  return {inputs[0]};
}

std::vector<TensorSpec> infer_clip(const Attributes& attributes, Specs inputs) {
  const double low = attributes.get_double("min");
  const double high = attributes.get_double("max");
  if (!(low <= high)) {
    throw ValueError(
        message("clip: min must not exceed max, received min ", low, " and max ", high));
  }
  return infer_unary<ElementOp::clip>(attributes, inputs);
}

std::vector<TensorSpec> infer_isfinite(const Attributes&, Specs inputs) {
  check_num_inputs("isfinite", inputs, 1);
  check_number("isfinite", "the input", inputs[0]);
  return {{DType::Bool, inputs[0].shape}};
}

std::vector<TensorSpec> infer_cast(const Attributes& attributes, Specs inputs) {
  check_num_inputs("cast", inputs, 1);
  return {{attributes.get_dtype("dtype"), inputs[0].shape}};
}

// What the gradient of such an op is made of: the gradient of the result, the input, the result.
struct UnaryCall {
  explicit UnaryCall(GradientContext& context)
      : gy{&context, context.output_gradient()},
        x{&context, context.input(0)},
        y{&context, context.output(0)} {}
  Expression gy, x, y;
};

Expression square(Expression x) { return x.call("square"); }

// The derivative of erf.
Expression bell(Expression x) {
  constexpr double kTwoOverRootPi = 1.12837916709551257390;
  return kTwoOverRootPi * (-square(x)).call("exp");
}

// sign, floor, ceil and round are constant almost everywhere.
Expression zeros(const UnaryCall& v) { return {v.x.context, v.x.context->full_like(v.x.id, 0.0)}; }

// The limits count as inside.
std::vector<ValueId> clip_gradient(GradientContext& context) {
  const UnaryCall v(context);
  const Expression low = v.x.number(context.attributes().get_double("min"));
  const Expression high = v.x.number(context.attributes().get_double("max"));
  const Expression inside =
      v.x.call("greater_equal", low).call("logical_and", v.x.call("less_equal", high));
  return {context.apply("where", {inside.id, v.gy.id, v.gy.number(0.0).id})};
}

// Gradients go between floating dtypes; integers and bool carry none.
std::vector<ValueId> cast_gradient(GradientContext& context) {
  const DType from = context.spec(context.input(0)).dtype;
  if (!is_floating(from) || !is_floating(context.spec(context.output(0)).dtype)) return {kNoValue};
  return {UnaryCall(context).gy.call("cast", {{"dtype", dtype_name(from)}}).id};
}

}  // namespace

// `formula` is the gradient of the input.
#define KERASCNN_UNARY(op_name, formula)                                 \
  const OpDef op_##op_name = {                                           \
      .name = #op_name,                                                  \
      .infer = infer_unary<ElementOp::op_name>,                          \
      .gradient = [](GradientContext& context) -> std::vector<ValueId> { \
        const UnaryCall v(context);                                      \
        return {(formula).id};                                           \
      },                                                                 \
      .in_place = in_place_first,                                        \
      .is_elementwise = true,                                            \
  };
// clang-format off
KERASCNN_UNARY(negative, -v.gy)
KERASCNN_UNARY(absolute, v.gy * v.x.call("sign"))
KERASCNN_UNARY(sign, zeros(v))
KERASCNN_UNARY(square, v.gy * (2.0 * v.x))
KERASCNN_UNARY(reciprocal, -(v.gy * square(v.y)))
KERASCNN_UNARY(sqrt, (0.5 * v.gy) / v.y)
KERASCNN_UNARY(rsqrt, (-0.5 * v.gy) * (square(v.y) * v.y))
KERASCNN_UNARY(exp, v.gy * v.y)
KERASCNN_UNARY(log, v.gy / v.x)
KERASCNN_UNARY(log1p, v.gy / (v.x + 1.0))
KERASCNN_UNARY(floor, zeros(v))
KERASCNN_UNARY(ceil, zeros(v))
KERASCNN_UNARY(round, zeros(v))
KERASCNN_UNARY(sin, v.gy * v.x.call("cos"))
KERASCNN_UNARY(cos, -(v.gy * v.x.call("sin")))
KERASCNN_UNARY(tan, v.gy * (square(v.y) + 1.0))
KERASCNN_UNARY(arcsin, v.gy * (1.0 - square(v.x)).call("rsqrt"))
KERASCNN_UNARY(arccos, -(v.gy * (1.0 - square(v.x)).call("rsqrt")))
KERASCNN_UNARY(arctan, v.gy / (square(v.x) + 1.0))
KERASCNN_UNARY(sinh, v.gy * v.x.call("cosh"))
KERASCNN_UNARY(cosh, v.gy * v.x.call("sinh"))
KERASCNN_UNARY(arcsinh, v.gy * (square(v.x) + 1.0).call("rsqrt"))
KERASCNN_UNARY(arccosh, v.gy * (square(v.x) + -1.0).call("rsqrt"))
KERASCNN_UNARY(arctanh, v.gy / (1.0 - square(v.x)))
KERASCNN_UNARY(expm1, v.gy * (v.y + 1.0))
KERASCNN_UNARY(erf, v.gy * bell(v.x))
KERASCNN_UNARY(erfc, -(v.gy * bell(v.x)))
KERASCNN_UNARY(erfinv, v.gy / bell(v.y))
// clang-format on
#undef KERASCNN_UNARY

const OpDef op_clip = {
    .name = "clip",
    .infer = infer_clip,
    .gradient = clip_gradient,
    .in_place = in_place_first,
    .is_elementwise = true,
};

const OpDef op_isfinite = {
    .name = "isfinite",
    .infer = infer_isfinite,
    .not_differentiable = kBooleanResult,
    .is_elementwise = true,
};

const OpDef op_cast = {
    .name = "cast",
    .infer = infer_cast,
    .gradient = cast_gradient,
    .in_place = in_place_first,
    .is_elementwise = true,
};

}  // namespace kerascnn
