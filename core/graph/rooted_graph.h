// A graph together with the values that are wanted of it: the form that passes work on.
#pragma once

#include <vector>

#include "core/graph/graph.h"

namespace kerascnn {

// The values that are wanted. The graph's assignments are to be carried out as well.
struct RootedGraph {
  Graph graph;
  std::vector<ValueId> outputs;
};

}  // namespace kerascnn
