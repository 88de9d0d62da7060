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

class UpdateSplitter {
 public:
  explicit UpdateSplitter(const RootedGraph& source)
      : rewriter_(source), graph_(source.graph), depths_(find_depths(source.graph)) {
    for (const Node& node : graph_.nodes()) {
      const auto update = find_update_groups(*node.op, node.attributes);
      for (size_t i = 0; update && i < update->count; ++i) {
        last_ = std::max(last_, depths_[node.inputs[update->gradient(i)]]);
      }
    }
  }

  RootedGraph run() {
    for (const Node& node : graph_.nodes()) {
      const auto update = find_update_groups(*node.op, node.attributes);
      if (!update || !split(node, *update)) rewriter_.copy(node);
    }
    return rewriter_.finish();
  }

 private:
  // False where all parameters belong together.
  bool split(const Node& node, const UpdateGroups& update) {
    std::vector<size_t> earlier, last;
    for (size_t i = 0; i < update.count; ++i) {
      const bool is_last = depths_[node.inputs[update.gradient(i)]] == last_;
      (is_last ? last : earlier).push_back(i);
    }
    if (earlier.empty() || last.empty()) return false;
    emit(node, update, earlier);
    emit(node, update, last);
    return true;
  }

  // The update of some of the parameters.
  void emit(const Node& node, const UpdateGroups& update, const std::vector<size_t>& chosen) {
    Attributes attributes = node.attributes;
    attributes.set("count", static_cast<int64_t>(chosen.size()));
    std::vector<ValueId> inputs(node.inputs.begin(),
                                node.inputs.begin() + static_cast<std::ptrdiff_t>(update.head));
    for (size_t group = update.head; group < node.inputs.size(); group += update.count) {
      for (size_t i : chosen) inputs.push_back(node.inputs[group + i]);
    }
    const std::vector<ValueId> results =
        rewriter_.apply(*node.op, rewriter_.map(inputs), attributes, node.scope);
    auto result = results.begin();
    for (size_t group = 0; group < node.outputs.size(); group += update.count) {
      for (size_t i : chosen) rewriter_.replace(node.outputs[group + i], *result++);
    }
  }

  GraphRewriter rewriter_;
  const Graph& graph_;
  std::vector<int32_t> depths_;
  int32_t last_ = -1;  // depth of the last gradient of all updates
};

}  // namespace

RootedGraph split_updates(const RootedGraph& source, const PassOptions& options) {
  return options.runs_side_by_side ? UpdateSplitter(source).run() : source;
}

}  // namespace kerascnn
