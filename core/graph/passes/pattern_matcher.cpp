#include "core/graph/passes/pattern_matcher.h"

#include <algorithm>

#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

bool is_commutative(const OpDef& op) {
  static const OpDef* const all[] = {&op_add,   &op_multiply,  &op_maximum,     &op_minimum,
                                     &op_equal, &op_not_equal, &op_logical_and, &op_logical_or};
  return std::find(std::begin(all), std::end(all), &op) != std::end(all);
}

}  // namespace

bool PatternMatcher::match(int32_t first, const Accept& accept) const {
  Binding empty;
  empty.nodes.assign(pattern_.calls_.size(), -1);
  empty.values.assign(pattern_.values_.size(), kNoValue);
  return bind(empty, pattern_.first_, first, accept);
}

// Takes the next call of which a value is known. A result has one producer; an input may have
// several readers, and each of them is tried.
bool PatternMatcher::extend(const Binding& binding, const Accept& accept) const {
  const auto& calls = pattern_.calls_;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (binding.nodes[i] >= 0) continue;
    for (const int32_t result : calls[i].results) {
      if (result == kNoValue || binding.values[result] == kNoValue) continue;
      const int32_t node = producer_index(graph_, binding.values[result]);
      return node >= 0 && bind(binding, i, node, accept);
    }
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    if (binding.nodes[i] >= 0) continue;
    for (const int32_t operand : calls[i].operands) {
      const ValueId value = binding.values[operand];
      if (value == kNoValue) continue;
      int32_t last = -1;  // a node that reads the value twice is there twice
      for (const int32_t reader : readers_.nodes(value)) {
        if (reader != last && bind(binding, i, reader, accept)) return true;
        last = reader;
      }
      return false;
    }
  }
  const bool is_whole =
      std::find(binding.nodes.begin(), binding.nodes.end(), -1) == binding.nodes.end();
  return is_whole && accept(binding);
}

bool PatternMatcher::bind(const Binding& binding, size_t call, int32_t node,
                          const Accept& accept) const {
  if (!may_be(binding, call, node)) return false;
  const Node& found = graph_.nodes()[node];
  const bool may_swap = found.inputs.size() == 2 && is_commutative(*found.op);
  for (const bool swapped : {false, true}) {
    if (swapped && !may_swap) continue;
    Binding next = binding;
    next.nodes[call] = node;
    if (unify(next, call, found, swapped) && extend(next, accept)) return true;
  }
  return false;
}

bool PatternMatcher::may_be(const Binding& binding, size_t call, int32_t node) const {
  const Pattern::Call& wanted = pattern_.calls_[call];
  const Node& found = graph_.nodes()[node];
  if (wanted.op != nullptr && wanted.op != found.op) return false;
  if (!wanted.again && !is_free_(node)) return false;
  if (wanted.operands.size() != found.inputs.size()) return false;
  if (wanted.results.size() > found.outputs.size()) return false;
  if (std::find(binding.nodes.begin(), binding.nodes.end(), node) != binding.nodes.end()) {
    return false;
  }
  const auto is_like = [&](int32_t one, int32_t other) {
    const Node &a = graph_.nodes()[one], &b = graph_.nodes()[other];
    return a.op == b.op && a.attributes.same_as(b.attributes);
  };
  for (size_t i = 0; i < pattern_.calls_.size(); ++i) {
    if (binding.nodes[i] < 0) continue;
    const bool are_tied = wanted.like == static_cast<int32_t>(i) ||
                          pattern_.calls_[i].like == static_cast<int32_t>(call);
    if (are_tied && !is_like(node, binding.nodes[i])) return false;
  }
  return std::all_of(wanted.conditions.begin(), wanted.conditions.end(),
                     [&](NodeCondition condition) { return condition(graph_, found); });
}

// False where a value would have to be two of the graph.
bool PatternMatcher::unify(Binding& binding, size_t call, const Node& node, bool swapped) const {
  const Pattern::Call& wanted = pattern_.calls_[call];
  const auto is_one = [&](int32_t value, ValueId found) {
    ValueId& known = binding.values[value];
    if (known == kNoValue) known = found;
    return known == found;
  };
  for (size_t i = 0; i < wanted.operands.size(); ++i) {
    if (!is_one(wanted.operands[i], node.inputs[swapped ? 1 - i : i])) return false;
  }
  for (size_t i = 0; i < wanted.results.size(); ++i) {
    if (wanted.results[i] != kNoValue && !is_one(wanted.results[i], node.outputs[i])) return false;
  }
  return true;
}

}  // namespace kerascnn
