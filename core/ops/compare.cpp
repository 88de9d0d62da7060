// Comparison and logic with broadcasting, and the choice between two tensors.
#include "core/ops/definitions.h"
#include "core/ops/gradient_expression.h"

namespace kerascnn {
namespace {

template <OpName name>
std::vector<TensorSpec> infer_equality(const Attributes&, Specs inputs) {
  check_num_inputs(name, inputs, 2);
  check_same_dtype(name, inputs);
  return {{DType::Bool, broadcast_shapes(name, inputs[0].shape, inputs[1].shape)}};
}

template <OpName name>
std::vector<TensorSpec> infer_order(const Attributes& attributes, Specs inputs) {
  std::vector<TensorSpec> outputs = infer_equality<name>(attributes, inputs);
  check_number(name, "the first input", inputs[0]);
  return outputs;
}

void check_bool(std::string_view op, std::string_view argument, const TensorSpec& spec) {
  if (spec.dtype != DType::Bool) {
    throw TypeError(message(op, ": ", argument, " must be bool, received ", spec_string(spec),
                            "; compare it first, for example x != 0"));
  }
}

template <OpName name>
std::vector<TensorSpec> infer_logic(const Attributes& attributes, Specs inputs) {
  check_num_inputs(name, inputs, 2);
  check_bool(name, "the first input", inputs[0]);
  check_bool(name, "the second input", inputs[1]);
  return infer_equality<name>(attributes, inputs);
}

std::vector<TensorSpec> infer_logical_not(const Attributes&, Specs inputs) {
  check_num_inputs("logical_not", inputs, 1);
  check_bool("logical_not", "the input", inputs[0]);
  return {inputs[0]};
}

std::vector<TensorSpec> infer_where(const Attributes&, Specs inputs) {
  check_num_inputs("where", inputs, 3);
  check_bool("where", "the condition", inputs[0]);
  check_same_dtype("where", inputs.subspan(1));
  const Shape values = broadcast_shapes("where", inputs[1].shape, inputs[2].shape);
  return {{inputs[1].dtype, broadcast_shapes("where", inputs[0].shape, values)}};
}

std::vector<ValueId> where_gradient(GradientContext& context) {
  const ValueId condition = context.input(0);
  const ValueId gy = context.output_gradient();
  const ValueId zero = context.scalar_like(gy, 0.0);
  const ValueId ga = context.apply("where", {condition, gy, zero});
  const ValueId gb = context.apply("where", {condition, zero, gy});
  return {kNoValue, context.sum_to_shape_of(ga, context.input(1)),
          context.sum_to_shape_of(gb, context.input(2))};
}

std::vector<InPlace> where_in_place(const Attributes&, size_t) { return {{0, 1}, {0, 2}, {0, 0}}; }

}  // namespace

#define KERASCNN_COMPARISON(op_name, rule)  \
  const OpDef op_##op_name = {              \
      .name = #op_name,                     \
      .infer = rule<#op_name>,              \
      .not_differentiable = kBooleanResult, \
      .in_place = in_place_both,            \
      .is_elementwise = true,               \
  };
KERASCNN_COMPARISON(equal, infer_equality)
KERASCNN_COMPARISON(not_equal, infer_equality)
KERASCNN_COMPARISON(less, infer_order)
KERASCNN_COMPARISON(less_equal, infer_order)
KERASCNN_COMPARISON(greater, infer_order)
KERASCNN_COMPARISON(greater_equal, infer_order)
KERASCNN_COMPARISON(logical_and, infer_logic)
KERASCNN_COMPARISON(logical_or, infer_logic)
#undef KERASCNN_COMPARISON

const OpDef op_logical_not = {
    .name = "logical_not",
    .infer = infer_logical_not,
    .not_differentiable = kBooleanResult,
    .in_place = in_place_first,
    .is_elementwise = true,
};

const OpDef op_where = {
    .name = "where",
    .infer = infer_where,
    .gradient = where_gradient,
    .in_place = where_in_place,
    .is_elementwise = true,
};

}  // namespace kerascnn
