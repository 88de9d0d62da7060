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

// Is it a weight that is rounded? Element ops round what they read themselves, at no cost; other
// ops need the rounded weight in memory.
bool is_cast_of_weight(const Graph& graph, const Readers& readers, const Node& node) {
  if (node.op != &op_cast) return false;
  const Value& from = graph.value(node.inputs[0]);
  const ValueId result = node.outputs[0];
  if (from.kind != ValueKind::State || from.spec.dtype != DType::Float32 ||
      !is_16_bit(graph.value(result).spec.dtype)) {
    return false;
  }
  return readers.is_root(result) || std::ranges::any_of(readers.nodes(result), [&](int32_t reader) {
           return !find_element_op(*graph.nodes()[reader].op);
         });
}

// Weights that are rounded to one dtype.
struct WeightCasts {
  const Node* first = nullptr;
  std::vector<ValueId> weights, results;
};

}  // namespace

RootedGraph join_casts(const RootedGraph& source, const PassOptions& options) {
  if (!options.runs_side_by_side) return source;
  const Graph& graph = source.graph;
  const Readers readers(source);
  std::map<DType, WeightCasts> casts;
  for (const Node& node : graph.nodes()) {
    if (!is_cast_of_weight(graph, readers, node)) continue;
    WeightCasts& same = casts[graph.value(node.outputs[0]).spec.dtype];
    if (same.first == nullptr) same.first = &node;
    same.weights.push_back(node.inputs[0]);
    same.results.push_back(node.outputs[0]);
  }
  return replace_nodes(source, [&](GraphRewriter& rewriter, const Node& node) {
    const auto found = casts.find(graph.value(node.outputs[0]).spec.dtype);
    if (found == casts.end()) return false;
    const auto& [first, weights, results] = found->second;
    const bool is_one = std::ranges::find(results, node.outputs[0]) != results.end();
    if (!is_one || results.size() == 1) return false;
    if (&node == first) {
      rewriter.replace(
          results, rewriter.apply(op_cast_all, rewriter.map(weights), node.attributes, node.scope));
    }
    return true;
  });
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
