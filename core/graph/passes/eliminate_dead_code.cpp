#include "core/graph/passes/needed_calls.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"

namespace kerascnn {

RootedGraph eliminate_dead_code(const RootedGraph& source) {
  const Graph& graph = source.graph;
  std::vector<bool> is_live(graph.values().size(), false);
  for (ValueId id : source.outputs) is_live[id] = true;
  for (const Assignment& assignment : graph.assignments()) is_live[assignment.value] = true;
  std::vector<bool> runs(graph.nodes().size(), false);
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    runs[i] = is_needed_by_others(node);
    for (ValueId id : node.outputs) runs[i] = runs[i] || is_live[id];
    if (!runs[i]) continue;
    for (ValueId id : node.inputs) is_live[id] = true;
  }

  GraphRewriter rewriter(source);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (runs[i]) rewriter.copy(graph.nodes()[i]);
  }
  return rewriter.finish();
}

}  // namespace kerascnn
