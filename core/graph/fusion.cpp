#include "core/graph/fusion.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "core/base/error.h"
#include "core/graph/body_program.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

constexpr std::string_view kFused = "fused", kCopies = "copies";

const Body& body_of(const Attributes& attributes) { return *attributes.get_bodies("bodies", 1)[0]; }

std::vector<TensorSpec> infer_fused(const Attributes& attributes, Specs inputs) {
  const Body& body = body_of(attributes);
  check_body_inputs(message(kFused, ": ", attributes.get_string("fusion")), body,
                    {inputs.begin(), inputs.end()});
  std::vector<TensorSpec> outputs;
  for (size_t i = 0; i < body.outputs.size(); ++i) outputs.push_back(body.output_spec(i));
  if (attributes.has(kCopies)) {
    for (TensorSpec& sum : outputs)
      sum.shape.insert(sum.shape.begin(), attributes.get_int(kCopies));
  }
  return outputs;
}

// What its nodes compute; what lies between them never reaches memory.
OpCost fused_cost(const Attributes& attributes, Specs, Specs, OpCost usual) {
  return {body_cost(body_of(attributes)).flop, usual.bytes};
}

}  // namespace

// The nodes of a match, which `bodies` has, by one kernel.
const OpDef op_fused = {
    .name = kFused,
    .infer = infer_fused,
    .not_differentiable = "a pass makes it after differentiation, of ops that have gradients",
    .has_bodies = true,
    .cost = fused_cost,
};

PatternValue PatternValue::call(const OpDef& op, std::vector<PatternValue> others) const {
  others.insert(others.begin(), *this);
  return pattern_->add_call(&op, std::move(others));
}

PatternValue PatternValue::call(NodeCondition any, std::vector<PatternValue> others) const {
  others.insert(others.begin(), *this);
  return pattern_->add_call(nullptr, std::move(others)).where(any);
}

PatternValue PatternValue::result(size_t index) const {
  const int32_t call = pattern_->values_[id_].call;
  std::vector<int32_t>& results = pattern_->call_of(id_).results;
  if (results.size() <= index) results.resize(index + 1, kNoValue);
  if (results[index] == kNoValue) {
    results[index] = static_cast<int32_t>(pattern_->values_.size());
    pattern_->values_.push_back({call, index});
  }
  return {pattern_, results[index]};
}

PatternValue PatternValue::as(std::string name) const {
  pattern_->call_of(id_).name = std::move(name);
  return *this;
}

PatternValue PatternValue::where(NodeCondition condition) const {
  pattern_->call_of(id_).conditions.push_back(condition);
  return *this;
}

PatternValue PatternValue::like(const PatternValue& other) const {
  pattern_->call_of(id_).like = pattern_->values_[other.id_].call;
  return *this;
}

PatternValue PatternValue::again() const {
  pattern_->call_of(id_).again = true;
  return *this;
}

PatternValue PatternValue::read_by_fusions() const {
  pattern_->values_[id_].by_fusions = true;
  return *this;
}

PatternValue Pattern::input(std::string name) {
  if (!taken_over_.empty()) {
    throw ValueError("a pattern's inputs that are taken over come last");
  }
  const auto id = static_cast<int32_t>(values_.size());
  values_.push_back({});
  inputs_.push_back({std::move(name), id});
  return {this, id};
}

void Pattern::hand_over(std::string name, const PatternValue& of, ValueWriter write) {
  outputs_.push_back({std::move(name), static_cast<int32_t>(values_.size())});
  values_.push_back({});
  handed_over_.push_back({of.id_, write});
}

void Pattern::take_over(std::string name, const PatternValue& known) {
  inputs_.push_back({std::move(name), static_cast<int32_t>(values_.size())});
  values_.push_back({});
  taken_over_.push_back(known.id_);
}

void Pattern::output(std::string name, const PatternValue& value) {
  if (num_required_ < outputs_.size()) {
    throw ValueError("a pattern's outputs that may be left out come last");
  }
  outputs_.push_back({std::move(name), value.id_});
  ++num_required_;
}

void Pattern::optional_output(std::string name, const PatternValue& value) {
  if (!handed_over_.empty()) throw ValueError("what a pattern hands over comes last");
  outputs_.push_back({std::move(name), value.id_});
}

std::optional<size_t> Pattern::find_output(std::string_view name) const {
  const auto found = std::ranges::find(outputs_, name, &Named::name);
  if (found == outputs_.end()) return std::nullopt;
  return static_cast<size_t>(found - outputs_.begin());
}

void Pattern::where(MatchCondition condition) { conditions_.push_back(condition); }

bool Pattern::has(std::string_view part) {
  if (num_asked_ == parts_.size()) parts_.emplace_back(part, true);
  return parts_[num_asked_++].second;
}

PatternValue Pattern::add_call(const OpDef* op, std::vector<PatternValue> operands) {
  Call call;
  call.op = op;
  for (const PatternValue& operand : operands) call.operands.push_back(operand.id_);
  const auto id = static_cast<int32_t>(values_.size());
  values_.push_back({static_cast<int32_t>(calls_.size()), 0});
  call.results = {id};
  calls_.push_back(std::move(call));
  return {this, id};
}

Pattern::Call& Pattern::call_of(int32_t value) {
  const int32_t call = values_[value].call;
  if (call < 0) throw ValueError("a pattern's input has no call that could be described");
  return calls_[call];
}

// First with all parts. Then the last part that is in is left out, and those asked for after it
// are in again.
std::vector<Pattern> all_patterns(void (*write)(Pattern&)) {
  std::vector<Pattern> patterns;
  std::vector<std::pair<std::string, bool>> parts;
  while (true) {
    Pattern& pattern = patterns.emplace_back();
    pattern.parts_ = parts;
    write(pattern);
    parts = pattern.parts_;
    while (!parts.empty() && !parts.back().second) parts.pop_back();
    if (parts.empty()) break;
    parts.back().second = false;
  }
  for (Pattern& pattern : patterns) {
    const auto own = [](const Pattern::Call& call) { return !call.again; };
    const auto of_one_op = [&](const Pattern::Call& call) {
      return call.op != nullptr && own(call);
    };
    auto first = std::ranges::find_if(pattern.calls_, of_one_op);
    if (first == pattern.calls_.end()) first = std::ranges::find_if(pattern.calls_, own);
    if (first == pattern.calls_.end()) throw ValueError("a pattern needs a call of its own");
    pattern.first_ = static_cast<size_t>(first - pattern.calls_.begin());
  }
  return patterns;
}

const std::vector<Pattern>& patterns_of(const Fusion& fusion) {
  static std::mutex mutex;
  // By function: a fusion may be gone, and another one have its address.
  static std::map<decltype(fusion.pattern), std::vector<Pattern>> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(fusion.pattern);
  if (found != known.end()) return found->second;
  return known.emplace(fusion.pattern, all_patterns(fusion.pattern)).first->second;
}

namespace {

template <typename Named>
const Named* find_named(const std::vector<Named>& all, std::string_view name) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Named& each) { return each.name == name; });
  return found == all.end() ? nullptr : &*found;
}

[[noreturn]] void throw_unknown(std::string_view name) {
  throw ValueError(message("a fusion asks for \"", name, "\", which its pattern does not have"));
}

}  // namespace

bool Match::has(std::string_view name) const {
  return find_named(pattern_->inputs_, name) != nullptr ||
         find_named(pattern_->calls_, name) != nullptr;
}

const Node& Match::node(std::string_view call) const {
  const Pattern::Call* found = find_named(pattern_->calls_, call);
  if (found == nullptr) throw_unknown(call);
  return nodes_[found - pattern_->calls_.data()];
}

const TensorSpec& Match::spec(std::string_view name) const {
  if (const auto* input = find_named(pattern_->inputs_, name)) return specs_[input->value];
  if (const auto* output = find_named(pattern_->outputs_, name)) return specs_[output->value];
  const Pattern::Call* call = find_named(pattern_->calls_, name);
  if (call == nullptr) throw_unknown(name);
  return specs_[call->results[0]];
}

size_t Match::input(std::string_view name) const {
  const auto* found = find_named(pattern_->inputs_, name);
  if (found == nullptr) throw_unknown(name);
  return static_cast<size_t>(found - pattern_->inputs_.data());
}

size_t Match::output(std::string_view name) const {
  const auto* found = find_named(pattern_->outputs_, name);
  if (found == nullptr) throw_unknown(name);
  return static_cast<size_t>(found - pattern_->outputs_.data());
}

std::optional<double> Match::constant(std::string_view name) const {
  return uniform_constant(*graph_, values_[pattern_->inputs_[input(name)].value]);
}

const Tensor* Match::constant_tensor(std::string_view name) const {
  ValueId value = values_[pattern_->inputs_[input(name)].value];
  while (const Node* node = producer(*graph_, value, op_reshape)) value = node->inputs[0];
  const Value& source = graph_->value(value);
  if (source.kind != ValueKind::Constant) return nullptr;
  return &graph_->constants()[source.source];
}

PlanRequest Match::request() const {
  return {op_fused, all_attributes_, inputs_, outputs_, allow_tf32_, autotune_};
}

std::unique_ptr<Kernel> Match::plan_body() const {
  return plan_body_kernel(*body_, request(), device_);
}

std::vector<ValueId> Replacement::results(const Node& node) const {
  return rewriter_.map(node.outputs);
}

std::vector<ValueId> Replacement::call(const OpDef& op, const std::vector<ValueId>& inputs,
                                       const Attributes& attributes) {
  return rewriter_.apply(op, inputs, attributes, scope_);
}

std::vector<ValueId> Replacement::call(const Node& node, const std::vector<ValueId>& inputs) {
  return rewriter_.apply(*node.op, inputs, node.attributes, node.scope);
}

const std::shared_ptr<Kernel>& fused_kernel(const Attributes& attributes) {
  const std::shared_ptr<Kernel>& kernel = body_of(attributes).kernel;
  if (kernel == nullptr) {
    throw ValueError("fused: only passes make this op, with the kernel that a device planned");
  }
  return kernel;
}

std::optional<Attributes> leave_partial_sums(const Node& node) {
  if (node.op != &op_fused) return std::nullopt;
  const Kernel& kernel = *fused_kernel(node.attributes);
  const int64_t copies = kernel.num_partial_sums();
  if (copies == 0) return std::nullopt;
  auto body = std::make_shared<Body>(body_of(node.attributes));
  body->kernel = kernel.leave_partial_sums();
  Attributes attributes = node.attributes;
  attributes.set("bodies", Bodies{std::move(body)});
  attributes.set(std::string(kCopies), copies);
  return attributes;
}

size_t first_optional_output(const Node& node) {
  if (node.op != &op_fused) return node.op->first_optional_output;
  return static_cast<size_t>(node.attributes.get_int("required_outputs"));
}

}  // namespace kerascnn
