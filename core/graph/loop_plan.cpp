#include "core/graph/loop_plan.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/graph/memory_plan.h"

namespace kerascnn {
namespace {

void* at(void* workspace, int64_t place) { return static_cast<char*>(workspace) + place; }

void add_copy(std::vector<RowCopy>& copies, RowCopy copy) {
  if (copy.to != nullptr && copy.bytes > 0) copies.push_back(copy);
}

}  // namespace

int64_t LoopPlan::take(int64_t bytes) {
  const int64_t place = total_bytes_;
  total_bytes_ += align_buffer(bytes);
  return place;
}

LoopPlan::LoopPlan(const PlanRequest& request, Device device)
    : shape_(loop_shape(request.attributes, request.inputs.size())) {
  std::vector<TensorSpec> inputs = shape_.body_inputs(request.inputs);
  body_ = std::make_unique<BodyProgram>(*shape_.body, inputs, device, request);
  body_place_ = take(body_->workspace_bytes());
  for (const TensorSpec& spec : inputs) row_bytes_.push_back(num_bytes(spec));
  for (size_t i = 0; i < shape_.num_carries + shape_.num_slices; ++i) {
    places_.push_back(take(row_bytes_[i]));
  }
  for (size_t i = 0; i < shape_.num_stacks; ++i) {
    stack_bytes_.push_back(body_->output_bytes(shape_.num_carries + i));
  }
  if (shape_.condition != nullptr) {
    inputs.erase(inputs.begin() + static_cast<int64_t>(shape_.num_carries),
                 inputs.begin() + static_cast<int64_t>(shape_.num_carries + shape_.num_slices));
    condition_ = std::make_unique<BodyProgram>(*shape_.condition, inputs, device, request);
    condition_place_ = take(condition_->workspace_bytes());
  }
  counters_place_ = take(kLoopCounters * static_cast<int64_t>(sizeof(int64_t)));
}

bool LoopPlan::keeps_state() const {
  return body_->keeps_state() || (condition_ != nullptr && condition_->keeps_state());
}

bool LoopPlan::meets_processes() const {
  return body_->meets_processes() || (condition_ != nullptr && condition_->meets_processes());
}

std::string LoopPlan::description() const {
  const std::string steps =
      shape_.length < 0 ? "any number of steps" : message(shape_.length, " steps");
  return message(condition_ != nullptr || shape_.counted ? "at most " : "", steps, " of [",
                 condition_ == nullptr ? "" : condition_->description() + "; ",
                 body_->description(), "]");
}

BoundLoop LoopPlan::bind(const KernelArgs& args) const {
  BoundLoop loop;
  loop.length = shape_.length;
  loop.reverse = shape_.reverse;
  loop.counters = static_cast<int64_t*>(at(args.workspace, counters_place_));
  if (shape_.counted) loop.given_count = static_cast<const int64_t*>(args.inputs[0]);
  std::vector<const void*> body_inputs, condition_inputs;
  for (size_t i = 0; i < row_bytes_.size(); ++i) {
    const void* const given = args.inputs[shape_.first_carry() + i];
    const bool is_carry = i < shape_.num_carries;
    const bool is_other = i >= places_.size();
    const void* const read = is_other ? given : at(args.workspace, places_[i]);
    body_inputs.push_back(read);
    if (is_carry || is_other) condition_inputs.push_back(read);
    if (is_other) continue;
    void* const place = at(args.workspace, places_[i]);
    add_copy(is_carry ? loop.begin : loop.before, {given, place, row_bytes_[i], !is_carry, false});
  }
  void* const body_memory = at(args.workspace, body_place_);
  loop.body = body_->instructions(body_inputs, body_memory);
  const bool may_end_early = shape_.counted || condition_ != nullptr;
  const auto add_rows = [&](void* stack, int64_t bytes) {
    if (stack != nullptr && may_end_early) loop.zeroed.push_back({stack, bytes * shape_.length});
  };
  for (size_t i = 0; i < shape_.num_carries; ++i) {
    void* const place = at(args.workspace, places_[i]);
    add_copy(loop.after, {at(body_memory, body_->output_offset(i)), place, row_bytes_[i]});
    add_copy(loop.end, {place, args.outputs[i], row_bytes_[i]});
    if (!shape_.saves()) continue;
    void* const saved = args.outputs[shape_.first_saved() + i];
    add_copy(loop.before, {place, saved, row_bytes_[i], false, true});
    add_rows(saved, row_bytes_[i]);
  }
  for (size_t i = 0; i < shape_.num_stacks; ++i) {
    void* const stack = args.outputs[shape_.num_carries + i];
    const void* const row = at(body_memory, body_->output_offset(shape_.num_carries + i));
    add_copy(loop.after, {row, stack, stack_bytes_[i], false, true});
    add_rows(stack, stack_bytes_[i]);
  }
  if (condition_ != nullptr) {
    void* const memory = at(args.workspace, condition_place_);
    loop.condition = condition_->instructions(condition_inputs, memory);
    loop.goes_on = static_cast<const bool*>(at(memory, condition_->output_offset(0)));
    loop.count = static_cast<int64_t*>(args.outputs[shape_.count_output()]);
  }
  return loop;
}

SwitchPlan::SwitchPlan(const PlanRequest& request, Device device)
    : num_outputs_(request.outputs.size()) {
  const std::vector<TensorSpec> operands(request.inputs.begin() + 1, request.inputs.end());
  for (const BodyPtr& body : request.attributes.get_bodies("bodies")) {
    branches_.push_back(std::make_unique<BodyProgram>(*body, operands, device, request));
    total_bytes_ = std::max(total_bytes_, branches_.back()->workspace_bytes());
  }
}

bool SwitchPlan::keeps_state() const {
  return std::any_of(branches_.begin(), branches_.end(),
                     [](const auto& branch) { return branch->keeps_state(); });
}

bool SwitchPlan::meets_processes() const {
  return std::any_of(branches_.begin(), branches_.end(),
                     [](const auto& branch) { return branch->meets_processes(); });
}

std::string SwitchPlan::description() const {
  std::string text;
  for (const auto& branch : branches_) {
    text += (text.empty() ? "one of [" : "] [") + branch->description();
  }
  return text + "]";
}

BoundBranch SwitchPlan::bind(size_t branch, const KernelArgs& args) const {
  const BodyProgram& body = *branches_[branch];
  BoundBranch bound;
  bound.body = body.instructions({args.inputs.begin() + 1, args.inputs.end()}, args.workspace);
  for (size_t i = 0; i < num_outputs_; ++i) {
    add_copy(bound.after,
             {at(args.workspace, body.output_offset(i)), args.outputs[i], body.output_bytes(i)});
  }
  return bound;
}

}  // namespace kerascnn
