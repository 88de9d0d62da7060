// Joins the small kernels that mixed precision costs: each weight is rounded to 16 bits before the
// step, and each gradient is widened after it.
#include <algorithm>
#include <map>

#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/definitions.h"
#include "core/ops/element_program.h"
#include "core/ops/optimizer_updates.h"

namespace kerascnn {
namespace {

bool is_16_bit(DType dtype) { return dtype == DType::Float16 || dtype == DType::BFloat16; }

class CastJoiner {
 public:
  explicit CastJoiner(const RootedGraph& source)
      : rewriter_(source), graph_(source.graph), readers_(source) {
    for (const Node& node : graph_.nodes()) {
      if (is_cast_of_weight(node))
        casts_[graph_.value(node.outputs[0]).spec.dtype].push_back(&node);
    }
  }

  RootedGraph run() {
    for (const Node& node : graph_.nodes()) {
      const auto group = casts_.find(graph_.value(node.outputs[0]).spec.dtype);
      const bool is_joined = group != casts_.end() && group->second.size() > 1 &&
                             std::ranges::find(group->second, &node) != group->second.end();
      if (!is_joined) {
        rewriter_.copy(node);
      } else if (&node == group->second.front()) {
        emit(group->second);
      }
    }
    return rewriter_.finish();
  }

 private:
  // Element ops round what they read themselves, at no cost. Other ops need the rounded weight in
  // memory.
  bool is_cast_of_weight(const Node& node) const {
    if (node.op != &op_cast) return false;
    const Value& from = graph_.value(node.inputs[0]);
    const DType to = graph_.value(node.outputs[0]).spec.dtype;
    if (from.kind != ValueKind::State || from.spec.dtype != DType::Float32 || !is_16_bit(to)) {
      return false;
    }
    const std::vector<int32_t>& readers = readers_.nodes(node.outputs[0]);
    return readers_.is_root(node.outputs[0]) || std::ranges::any_of(readers, [&](int32_t reader) {
             return !find_element_op(*graph_.nodes()[reader].op);
           });
  }

  void emit(const std::vector<const Node*>& casts) {
    std::vector<ValueId> weights;
    for (const Node* node : casts) weights.push_back(rewriter_.map(node->inputs[0]));
    const std::vector<ValueId> results =
        rewriter_.apply("cast_all", weights, casts[0]->attributes, casts[0]->scope);
    for (size_t i = 0; i < casts.size(); ++i) rewriter_.replace(casts[i]->outputs[0], results[i]);
  }

  GraphRewriter rewriter_;
  const Graph& graph_;
  Readers readers_;
  std::map<DType, std::vector<const Node*>> casts_;  // by what the weights are rounded to
};

}  // namespace

RootedGraph join_casts(const RootedGraph& source, const PassOptions& options) {
  return options.runs_side_by_side ? CastJoiner(source).run() : source;
}

RootedGraph update_from_narrow_gradients(const RootedGraph& source) {
  GraphRewriter rewriter(source);
  const Graph& graph = source.graph;
  for (const Node& node : graph.nodes()) {
    const auto update = find_update_groups(*node.op, node.attributes);
    std::vector<ValueId> inputs = rewriter.map(node.inputs);
    for (size_t i = 0; update && i < update->count; ++i) {
      const size_t place = update->gradient(i);
      const Node* cast = producer(graph, node.inputs[place], op_cast);
      if (cast == nullptr || !takes_gradient(graph.value(cast->inputs[0]).spec.dtype,
                                             graph.value(node.inputs[place]).spec.dtype)) {
        continue;
      }
      inputs[place] = rewriter.map(cast->inputs[0]);
    }
    rewriter.copy_with_inputs(node, inputs);
  }
  return eliminate_dead_code(rewriter.finish());
}

}  // namespace kerascnn
