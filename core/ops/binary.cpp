// Arithmetic and functions of bits of two tensors with broadcasting.
#include "core/ops/definitions.h"
#include "core/ops/element_ops.h"
#include "core/ops/gradient_expression.h"

namespace kerascnn {
namespace {

template <ElementOp op>
std::vector<TensorSpec> infer_arithmetic(const Attributes&, Specs inputs) {
  constexpr std::string_view name = element_op_name(op);
  constexpr ElementKind kind = element_kind(op);
  check_num_inputs(name, inputs, 2);
  check_number(name, "the first input", inputs[0]);
  check_same_dtype(name, inputs);
  if (kind == ElementKind::Floating) check_floating(name, "the first input", inputs[0]);
  if (kind == ElementKind::Integer) check_integer(name, "the first input", inputs[0]);
  return {{inputs[0].dtype, broadcast_shapes(name, inputs[0].shape, inputs[1].shape)}};
}

// What gradients are made of: the gradient of the result, the operands, the result.
struct Call {
  explicit Call(GradientContext& context)
      : gy{&context, context.output_gradient()},
        a{&context, context.input(0)},
        b{&context, context.input(1)},
        y{&context, context.output(0)} {}
  Expression gy, a, b, y;
};

// Both gradients have the output's shape; where an input was broadcast, the gradients of its copies
// are summed.
std::vector<ValueId> reduced(const Call& v, Expression ga, Expression gb) {
  return {v.a.context->sum_to_shape_of(ga.id, v.a.id), v.b.context->sum_to_shape_of(gb.id, v.b.id)};
}

std::vector<ValueId> divide_gradient(const Call& v) {
  const Expression ga = v.gy / v.b;
  return reduced(v, ga, -(ga * v.y));
}

// d a^b / da = b a^(b-1), and 0 where b is 0, also at a = 0. d a^b / db = a^b log a, and 0 at a = 0
// where the power itself is 0 or constant (b >= 0).
std::vector<ValueId> power_gradient(const Call& v) {
  GradientContext& context = *v.gy.context;
  const Expression zero = v.gy.number(0.0);
  const Expression slope = v.b * v.a.call("power", v.b + -1.0);
  const ValueId ga =
      context.apply("where", {v.b.call("equal", zero).id, zero.id, (v.gy * slope).id});
  const Expression flat =
      v.a.call("equal", zero).call("logical_and", v.b.call("greater_equal", zero));
  const ValueId gb =
      context.apply("where", {flat.id, zero.id, (v.gy * (v.y * v.a.call("log"))).id});
  return reduced(v, {&context, ga}, {&context, gb});
}

// Equal elements share the gradient. `wins` is the comparison in which the first one does.
std::vector<ValueId> extremum_gradient(const Call& v, OpRef wins) {
  const Expression share = v.a.indicator(wins, v.b) + 0.5 * v.a.indicator("equal", v.b);
  return reduced(v, v.gy * share, v.gy * (1.0 - share));
}

std::vector<ValueId> arctan2_gradient(const Call& v) {
  const Expression share = v.gy / (v.a.call("square") + v.b.call("square"));
  return reduced(v, share * v.b, -(share * v.a));
}

// mod is a - b * floor(a / b), whose floor is constant almost everywhere.
std::vector<ValueId> mod_gradient(const Call& v) {
  return reduced(v, v.gy, -(v.gy * v.a.call("floor_divide", v.b)));
}

std::vector<ValueId> floor_divide_gradient(const Call& v) {
  GradientContext& context = *v.gy.context;
  return {context.full_like(v.a.id, 0.0), context.full_like(v.b.id, 0.0)};
}

}  // namespace

#define KERASCNN_ARITHMETIC(op_name, gradients)                          \
  const OpDef op_##op_name = {                                           \
      .name = #op_name,                                                  \
      .infer = infer_arithmetic<ElementOp::op_name>,                     \
      .gradient = [](GradientContext& context) -> std::vector<ValueId> { \
        const Call v(context);                                           \
        return gradients;                                                \
      },                                                                 \
      .in_place = in_place_both,                                         \
      .is_elementwise = true,                                            \
  };
KERASCNN_ARITHMETIC(add, reduced(v, v.gy, v.gy))
KERASCNN_ARITHMETIC(subtract, reduced(v, v.gy, -v.gy))
KERASCNN_ARITHMETIC(multiply, reduced(v, v.gy* v.b, v.gy* v.a))
KERASCNN_ARITHMETIC(divide, divide_gradient(v))
KERASCNN_ARITHMETIC(power, power_gradient(v))
KERASCNN_ARITHMETIC(maximum, extremum_gradient(v, op_greater))
KERASCNN_ARITHMETIC(minimum, extremum_gradient(v, op_less))
KERASCNN_ARITHMETIC(arctan2, arctan2_gradient(v))
KERASCNN_ARITHMETIC(mod, mod_gradient(v))
KERASCNN_ARITHMETIC(floor_divide, floor_divide_gradient(v))
#undef KERASCNN_ARITHMETIC

#define KERASCNN_OF_INTEGERS(op_name)                                   \
  const OpDef op_##op_name = {                                          \
      .name = #op_name,                                                 \
      .infer = infer_arithmetic<ElementOp::op_name>,                    \
      .not_differentiable = "it is a function of the bits of integers", \
      .in_place = in_place_both,                                        \
      .is_elementwise = true,                                           \
  };
KERASCNN_OF_INTEGERS(bitwise_and)
KERASCNN_OF_INTEGERS(bitwise_or)
KERASCNN_OF_INTEGERS(bitwise_xor)
KERASCNN_OF_INTEGERS(left_shift)
KERASCNN_OF_INTEGERS(right_shift)
#undef KERASCNN_OF_INTEGERS

}  // namespace kerascnn
