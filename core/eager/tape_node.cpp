#include "core/eager/tape_node.h"

#include <atomic>

#include "core/base/error.h"
#include "core/eager/gradient_recipe.h"
#include "core/eager/recorder.h"

namespace kerascnn {
namespace {

std::atomic<uint64_t> last_sequence{0};

// The nodes that the one being destroyed was the last to hold. The destructor that was called first
// destroys the others one after another, so that a long chain needs no stack.
thread_local std::vector<std::shared_ptr<TapeNode>>* dying_nodes = nullptr;

uint64_t bit(size_t index) { return index < 64 ? uint64_t{1} << index : 0; }

}  // namespace

uint64_t sequence_now() { return last_sequence.load(); }

TapeNode::TapeNode(size_t num_outputs) : sequence_(++last_sequence), num_outputs_(num_outputs) {}

TapeNode::~TapeNode() {
  if (inputs_.empty()) return;
  std::vector<std::shared_ptr<TapeNode>> here;
  const bool is_first = dying_nodes == nullptr;
  if (is_first) dying_nodes = &here;
  for (TapeEdge& input : inputs_) {
    // Others may let go of it at the same time; then one of them is the last.
    if (input.node != nullptr) dying_nodes->push_back(std::move(input.node));
  }
  if (!is_first) return;
  while (!here.empty()) {
    const std::shared_ptr<TapeNode> next = std::move(here.back());
    here.pop_back();
  }
  dying_nodes = nullptr;
}

SavedTensor::SavedTensor(const Tensor& tensor)
    : tensor_(tensor.storage()->is_exposed() ? tensor.copy() : tensor.detached()),
      version_(tensor_.storage()->version()),
      needs_(tensor_.storage(), StorageUse::Kind::Needs) {}

const Tensor& SavedTensor::get(std::string_view op) const {
  if (tensor_.storage()->version() != version_) {
    throw ValueError(message(
        "gradient of ", op, ": a tensor of ", spec_string(tensor_.spec()),
        " that the gradient needs was written to after the call was recorded (by an assignment to "
        "a variable, or a compiled step); take gradients before you assign, or compute with a "
        "copy of the variable (ops.copy)"));
  }
  return tensor_;
}

TapeCall::TapeCall(EagerPlanPtr plan, Inputs inputs, std::span<const Tensor> outputs,
                   uint64_t tracked)
    : TapeNode(outputs.size()), plan_(std::move(plan)) {
  if (is_profiling()) scope_ = std::make_unique<const Scope>(EagerScope::get());
  inputs_.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (is_tracked(*inputs[i])) inputs_[i] = inputs[i]->edge();
  }
  if (plan_->op->gradient != nullptr) save(inputs, outputs, tracked);
}

void TapeCall::save(Inputs inputs, std::span<const Tensor> outputs, uint64_t tracked) {
  // Where an op has one output, it is known what its gradient reads. One with several outputs gets
  // gradients for some of them, which only the backward walk knows.
  const bool saves_all = outputs.size() > 1 || inputs.size() > 64;
  std::shared_ptr<const GradientRecipe> recipe;
  if (!saves_all) {
    try {
      recipe = plan_->recipe({1, tracked});
    } catch (const ValueError&) {
      return;  // whoever asks for the gradient is told
    }
  }
  const auto reads = [&](size_t index) {
    if (saves_all) return true;
    return index < inputs.size() ? recipe->reads_input(index)
                                 : recipe->reads_output(index - inputs.size());
  };
  const size_t count = inputs.size() + outputs.size();
  for (size_t i = 0; i < count; ++i) {
    if (!reads(i)) continue;
    if (saved_.empty()) saved_.resize(count);
    saved_[i] = SavedTensor(i < inputs.size() ? *inputs[i] : outputs[i - inputs.size()]);
  }
}

std::vector<Tensor> TapeCall::gradients(std::span<const Tensor> output_gradients, uint64_t wanted) {
  if (forgotten_) {
    throw ValueError(message("gradient of ", plan_->op->name,
                             ": what it needs was released after a gradient through it had been "
                             "taken; use GradientTape(persistent=True) to take several"));
  }
  GradientMask mask{0, wanted};
  for (size_t i = 0; i < output_gradients.size(); ++i) {
    if (output_gradients[i].defined()) mask.outputs |= bit(i);
  }
  const std::shared_ptr<const GradientRecipe> recipe = plan_->recipe(mask);
  const size_t num_inputs = plan_->inputs.size();
  std::vector<Tensor> values(num_inputs + plan_->outputs.size());
  for (size_t i = 0; i < values.size() && !saved_.empty(); ++i) {
    const bool is_input = i < num_inputs;
    if (!(is_input ? recipe->reads_input(i) : recipe->reads_output(i - num_inputs))) continue;
    values[i] = saved_[i].get(plan_->op->name);
    if (!is_recording()) continue;
    values[i].set_edge(is_input
                           ? inputs_[i]
                           : TapeEdge{shared_from_this(), static_cast<uint32_t>(i - num_inputs)});
  }
  values.insert(values.end(), output_gradients.begin(), output_gradients.end());
  return recipe->run(values);
}

void TapeCall::forget_values() {
  saved_.clear();
  saved_.shrink_to_fit();
  forgotten_ = true;
}

TapeFunction::TapeFunction(std::string name, std::vector<TapeEdge> inputs,
                           std::vector<TensorSpec> input_specs, size_t num_outputs,
                           GradientOfCall gradient)
    : TapeNode(num_outputs),
      name_(std::move(name)),
      input_specs_(std::move(input_specs)),
      gradient_(std::move(gradient)) {
  inputs_ = std::move(inputs);
}

std::vector<Tensor> TapeFunction::gradients(std::span<const Tensor> output_gradients, uint64_t) {
  std::vector<Tensor> gradients = gradient_(output_gradients);
  if (gradients.size() != input_specs_.size()) {
    throw ValueError(message("the gradient of ", name_, " gave ", gradients.size(),
                             " gradients for ", input_specs_.size(),
                             " inputs; it must give one for each, None where there is none"));
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined() || gradients[i].spec() == input_specs_[i]) continue;
    throw ValueError(message("the gradient of ", name_, " gave ", spec_string(gradients[i].spec()),
                             " for an input of ", spec_string(input_specs_[i]),
                             "; a gradient has its input's dtype and shape"));
  }
  return gradients;
}

}  // namespace kerascnn
