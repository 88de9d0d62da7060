#include "core/ops/custom_op.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

struct Registry {
  std::mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<CustomOp>> ops;
};

// This is never destroyed: functions in it may belong to a language that has ended by then.
Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void check_inputs(const CustomOp& op, Specs inputs) {
  if (inputs.size() != op.inputs.size()) {
    throw ValueError(message(custom_op_title(op), ": expected ", op.inputs.size(),
                             op.inputs.size() == 1 ? " input (" : " inputs (", joined(op.inputs),
                             "), received ", inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<DType>& dtypes = op.dtypes[i];
    if (std::find(dtypes.begin(), dtypes.end(), inputs[i].dtype) != dtypes.end()) continue;
    std::vector<std::string> names;
    for (DType dtype : dtypes) names.emplace_back(dtype_name(dtype));
    throw TypeError(message(custom_op_title(op), ": ", custom_input_title(op, i),
                            " must be one of ", joined(names), "; received ",
                            spec_string(inputs[i]),
                            "; cast it first, or name its dtype in the definition's dtypes"));
  }
}

std::vector<TensorSpec> infer_elementwise(const CustomOp& op, Specs inputs) {
  Shape shape;
  for (const TensorSpec& input : inputs) {
    if (input.dtype != inputs[0].dtype) {
      throw TypeError(message(custom_op_title(op), ": all inputs must have one dtype, received ",
                              specs_string(inputs), "; cast some of them first"));
    }
    shape = broadcast_shapes(custom_op_title(op), shape, input.shape);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].shape == shape || num_elements(inputs[i].shape) == 1) continue;
    throw ValueError(message(custom_op_title(op), ": ", custom_input_title(op, i), " has shape ",
                             shape_string(inputs[i].shape), " where the result has ",
                             shape_string(shape),
                             "; it must have that shape or one element: broadcast it first"));
  }
  return std::vector<TensorSpec>(op.outputs.size(), {inputs[0].dtype, shape});
}

std::vector<TensorSpec> infer_custom_op(const Attributes& attributes, Specs inputs) {
  const CustomOpPtr op = custom_op_of(attributes);
  check_inputs(*op, inputs);
  if (op->is_elementwise) return infer_elementwise(*op, inputs);
  std::vector<TensorSpec> outputs;
  if (op->num_differentiated > 0) {
    for (const TensorSpec& input : inputs.first(op->num_differentiated)) {
      if (is_floating(input.dtype)) outputs.push_back(input);
    }
  } else {
    outputs = op->infer(inputs);
  }
  if (outputs.size() != op->outputs.size()) {
    throw ValueError(message(custom_op_title(*op), ": the shape rule gave ", outputs.size(),
                             " outputs and the definition names ", op->outputs.size(), " (",
                             joined(op->outputs), ")"));
  }
  return outputs;
}

std::vector<ValueId> custom_op_gradient(GradientContext& context) {
  const CustomOpPtr op = custom_op_of(context.attributes());
  if (op->gradient.empty()) {
    throw ValueError(message(custom_op_title(*op),
                             " is not differentiable: its definition gives no gradient. Define "
                             "it with one, or stop the gradient at its result"));
  }
  std::vector<ValueId> given;
  for (size_t i = 0; i < context.num_inputs(); ++i) given.push_back(context.input(i));
  for (size_t i = 0; i < op->outputs.size(); ++i) given.push_back(context.output(i));
  for (size_t i = 0; i < op->outputs.size(); ++i) {
    if (!is_floating(context.spec(context.output(i)).dtype)) continue;
    given.push_back(context.output_gradient_or_zeros(i));
  }
  const std::vector<ValueId> found = context.apply_all("custom_op", given, {{"op", op->gradient}});
  std::vector<ValueId> gradients;
  size_t next = 0;
  for (size_t i = 0; i < context.num_inputs(); ++i) {
    const bool has_gradient = is_floating(context.spec(context.input(i)).dtype);
    gradients.push_back(has_gradient ? context.sum_to_shape_of(found.at(next++), context.input(i))
                                     : kNoValue);
  }
  return gradients;
}

// Each thread reads its elements before it writes there.
std::vector<InPlace> in_place_elementwise(const Attributes& attributes, size_t num_inputs) {
  const CustomOpPtr op = custom_op_of(attributes);
  std::vector<InPlace> pairs;
  if (!op->is_elementwise) return pairs;
  for (size_t output = 0; output < op->outputs.size(); ++output) {
    for (size_t input = 0; input < num_inputs; ++input) pairs.push_back({output, input});
  }
  return pairs;
}

}  // namespace

std::string define_custom_op(CustomOp op) {
  static int64_t count = 0;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  op.key = message(op.name, '#', ++count);
  const std::string key = op.key;
  all.ops.emplace(key, std::make_shared<CustomOp>(std::move(op)));
  return key;
}

CustomOpPtr find_custom_op(const std::string& key) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.ops.find(key);
  if (found == all.ops.end()) {
    throw ValueError(
        message("custom_op: nothing was defined under \"", key, "\"; define the op first"));
  }
  return found->second;
}

CustomOpPtr custom_op_of(const Attributes& attributes) {
  return find_custom_op(attributes.get_string("op"));
}

std::string custom_op_title(const CustomOp& op) { return "custom_op " + op.name; }

std::string custom_input_title(const CustomOp& op, size_t index) {
  return "input " + op.inputs.at(index);
}

void forget_custom_functions() {
  std::vector<CustomOp> leaving;  // destroyed outside of the lock: it may run a language's code
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const auto& [key, op] : all.ops) {
    leaving.push_back(*op);
    const auto is_gone = [title = custom_op_title(*op)](auto&&...) {
      throw ValueError(title + ": it was called while the process ends");
    };
    if (op->infer) {
      op->infer = [is_gone](Specs) -> std::vector<TensorSpec> {
        is_gone();
        return {};
      };
    }
    for (CustomSource* source : {&op->cuda, &op->cpp}) {
      if (!source->launch) continue;
      source->launch = [is_gone](Specs, Specs) -> CustomLaunch {
        is_gone();
        return {};
      };
    }
    if (op->run_on_cpu) op->run_on_cpu = is_gone;
  }
}

const OpDef op_custom_op = {
    .name = "custom_op",
    .infer = infer_custom_op,
    .gradient = custom_op_gradient,
    .in_place = in_place_elementwise,
    .runs_user_code = true,
};

}  // namespace kerascnn
