// The tool of every pass: builds a new graph from an old one, node by node in order.
#pragma once

#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/graph/rooted_graph.h"

namespace kerascnn {

class GraphRewriter {
 public:
  // The target starts with the inputs and variables of the source, in the same order.
  explicit GraphRewriter(const RootedGraph& source);

  const Graph& source() const { return source_.graph; }
  const Graph& target() const { return target_; }

  // The target's value for one of the source, whose node was copied or replaced before. A constant
  // is taken over when it is first asked for.
  ValueId map(ValueId source_value);
  std::vector<ValueId> map(const std::vector<ValueId>& source_values);
  void replace(ValueId source_value, ValueId target_value);
  // The same of each of the values, which are as many.
  void replace(const std::vector<ValueId>& source_values,
               const std::vector<ValueId>& target_values);

  void copy(const Node& node);
  // Copies the node with other inputs, which are values of the target; its outputs keep their
  // specs.
  void copy_with_inputs(const Node& node, const std::vector<ValueId>& target_inputs);
  // Adds a new node to the target; it is checked as in tracing.
  std::vector<ValueId> apply(OpRef op, const std::vector<ValueId>& target_inputs,
                             const Attributes& attributes, const Scope& scope);
  ValueId constant(const Tensor& tensor) { return target_.constant(tensor); }
  ValueId full(const TensorSpec& spec, double value) { return target_.full(spec, value); }

  // Carries outputs and assignments over.
  RootedGraph finish();

 private:
  void join_scopes(ValueId source_value, ValueId target_value);

  const RootedGraph& source_;
  Graph target_;
  std::vector<ValueId> map_;            // by source value; kNoValue before it is known
  std::unordered_set<ValueId> is_new_;  // first outputs of the nodes that apply() made
};

// Copies the nodes of which replace(rewriter, node) says that it has not put anything in their
// place.
template <typename Replace>
RootedGraph replace_nodes(const RootedGraph& source, Replace&& replace) {
  GraphRewriter rewriter(source);
  for (const Node& node : source.graph.nodes()) {
    if (!replace(rewriter, node)) rewriter.copy(node);
  }
  return rewriter.finish();
}

// The nodes that read each value of a graph.
class Readers {
 public:
  explicit Readers(const RootedGraph& rooted);

  // Indices of nodes in order; a node that reads the value twice is in the list twice.
  const std::vector<int32_t>& nodes(ValueId value) const { return nodes_[value]; }
  // Is the value an output or assigned to a variable?
  bool is_root(ValueId value) const { return is_root_[value]; }
  // The one node that reads the value, where nothing else needs it.
  std::optional<int32_t> only_reader(ValueId value) const;

 private:
  std::vector<std::vector<int32_t>> nodes_;
  std::vector<bool> is_root_;
};

// The node that computes the value; null for inputs, variables and constants.
const Node* producer(const Graph& graph, ValueId value);
// The same where it is a call of the op, else null.
const Node* producer(const Graph& graph, ValueId value, const OpDef& op);

// Equal for calls of one op with these inputs and equal attributes, and for no others.
std::string node_key(const Node& node, const std::vector<ValueId>& inputs);

// Was the value cast from a dtype of fewer bytes?
bool is_widened(const Graph& graph, ValueId value);

// The index of that node; -1 for inputs, variables and constants, which are there before the first
// node.
int32_t producer_index(const Graph& graph, ValueId value);

// The one element of a constant, or of a broadcast constant, where a double holds it exactly.
std::optional<double> uniform_constant(const Graph& graph, ValueId value);

}  // namespace kerascnn
