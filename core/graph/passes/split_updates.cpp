#include <algorithm>

#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/optimizer_updates.h"

namespace kerascnn {
namespace {

// For each value: how many kernels have to run one after another before it is known?
std::vector<int32_t> find_depths(const Graph& graph) {
  std::vector<int32_t> depths(graph.values().size(), 0);
  for (const Node& node : graph.nodes()) {
    int32_t depth = 0;
    for (ValueId input : node.inputs) depth = std::max(depth, depths[input]);
    for (ValueId output : node.outputs) depths[output] = depth + (node.op->is_view ? 0 : 1);
  }
  return depths;
}

// The update of some of the parameters.
void emit(GraphRewriter& rewriter, const Node& node, const UpdateGroups& update,
          const std::vector<size_t>& chosen) {
  Attributes attributes = node.attributes;
  attributes.set("count", static_cast<int64_t>(chosen.size()));
  std::vector<ValueId> inputs(node.inputs.begin(),
                              node.inputs.begin() + static_cast<std::ptrdiff_t>(update.head));
  for (size_t group = update.head; group < node.inputs.size(); group += update.count) {
    for (size_t i : chosen) inputs.push_back(node.inputs[group + i]);
  }
  std::vector<ValueId> outputs;
  for (size_t group = 0; group < node.outputs.size(); group += update.count) {
    for (size_t i : chosen) outputs.push_back(node.outputs[group + i]);
  }
  rewriter.replace(outputs, rewriter.apply(*node.op, rewriter.map(inputs), attributes, node.scope));
}

}  // namespace

RootedGraph split_updates(const RootedGraph& source, const PassOptions& options) {
  if (!options.runs_side_by_side) return source;
  const std::vector<int32_t> depths = find_depths(source.graph);
  const auto depth = [&](const Node& node, const UpdateGroups& update, size_t i) {
    return depths[node.inputs[update.gradient(i)]];
  };
  int32_t deepest = -1;  // of the gradients of all updates
  for (const Node& node : source.graph.nodes()) {
    const auto update = find_update_groups(*node.op, node.attributes);
    for (size_t i = 0; update && i < update->count; ++i) {
      deepest = std::max(deepest, depth(node, *update, i));
    }
  }
  return replace_nodes(source, [&](GraphRewriter& rewriter, const Node& node) {
    const auto update = find_update_groups(*node.op, node.attributes);
    std::vector<size_t> earlier, last;
    for (size_t i = 0; update && i < update->count; ++i) {
      (depth(node, *update, i) == deepest ? last : earlier).push_back(i);
    }
    // Otherwise all parameters belong together.
    if (earlier.empty() || last.empty()) return false;
    emit(rewriter, node, *update, earlier);
    emit(rewriter, node, *update, last);
    return true;
  });
}

}  // namespace kerascnn
