// One optimizer step over all parameters in one call; optimizer_updates.h says which input is what.
#include "core/ops/optimizer_updates.h"

#include <algorithm>

#include "core/ops/cost.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

constexpr std::string_view kIsTheStep = "it ends a training step; nothing is trained through it";

size_t check_count(std::string_view op, const Attributes& attributes) {
  return static_cast<size_t>(check_positive(op, attributes, "count"));
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

// The outputs, groups of the parameters' specs, after what all updates have has been checked.
template <typename Layout>
std::vector<TensorSpec> infer_update(std::string_view op, Specs inputs, const Layout& layout) {
  check_num_inputs(op, inputs, layout.num_inputs());
  check_spec(op, "the learning rate", inputs[layout.learning_rate()], {DType::Float32, {}});
  check_groups(op, inputs, layout.parameter(0), layout.count);
  std::vector<TensorSpec> outputs;
  for (size_t i = 0; i < layout.num_outputs(); ++i) {
    outputs.push_back(inputs[layout.parameter(i % layout.count)]);
  }
  return outputs;
}

SgdLayout sgd_layout(const Attributes& attributes) {
  const double momentum = check_range("sgd_update", attributes, "momentum", 1);
  return {check_count("sgd_update", attributes), momentum > 0.0};
}

std::vector<TensorSpec> infer_sgd(const Attributes& attributes, Specs inputs) {
  const SgdLayout layout = sgd_layout(attributes);
  attributes.get_bool("nesterov");
  return infer_update("sgd_update", inputs, layout);
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
  check_range("adam_update", attributes, "beta_1", 1);
  check_range("adam_update", attributes, "beta_2", 1);
  attributes.get_double("epsilon");
  check_num_inputs("adam_update", inputs, layout.num_inputs());
  check_spec("adam_update", "the iterations", inputs[layout.iterations()], {DType::Int64, {}});
  return infer_update("adam_update", inputs, layout);
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
