#include "core/eager/gradient_recipe.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/eager/eager.h"
#include "core/graph/graph.h"

namespace kerascnn {
namespace {

bool has_bit(uint64_t mask, size_t index) { return index >= 64 || (mask >> index & 1) != 0; }

}  // namespace

GradientRecipe::GradientRecipe(const EagerPlan& plan, GradientMask mask)
    : allow_tf32_(plan.allow_tf32), device_(plan.device), num_inputs_(plan.inputs.size()) {
  Graph graph;
  Node call;
  call.op = plan.op;
  call.attributes = plan.attributes;
  for (const TensorSpec& spec : plan.inputs) call.inputs.push_back(graph.input("", spec));
  for (const OutputLayout& output : plan.outputs) {
    call.outputs.push_back(graph.input("", output.spec));
  }
  std::vector<ValueId> output_gradients;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const ValueId id = graph.input("", plan.outputs[i].spec);
    output_gradients.push_back(has_bit(mask.outputs, i) ? id : kNoValue);
  }
  results_ = differentiate(graph, call, output_gradients);
  for (size_t i = 0; i < results_.size(); ++i) {
    if (!has_bit(mask.inputs, i)) results_[i] = kNoValue;
  }
  keep_needed_steps(graph, results_);
  find_last_uses();
}

void GradientRecipe::keep_needed_steps(const Graph& graph, const std::vector<int32_t>& results) {
  num_slots_ = graph.values().size();
  std::vector<bool> needed(num_slots_, false);
  for (const ValueId id : results) {
    if (id != kNoValue) needed[id] = true;
  }
  for (size_t index = graph.nodes().size(); index-- > 0;) {
    const Node& node = graph.nodes()[index];
    const bool is_needed = std::any_of(node.outputs.begin(), node.outputs.end(),
                                       [&](ValueId id) { return needed[id]; });
    if (!is_needed) continue;
    for (const ValueId id : node.inputs) needed[id] = true;
    steps_.push_back({node.op, node.attributes, node.inputs, node.outputs, {}});
  }
  std::reverse(steps_.begin(), steps_.end());
  plans_.resize(steps_.size());
  for (size_t id = 0; id < num_slots_; ++id) {
    const Value& value = graph.value(static_cast<ValueId>(id));
    if (value.kind != ValueKind::Constant || !needed[id]) continue;
    constants_.emplace_back(id, graph.constants()[value.source].to(device_));
  }
  reads_.assign(needed.begin(), needed.begin() + static_cast<int64_t>(graph.inputs().size()));
}

void GradientRecipe::find_last_uses() {
  std::vector<bool> seen(num_slots_, false);
  for (const ValueId id : results_) {
    if (id != kNoValue) seen[id] = true;
  }
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    for (const auto* slots : {&step->outputs, &step->inputs}) {
      for (const int32_t slot : *slots) {
        if (!seen[slot]) step->dying.push_back(slot);
        seen[slot] = true;
      }
    }
  }
}

std::vector<Tensor> GradientRecipe::run(std::span<const Tensor> values) const {
  std::vector<Tensor> slots(num_slots_);
  std::copy(values.begin(), values.end(), slots.begin());
  for (const auto& [slot, value] : constants_) slots[slot] = value;
  std::vector<const Tensor*> inputs;
  std::vector<Tensor> outputs;
  for (size_t index = 0; index < steps_.size(); ++index) {
    const Step& step = steps_[index];
    inputs.clear();
    for (const int32_t slot : step.inputs) inputs.push_back(&slots[slot]);
    EagerPlanPtr plan;
    {
      const std::lock_guard lock(plans_mutex_);
      if (plans_[index] == nullptr) {
        plans_[index] = find_plan(*step.op, step.attributes, inputs, allow_tf32_);
      }
      plan = plans_[index];
    }
    outputs.assign(step.outputs.size(), Tensor());
    execute(plan, inputs, outputs);
    for (size_t i = 0; i < outputs.size(); ++i) slots[step.outputs[i]] = std::move(outputs[i]);
    for (const int32_t slot : step.dying) slots[slot] = Tensor();
  }
  std::vector<Tensor> results;
  results.reserve(results_.size());
  for (const int32_t slot : results_) results.push_back(slot < 0 ? Tensor() : slots[slot]);
  return results;
}

}  // namespace kerascnn
