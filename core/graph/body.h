// A graph that a node owns: the step of a loop, a branch of a choice, or the nodes that one kernel
// computes (fusion.h).
//
// It is recorded in a graph of its own, whose parent is the graph with the node. Values of the
// parent that it reads are its inputs (Graph::capture). The graph may grow later, by the nodes of
// gradients; a body is the part of it that its outputs need.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/graph/rooted_graph.h"

namespace kerascnn {

class Kernel;

struct Body {
  std::shared_ptr<Graph> graph;
  // Which of the graph's inputs the node's values stand for; kNoValue for one that is not read.
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  // For a fused node: the kernel that its device planned for all of it.
  std::shared_ptr<Kernel> kernel = nullptr;

  const TensorSpec& output_spec(size_t index) const { return graph->value(outputs[index]).spec; }
};

// Throws ValueError, which begins with `what`, where the body has another number of inputs or takes
// others than these.
void check_body_inputs(std::string_view what, const Body& body,
                       const std::vector<TensorSpec>& given);

// For each value of a graph: do these need it? With `for_gradients` their gradients count too,
// which calls with gradients of their own may hand to values that nothing is computed from.
std::vector<bool> needed_values(const Graph& graph, const std::vector<ValueId>& values,
                                bool for_gradients = false);

// The body as a graph by itself. Its inputs have these specs, those of the node's values, in order.
// Throws ValueError where the body reads an input that is not among its inputs.
RootedGraph body_graph(const Body& body, const std::vector<TensorSpec>& inputs);

}  // namespace kerascnn
