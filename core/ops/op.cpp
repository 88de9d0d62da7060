#include "core/ops/op.h"

#include <algorithm>
#include <unordered_map>

#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

// Puts the op's name before the attribute's own message: "concatenate: ...", "custom_op softsign:
// ...".
std::string with_op_name(std::string_view op, const std::string& text) {
  const bool is_named = text.starts_with(message(op, ":")) || text.starts_with(message(op, " "));
  return is_named ? text : message(op, ": ", text);
}

}  // namespace

GradientContext::GradientContext(std::vector<ValueId> inputs, std::vector<ValueId> outputs,
                                 std::vector<ValueId> output_gradients, Attributes attributes)
    : inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      output_gradients_(std::move(output_gradients)),
      attributes_(std::move(attributes)) {}

ValueId GradientContext::apply(OpRef op, const std::vector<ValueId>& inputs,
                               const Attributes& attributes) {
  return add_node(*op, inputs, attributes).front();
}

std::vector<ValueId> GradientContext::apply_all(OpRef op, const std::vector<ValueId>& inputs,
                                                const Attributes& attributes) {
  return add_node(*op, inputs, attributes);
}

ValueId GradientContext::output_gradient_or_zeros(size_t index) {
  const ValueId given = output_gradient(index);
  return given != kNoValue ? given : full_like(output(index), 0.0);
}

ValueId GradientContext::apply_with_input_shape(OpRef grad, std::vector<ValueId> others) {
  Attributes with_shape = attributes_;
  with_shape.set("input_shape", spec(input(0)).shape);
  others.insert(others.begin(), output_gradient());
  return apply(grad, others, with_shape);
}

ValueId GradientContext::full_like(ValueId like, double value) {
  const TensorSpec like_spec = spec(like);  // a copy: adding a value may move the graph's
  return add_constant(like_spec, value);
}

ValueId GradientContext::scalar_like(ValueId like, double value) {
  return add_constant({spec(like).dtype, {}}, value);
}

ValueId GradientContext::sum_to_shape_of(ValueId gradient, ValueId target) {
  const Shape from = spec(gradient).shape;
  const Shape to = spec(target).shape;
  if (from == to) return gradient;
  const size_t added = from.size() - to.size();
  std::vector<int64_t> axes;
  for (size_t i = 0; i < from.size(); ++i) {
    if (i < added || (to[i - added] == 1 && from[i] != 1)) axes.push_back(static_cast<int64_t>(i));
  }
  ValueId sum = apply(op_reduce_sum, {gradient}, {{"axes", axes}, {"keepdims", true}});
  return added == 0 ? sum : apply(op_reshape, {sum}, {{"shape", to}});
}

std::vector<TensorSpec> infer_outputs(const OpDef& op, const Attributes& attributes, Specs inputs) {
  try {
    std::vector<TensorSpec> outputs = op.infer(attributes, inputs);
    for (const TensorSpec& output : outputs) num_bytes(output);
    return outputs;
  } catch (const ValueError& error) {
    throw ValueError(with_op_name(op.name, error.what()));
  } catch (const TypeError& error) {
    throw TypeError(with_op_name(op.name, error.what()));
  }
}

OpCost op_cost(const OpDef& op, const Attributes& attributes, Specs inputs, Specs outputs) {
  if (op.is_view) return {};
  OpCost usual;
  for (const Specs specs : {inputs, outputs}) {
    for (const TensorSpec& spec : specs) {
      usual.flop = std::max(usual.flop, num_elements(spec.shape));
      usual.bytes += num_bytes(spec);
    }
  }
  return op.cost == nullptr ? usual : op.cost(attributes, inputs, outputs, usual);
}

const std::vector<const OpDef*>& all_ops() {
#define KERASCNN_OP_ADDRESS(name, ...) &op_##name,
  static const std::vector<const OpDef*> ops = {KERASCNN_OP_LIST(KERASCNN_OP_ADDRESS)};
#undef KERASCNN_OP_ADDRESS
  return ops;
}

const OpDef& find_op(std::string_view name) {
  static const std::unordered_map<std::string_view, const OpDef*> by_name = [] {
    std::unordered_map<std::string_view, const OpDef*> map;
    for (const OpDef* op : all_ops()) map.emplace(op->name, op);
    return map;
  }();
  const auto found = by_name.find(name);
  if (found == by_name.end()) {
    throw ValueError(message("there is no op named \"", name, "\""));
  }
  return *found->second;
}

std::string specs_string(Specs specs) {
  std::string text;
  for (const TensorSpec& spec : specs) text += (text.empty() ? "" : ", ") + spec_string(spec);
  return text;
}

std::string ints_string(const std::vector<int64_t>& values) {
  std::string text;
  for (int64_t value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return "[" + text + "]";
}

void check_num_inputs(std::string_view op, Specs inputs, size_t expected) {
  if (inputs.size() != expected) {
    throw ValueError(message(op, ": expected ", expected, expected == 1 ? " input" : " inputs",
                             ", received ", inputs.size()));
  }
}

void check_rank(std::string_view op, std::string_view argument, const TensorSpec& spec,
                size_t rank) {
  if (spec.shape.size() != rank) {
    throw ValueError(message(op, ": ", argument, " must have ", rank, rank == 1 ? " axis" : " axes",
                             ", received ", spec.shape.size(), " with shape ",
                             shape_string(spec.shape)));
  }
}

void check_shape(std::string_view op, std::string_view argument, const TensorSpec& spec,
                 const Shape& shape) {
  if (spec.shape != shape) {
    throw ValueError(message(op, ": ", argument, " must have shape ", shape_string(shape),
                             ", received ", shape_string(spec.shape)));
  }
}

void check_spec(std::string_view op, std::string_view argument, const TensorSpec& spec,
                const TensorSpec& expected) {
  if (spec != expected) {
    throw ValueError(message(op, ": ", argument, " must be ", spec_string(expected), ", received ",
                             spec_string(spec)));
  }
}

void check_same_dtype(std::string_view op, Specs inputs) {
  for (const TensorSpec& input : inputs) {
    if (input.dtype != inputs.front().dtype) {
      throw TypeError(message(op, ": all inputs must have one dtype, received ",
                              specs_string(inputs), "; cast some of them first"));
    }
  }
}

void check_same_spec(std::string_view op, Specs inputs) {
  check_same_dtype(op, inputs);
  for (const TensorSpec& input : inputs) {
    if (input.shape != inputs.front().shape) {
      throw ValueError(
          message(op, ": all inputs must have one shape, received ", specs_string(inputs)));
    }
  }
}

void check_floating(std::string_view op, std::string_view argument, const TensorSpec& spec) {
  if (!is_floating(spec.dtype)) {
    throw TypeError(message(op, ": ", argument,
                            " must be floating (float16, bfloat16, float32 or "
                            "float64), received ",
                            spec_string(spec), "; cast it first"));
  }
}

void check_number(std::string_view op, std::string_view argument, const TensorSpec& spec) {
  if (spec.dtype == DType::Bool) {
    throw TypeError(message(op, ": ", argument, " must be integer or floating, received ",
                            spec_string(spec), "; cast it first"));
  }
}

void check_integer(std::string_view op, std::string_view argument, const TensorSpec& spec) {
  if (!is_integer(spec.dtype)) {
    throw TypeError(message(op, ": ", argument, " must be integer, received ", spec_string(spec),
                            "; cast it first"));
  }
}

void check_index(std::string_view op, std::string_view argument, const TensorSpec& spec) {
  if (spec.dtype != DType::Int32 && spec.dtype != DType::Int64) {
    throw TypeError(message(op, ": ", argument, " must be int32 or int64, received ",
                            spec_string(spec), "; cast it first"));
  }
}

int64_t check_positive(std::string_view op, const Attributes& attributes, std::string_view name) {
  const int64_t value = attributes.get_int(name);
  if (value < 1) throw ValueError(message(op, ": ", name, " must be positive, received ", value));
  return value;
}

double check_range(std::string_view op, const Attributes& attributes, std::string_view name,
                   double end, bool includes_end) {
  const double value = attributes.get_double(name);
  if (!(value >= 0.0 && (value < end || (includes_end && value == end)))) {
    throw ValueError(message(op, ": ", name, " must be in [0, ", end, includes_end ? "]" : ")",
                             ", received ", value));
  }
  return value;
}

double check_not_negative(std::string_view op, const Attributes& attributes,
                          std::string_view name) {
  const double value = attributes.get_double(name);
  if (!(value >= 0.0)) {
    throw ValueError(message(op, ": ", name, " must not be negative, received ", value));
  }
  return value;
}

const std::vector<int64_t>& check_ints(std::string_view op, const Attributes& attributes,
                                       std::string_view name, size_t count, int64_t minimum) {
  const std::vector<int64_t>& values = attributes.get_ints(name);
  const bool in_range =
      std::all_of(values.begin(), values.end(), [&](int64_t v) { return v >= minimum; });
  if (values.size() != count || !in_range) {
    throw ValueError(message(op, ": ", name, " must be ", count, " integers of at least ", minimum,
                             ", received ", ints_string(values)));
  }
  return values;
}

}  // namespace kerascnn
