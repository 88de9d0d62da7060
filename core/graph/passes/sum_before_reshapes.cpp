#include <numeric>

#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/definitions.h"
#include "core/ops/geometry.h"

namespace kerascnn {
namespace {

// The value before it was reshaped, where a sum of columns can be taken of it; otherwise kNoValue.
// Its last axis is that of the sum.
ValueId unshaped_operand(const Graph& graph, const Node& node) {
  if (node.op != &op_reduce_sum && node.op != &op_reduce_mean) return kNoValue;
  const Node* reshape = producer(graph, node.inputs[0], op_reshape);
  if (reshape == nullptr) return kNoValue;
  const ValueId operand = reshape->inputs[0];
  const Node* source = producer(graph, operand);
  const Shape& before = graph.value(operand).spec.shape;
  const Shape& after = graph.value(node.inputs[0]).spec.shape;
  if (source == nullptr || !source->op->is_elementwise || before.size() < 2 || after.empty() ||
      num_elements(after) == 0 || before.back() != after.back()) {
    return kNoValue;
  }
  const ReduceGeometry g = reduce_geometry(after, node.attributes.get_ints("axes"));
  return g.is_simple && g.outer == 1 && g.inner == after.back() ? operand : kNoValue;
}

}  // namespace

RootedGraph sum_before_reshapes(const RootedGraph& source, const PassOptions& options) {
  const Graph& graph = source.graph;
  if (!options.region_limits) return source;
  return replace_nodes(source, [&](GraphRewriter& rewriter, const Node& node) {
    const ValueId operand = unshaped_operand(graph, node);
    if (operand == kNoValue || !options.region_limits(graph.value(operand).spec.shape).columns) {
      return false;
    }
    Shape axes(graph.value(operand).spec.shape.size() - 1);
    std::iota(axes.begin(), axes.end(), 0);
    ValueId sum = rewriter.apply(*node.op, {rewriter.map(operand)},
                                 {{"axes", axes}, {"keepdims", false}}, node.scope)[0];
    const Shape& shape = graph.value(node.outputs[0]).spec.shape;
    if (rewriter.target().value(sum).spec.shape != shape) {
      sum = rewriter.apply("reshape", {sum}, {{"shape", shape}}, node.scope)[0];
    }
    rewriter.replace(node.outputs[0], sum);
    return true;
  });
}

}  // namespace kerascnn
