// Conditions that patterns of fusions have in common (core/graph/fusion.h).
#pragma once

#include <optional>

#include "core/graph/graph.h"
#include "core/ops/activation_kind.h"

namespace kerascnn {

// The activation that a node like relu_grad undoes, where the gradient follows from the
// activation's output, which is the node's second input.
std::optional<ActivationCall> undone_activation(const Node& node);

// Is it such a node?
bool undoes_activation(const Graph& graph, const Node& node);

// Is it an activation by itself, such as relu?
bool is_activation(const Graph& graph, const Node& node);

// A product of two matrices, of which these are transposed.
template <bool kTransposeA, bool kTransposeB>
bool is_product(const Graph& graph, const Node& node) {
  return graph.value(node.inputs[0]).spec.shape.size() == 2 &&
         graph.value(node.inputs[1]).spec.shape.size() == 2 &&
         node.attributes.get_bool("transpose_a") == kTransposeA &&
         node.attributes.get_bool("transpose_b") == kTransposeB;
}

// Does it go along the rows of a matrix, as its attribute "axis" says?
bool is_along_rows(const Graph& graph, const Node& node);

// Does it reduce all axes but the last, as its attribute "axes" says?
bool reduces_columns(const Graph& graph, const Node& node);

// Does dense or conv2d end with its sum, without an activation?
bool is_linear(const Graph& graph, const Node& node);

}  // namespace kerascnn
