#include "core/graph/passes/activation_nodes.h"

#include <string_view>

namespace kerascnn {

std::optional<ActivationCall> undone_activation(const Node& node) {
  constexpr std::string_view kSuffix = "_grad";
  const std::string_view op = node.op->name;
  if (!op.ends_with(kSuffix)) return std::nullopt;
  const auto activation = find_activation(op.substr(0, op.size() - kSuffix.size()));
  if (!activation || !gradient_uses_output(*activation)) return std::nullopt;
  return activation_call(*activation, node.attributes);
}

}  // namespace kerascnn
