// Functions of one element.
#include "core/ops/definitions.h"
#include "core/ops/gradient_expression.h"

namespace kerascnn {
namespace {

template <OpName name>
std::vector<TensorSpec> infer_number(const Attributes&, Specs inputs) {
  check_num_inputs(name, inputs, 1);
  check_number(name, "the input", inputs[0]);
  return {inputs[0]};
}

template <OpName name>
std::vector<TensorSpec> infer_floating(const Attributes&, Specs inputs) {
  check_num_inputs(name, inputs, 1);
  check_floating(name, "the input", inputs[0]);
  return {inputs[0]};
}

std::vector<TensorSpec> infer_clip(const Attributes& attributes, Specs inputs) {
  const double low = attributes.get_double("min");
  const double high = attributes.get_double("max");
  if (!(low <= high)) {
    throw ValueError(
        message("clip: min must not exceed max, received min ", low, " and max ", high));
  }
  return infer_number<"clip">(attributes, inputs);
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

Expression gradient_of(GradientContext& context) { return {&context, context.output_gradient()}; }
Expression input_of(GradientContext& context) { return {&context, context.input(0)}; }
Expression output_of(GradientContext& context) { return {&context, context.output(0)}; }

std::vector<ValueId> negative_gradient(GradientContext& context) {
  return {(-gradient_of(context)).id};
}

std::vector<ValueId> absolute_gradient(GradientContext& context) {
  return {(gradient_of(context) * input_of(context).call("sign")).id};
}

// sign, floor, ceil and round are constant almost everywhere.
std::vector<ValueId> zero_gradient(GradientContext& context) {
  return {context.full_like(context.input(0), 0.0)};
}

std::vector<ValueId> reciprocal_gradient(GradientContext& context) {
  return {(-(gradient_of(context) * output_of(context).call("square"))).id};
}

std::vector<ValueId> square_gradient(GradientContext& context) {
  return {(gradient_of(context) * (2.0 * input_of(context))).id};
}

std::vector<ValueId> sqrt_gradient(GradientContext& context) {
  return {((0.5 * gradient_of(context)) / output_of(context)).id};
}

std::vector<ValueId> rsqrt_gradient(GradientContext& context) {
  const Expression y = output_of(context);
  return {((-0.5 * gradient_of(context)) * (y.call("square") * y)).id};
}

std::vector<ValueId> exp_gradient(GradientContext& context) {
  return {(gradient_of(context) * output_of(context)).id};
}

std::vector<ValueId> log_gradient(GradientContext& context) {
  return {(gradient_of(context) / input_of(context)).id};
}

std::vector<ValueId> log1p_gradient(GradientContext& context) {
  return {(gradient_of(context) / (input_of(context) + 1.0)).id};
}

// The limits count as inside.
std::vector<ValueId> clip_gradient(GradientContext& context) {
  const Expression gy = gradient_of(context);
  const Expression x = input_of(context);
  const Expression low = x.number(context.attributes().get_double("min"));
  const Expression high = x.number(context.attributes().get_double("max"));
  const Expression inside =
      x.call("greater_equal", low).call("logical_and", x.call("less_equal", high));
  return {context.apply("where", {inside.id, gy.id, gy.number(0.0).id})};
}

// Gradients go between floating dtypes; integers and bool carry none.
std::vector<ValueId> cast_gradient(GradientContext& context) {
  const DType from = context.spec(context.input(0)).dtype;
  if (!is_floating(from) || !is_floating(context.spec(context.output(0)).dtype)) return {kNoValue};
  return {gradient_of(context).call("cast", {{"dtype", dtype_name(from)}}).id};
}

std::vector<ValueId> sin_gradient(GradientContext& context) {
  return {(gradient_of(context) * input_of(context).call("cos")).id};
}

std::vector<ValueId> cos_gradient(GradientContext& context) {
  return {(-(gradient_of(context) * input_of(context).call("sin"))).id};
}

std::vector<ValueId> tan_gradient(GradientContext& context) {
  return {(gradient_of(context) * (output_of(context).call("square") + 1.0)).id};
}

std::vector<ValueId> arcsin_gradient(GradientContext& context) {
  const Expression root = (1.0 - input_of(context).call("square")).call("rsqrt");
  return {(gradient_of(context) * root).id};
}

std::vector<ValueId> arccos_gradient(GradientContext& context) {
  const Expression root = (1.0 - input_of(context).call("square")).call("rsqrt");
  return {(-(gradient_of(context) * root)).id};
}

std::vector<ValueId> arctan_gradient(GradientContext& context) {
  return {(gradient_of(context) / (input_of(context).call("square") + 1.0)).id};
}

std::vector<ValueId> sinh_gradient(GradientContext& context) {
  return {(gradient_of(context) * input_of(context).call("cosh")).id};
}

std::vector<ValueId> cosh_gradient(GradientContext& context) {
  return {(gradient_of(context) * input_of(context).call("sinh")).id};
}

std::vector<ValueId> arcsinh_gradient(GradientContext& context) {
  const Expression root = (input_of(context).call("square") + 1.0).call("rsqrt");
  return {(gradient_of(context) * root).id};
}

std::vector<ValueId> arccosh_gradient(GradientContext& context) {
  const Expression root = (input_of(context).call("square") + -1.0).call("rsqrt");
  return {(gradient_of(context) * root).id};
}

std::vector<ValueId> arctanh_gradient(GradientContext& context) {
  return {(gradient_of(context) / (1.0 - input_of(context).call("square"))).id};
}

std::vector<ValueId> expm1_gradient(GradientContext& context) {
  return {(gradient_of(context) * (output_of(context) + 1.0)).id};
}

constexpr double kTwoOverRootPi = 1.12837916709551257390;

Expression bell(Expression x) { return kTwoOverRootPi * (-x.call("square")).call("exp"); }

std::vector<ValueId> erf_gradient(GradientContext& context) {
  return {(gradient_of(context) * bell(input_of(context))).id};
}

std::vector<ValueId> erfc_gradient(GradientContext& context) {
  return {(-(gradient_of(context) * bell(input_of(context)))).id};
}

std::vector<ValueId> erfinv_gradient(GradientContext& context) {
  return {(gradient_of(context) / bell(output_of(context))).id};
}

}  // namespace

#define KERASCNN_UNARY(op_name, rule, gradient_rule) \
  const OpDef op_##op_name = {                       \
      .name = #op_name,                              \
      .infer = rule<#op_name>,                       \
      .gradient = gradient_rule,                     \
      .in_place = in_place_first,                    \
      .is_elementwise = true,                        \
  };
KERASCNN_UNARY(negative, infer_number, negative_gradient)
KERASCNN_UNARY(absolute, infer_number, absolute_gradient)
KERASCNN_UNARY(sign, infer_number, zero_gradient)
KERASCNN_UNARY(square, infer_number, square_gradient)
KERASCNN_UNARY(reciprocal, infer_floating, reciprocal_gradient)
KERASCNN_UNARY(sqrt, infer_floating, sqrt_gradient)
KERASCNN_UNARY(rsqrt, infer_floating, rsqrt_gradient)
KERASCNN_UNARY(exp, infer_floating, exp_gradient)
KERASCNN_UNARY(log, infer_floating, log_gradient)
KERASCNN_UNARY(log1p, infer_floating, log1p_gradient)
KERASCNN_UNARY(floor, infer_floating, zero_gradient)
KERASCNN_UNARY(ceil, infer_floating, zero_gradient)
KERASCNN_UNARY(round, infer_floating, zero_gradient)
KERASCNN_UNARY(sin, infer_floating, sin_gradient)
KERASCNN_UNARY(cos, infer_floating, cos_gradient)
KERASCNN_UNARY(tan, infer_floating, tan_gradient)
KERASCNN_UNARY(arcsin, infer_floating, arcsin_gradient)
KERASCNN_UNARY(arccos, infer_floating, arccos_gradient)
KERASCNN_UNARY(arctan, infer_floating, arctan_gradient)
KERASCNN_UNARY(sinh, infer_floating, sinh_gradient)
KERASCNN_UNARY(cosh, infer_floating, cosh_gradient)
KERASCNN_UNARY(arcsinh, infer_floating, arcsinh_gradient)
KERASCNN_UNARY(arccosh, infer_floating, arccosh_gradient)
KERASCNN_UNARY(arctanh, infer_floating, arctanh_gradient)
KERASCNN_UNARY(expm1, infer_floating, expm1_gradient)
KERASCNN_UNARY(erf, infer_floating, erf_gradient)
KERASCNN_UNARY(erfc, infer_floating, erfc_gradient)
KERASCNN_UNARY(erfinv, infer_floating, erfinv_gradient)
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
