// What is done to a graph between tracing and planning. Every pass keeps the results bit by bit,
// unless its comment says how they may differ, and gives the same graph for the same graph.
#pragma once

#include "core/graph/rooted_graph.h"

namespace kerascnn {

// All passes, in the order that Program::compile uses.
void run_passes(RootedGraph& rooted);

}  // namespace kerascnn
