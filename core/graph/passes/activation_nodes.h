// Nodes that take a gradient back through an activation.
#pragma once

#include <optional>

#include "core/graph/graph.h"
#include "core/ops/activation_kind.h"

namespace kerascnn {

// The activation that a node like relu_grad undoes, where the gradient follows from the
// activation's output, which is the node's second input.
std::optional<ActivationCall> undone_activation(const Node& node);

// Is it such a node? A condition of patterns (fusion.h).
inline bool undoes_activation(const Graph&, const Node& node) {
  return undone_activation(node).has_value();
}

}  // namespace kerascnn
