// Calls that stay in a graph although nothing in it reads their results.
#pragma once

#include "core/graph/graph.h"
#include "core/ops/definitions.h"

namespace kerascnn {

// Other processes wait for this one there: one of several that meet may read no result.
inline bool is_needed_by_others(const Node& node) {
  return node.op == &op_reduce_to_owners || node.op == &op_broadcast_from_owners;
}

}  // namespace kerascnn
