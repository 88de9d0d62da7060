// Looks for a fusion's pattern in a graph.
#pragma once

#include <functional>
#include <vector>

#include "core/graph/fusion.h"
#include "core/graph/passes/rewriter.h"

namespace kerascnn {

// What parts of a pattern stand for in a graph.
struct Binding {
  std::vector<int32_t> nodes;   // by call of the pattern; -1 before it is known
  std::vector<ValueId> values;  // by value of the pattern; kNoValue before it is known
};

class PatternMatcher {
 public:
  // The binding fits in all but who else reads its values.
  using Accept = std::function<bool(const Binding&)>;

  // Only those that `is_free` says of may be calls of the pattern that are not computed again.
  PatternMatcher(const Graph& graph, const Readers& readers, const Pattern& pattern,
                 std::function<bool(int32_t)> is_free)
      : graph_(graph), readers_(readers), pattern_(pattern), is_free_(std::move(is_free)) {}

  // Goes through all ways in which the call that searches begin with may be this node, until one
  // is accepted.
  bool match(int32_t first, const Accept& accept) const;

 private:
  bool extend(const Binding& binding, const Accept& accept) const;
  bool bind(const Binding& binding, size_t call, int32_t node, const Accept& accept) const;
  bool may_be(const Binding& binding, size_t call, int32_t node) const;
  bool unify(Binding& binding, size_t call, const Node& node, bool swapped) const;

  const Graph& graph_;
  const Readers& readers_;
  const Pattern& pattern_;
  std::function<bool(int32_t)> is_free_;
};

}  // namespace kerascnn
