#include "core/graph/node_conditions.h"

#include <algorithm>

namespace kerascnn {

std::optional<ActivationCall> undone_activation(const Node& node) {
  const auto activation = find_activation_of_gradient(*node.op);
  if (!activation || !gradient_uses_output(*activation)) return std::nullopt;
  return activation_call(*activation, node.attributes);
}

bool undoes_activation(const Graph&, const Node& node) {
  return undone_activation(node).has_value();
}

bool is_activation(const Graph&, const Node& node) { return find_activation(*node.op).has_value(); }

bool is_along_rows(const Graph& graph, const Node& node) {
  const int64_t axis = node.attributes.get_int("axis");
  return graph.value(node.inputs[0]).spec.shape.size() == 2 && (axis == 1 || axis == -1);
}

bool reduces_columns(const Graph& graph, const Node& node) {
  std::vector<int64_t> axes = node.attributes.get_ints("axes");
  const auto rank = static_cast<int64_t>(graph.value(node.inputs[0]).spec.shape.size());
  for (int64_t& axis : axes) axis = axis < 0 ? axis + rank : axis;
  std::sort(axes.begin(), axes.end());
  // An empty list stands for all axes. The entries differ, so these are 0 to rank - 2.
  return !axes.empty() && static_cast<int64_t>(axes.size()) == rank - 1 && axes.back() == rank - 2;
}

bool is_linear(const Graph&, const Node& node) {
  return node.attributes.get_string("activation") == "linear";
}

}  // namespace kerascnn
