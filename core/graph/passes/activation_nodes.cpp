#include "core/graph/passes/activation_nodes.h"

namespace kerascnn {

std::optional<ActivationCall> undone_activation(const Node& node) {
  const auto activation = find_activation_of_gradient(*node.op);
  if (!activation || !gradient_uses_output(*activation)) return std::nullopt;
  return activation_call(*activation, node.attributes);
}

}  // namespace kerascnn
