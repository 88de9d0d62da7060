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

// The values that a node sends to other processes of which each was widened from these 16 bits for
// it alone. One is not worth joining.
std::vector<ValueId> widened_for_message(const Graph& graph, const Readers& readers,
                                         const Node& node, DType narrow) {
  std::vector<ValueId> found;
  if (!node.op->meets_processes) return found;
  for (ValueId id : node.inputs) {
    const Node* cast = producer(graph, id, op_cast);
    if (cast != nullptr && graph.value(cast->inputs[0]).spec.dtype == narrow &&
        graph.value(id).spec.dtype == DType::Float32 && readers.only_reader(id)) {
      found.push_back(id);
    }
  }
  if (found.size() == 1) found.clear();
  return found;
}

RootedGraph join_casts_of_messages(const RootedGraph& source, DType narrow) {
  const Graph& graph = source.graph;
  const Readers readers(source);
  std::vector<bool> is_joined(graph.values().size(), false);
  for (const Node& node : graph.nodes()) {
    for (ValueId id : widened_for_message(graph, readers, node, narrow)) is_joined[id] = true;
  }
  return replace_nodes(source, [&](GraphRewriter& rewriter, const Node& node) {
    if (node.op == &op_cast && is_joined[node.outputs[0]]) return true;
    const std::vector<ValueId> widened = widened_for_message(graph, readers, node, narrow);
    if (!widened.empty()) {
      std::vector<ValueId> from;
      for (ValueId id : widened) from.push_back(rewriter.map(producer(graph, id)->inputs[0]));
      rewriter.replace(
          widened,
          rewriter.apply(op_cast_all, from, producer(graph, widened[0])->attributes, node.scope));
    }
    return false;
  });
}

// Weights that are rounded to one dtype.
struct WeightCasts {
  const Node* first = nullptr;
  std::vector<ValueId> weights, results;
};

}  // namespace

RootedGraph join_casts(const RootedGraph& given, const PassOptions& options) {
  if (!options.runs_side_by_side) return given;
  const RootedGraph source =
      join_casts_of_messages(join_casts_of_messages(given, DType::BFloat16), DType::Float16);
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
