// One optimizer step over all parameters in one call; optimizer_updates.h says which input is what.
#include "core/ops/optimizer_updates.h"

#include <algorithm>

#include "core/ops/cost.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

constexpr std::string_view kIsTheStep = "it ends a training step; nothing is trained through it";

size_t check_count(std::string_view op, const Attributes& attributes) {
  const int64_t count = attributes.get_int("count");
  if (count < 1) throw ValueError(message(op, ": count must be positive, received ", count));
  return static_cast<size_t>(count);
}

void check_fraction(std::string_view op, std::string_view name, const Attributes& attributes) {
  const double value = attributes.get_double(name);
  if (!(value >= 0.0 && value < 1.0)) {
    throw ValueError(message(op, ": ", name, " must be in [0, 1), received ", value));
  }
}

void check_learning_rate(std::string_view op, const TensorSpec& spec) {
  if (spec != TensorSpec{DType::Float32, {}}) {
    throw ValueError(
        message(op, ": the learning rate must be float32 (), received ", spec_string(spec)));
  }
}

// The inputs from `first` on are groups of `count` tensors: parameters, gradients, slots. Only
// gradients may be stacks or narrower.
void check_groups(std::string_view op, Specs inputs, size_t first, size_t count) {
  check_floating(op, "parameter 0", inputs[first]);
  std::vector<TensorSpec> own(inputs.begin() + static_cast<std::ptrdiff_t>(first), inputs.end());
  for (size_t i = count; i < 2 * count; ++i) {
    const bool is_whole = own[i].shape == own[i - count].shape;
    const DType dtype = own[i - count].dtype;
    if (is_whole && takes_gradient(own[i].dtype, dtype)) own[i].dtype = dtype;
  }
  check_same_dtype(op, own);
  for (size_t i = first + count; i < inputs.size(); ++i) {
    const size_t parameter = (i - first) % count;
    const Shape& shape = inputs[first + parameter].shape;
    const bool is_gradient = i < first + 2 * count;
    const bool fits =
        is_gradient ? gradient_copies(inputs[i].shape, shape) > 0 : inputs[i].shape == shape;
    if (!fits) {
      throw ValueError(message(op, ": input ", i, " has shape ", shape_string(inputs[i].shape),
                               ", but parameter ", parameter, ", which it belongs to, has ",
                               shape_string(shape)));
    }
  }
}

SgdLayout sgd_layout(const Attributes& attributes) {
  check_fraction("sgd_update", "momentum", attributes);
  return {check_count("sgd_update", attributes), attributes.get_double("momentum") > 0.0};
}

std::vector<TensorSpec> infer_sgd(const Attributes& attributes, Specs inputs) {
  const SgdLayout layout = sgd_layout(attributes);
  attributes.get_bool("nesterov");
  check_num_inputs("sgd_update", inputs, layout.num_inputs());
  check_learning_rate("sgd_update", inputs[layout.learning_rate()]);
  check_groups("sgd_update", inputs, layout.parameter(0), layout.count);
  std::vector<TensorSpec> outputs;
  for (size_t i = 0; i < layout.num_outputs(); ++i) {
    outputs.push_back(inputs[layout.parameter(i % layout.count)]);
  }
  return outputs;
}

std::vector<InPlace> sgd_in_place(const Attributes& attributes, size_t) {
  const SgdLayout layout = sgd_layout(attributes);
  std::vector<InPlace> pairs;
  for (size_t i = 0; i < layout.count; ++i) {
    pairs.push_back({layout.new_parameter(i), layout.parameter(i)});
    if (layout.has_momentum) pairs.push_back({layout.new_momentum(i), layout.momentum(i)});
  }
  return pairs;
}

std::vector<TensorSpec> infer_adam(const Attributes& attributes, Specs inputs) {
  const AdamLayout layout{check_count("adam_update", attributes)};
  check_fraction("adam_update", "beta_1", attributes);
  check_fraction("adam_update", "beta_2", attributes);
  attributes.get_double("epsilon");
  check_num_inputs("adam_update", inputs, layout.num_inputs());
  check_learning_rate("adam_update", inputs[layout.learning_rate()]);
  if (inputs[layout.iterations()] != TensorSpec{DType::Int64, {}}) {
    throw ValueError(message("adam_update: the iterations must be int64 (), received ",
                             spec_string(inputs[layout.iterations()])));
  }
  check_groups("adam_update", inputs, layout.parameter(0), layout.count);
  std::vector<TensorSpec> outputs;
  for (size_t i = 0; i < layout.num_outputs(); ++i) {
    outputs.push_back(inputs[layout.parameter(i % layout.count)]);
  }
  return outputs;
}

std::vector<InPlace> adam_in_place(const Attributes& attributes, size_t) {
  const AdamLayout layout{check_count("adam_update", attributes)};
  std::vector<InPlace> pairs;
  for (size_t i = 0; i < layout.count; ++i) {
    pairs.push_back({layout.new_parameter(i), layout.parameter(i)});
    pairs.push_back({layout.new_first_moment(i), layout.first_moment(i)});
    pairs.push_back({layout.new_second_moment(i), layout.second_moment(i)});
  }
  return pairs;
}

// The cost of updating the parameters, which come after a head of so many inputs.
OpCost update_cost(const Attributes& attributes, Specs inputs, size_t head, int64_t operations,
                   OpCost usual) {
  int64_t elements = 0;
  for (const TensorSpec& spec : inputs.subspan(head, attributes.get_int("count"))) {
    elements += num_elements(spec.shape);
  }
  return {operations * elements, usual.bytes};
}

OpCost sgd_cost(const Attributes& attributes, Specs inputs, Specs, OpCost usual) {
  const bool has_momentum = attributes.get_double("momentum") > 0;
  return update_cost(attributes, inputs, 1, has_momentum ? 4 : 2, usual);
}

OpCost adam_cost(const Attributes& attributes, Specs inputs, Specs, OpCost usual) {
  return update_cost(attributes, inputs, 2, 12, usual);
}

}  // namespace

int64_t gradient_copies(const Shape& gradient, const Shape& parameter) {
  if (gradient == parameter) return 1;
  const bool is_stack = gradient.size() == parameter.size() + 1 &&
                        std::equal(parameter.begin(), parameter.end(), gradient.begin() + 1);
  return is_stack ? gradient[0] : 0;
}

bool takes_gradient(DType gradient, DType parameter) {
  return gradient == parameter || (parameter == DType::Float32 &&
                                   (gradient == DType::Float16 || gradient == DType::BFloat16));
}

std::optional<UpdateGroups> find_update_groups(const OpDef& op, const Attributes& attributes) {
  if (&op != &op_sgd_update && &op != &op_adam_update) return std::nullopt;
  const size_t count = check_count(op.name, attributes);
  const size_t first =
      &op == &op_sgd_update ? SgdLayout{count, false}.parameter(0) : AdamLayout{count}.parameter(0);
  return UpdateGroups{first, count};
}

const OpDef op_sgd_update = {
    .name = "sgd_update",
    .infer = infer_sgd,
    .not_differentiable = kIsTheStep,
    .in_place = sgd_in_place,
    .cost = sgd_cost,
};

const OpDef op_adam_update = {
    .name = "adam_update",
    .infer = infer_adam,
    .not_differentiable = kIsTheStep,
    .in_place = adam_in_place,
    .cost = adam_cost,
};

}  // namespace kerascnn
