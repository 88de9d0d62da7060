#include "core/eager/eager.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

// Up to this size, the memory for a copy costs less than a kernel launch in each step.
constexpr int64_t kMaxMaterializedBytes = 1 << 18;

}  // namespace

RootedGraph materialize_constants(const RootedGraph& source) {
  const Graph& graph = source.graph;
  return replace_nodes(source, [&](GraphRewriter& rewriter, const Node& node) {
    if (node.op != &op_broadcast_to) return false;
    const Value& input = graph.value(node.inputs[0]);
    if (input.kind != ValueKind::Constant ||
        num_bytes(graph.value(node.outputs[0]).spec) > kMaxMaterializedBytes) {
      return false;
    }
    const Tensor element = graph.constants()[input.source].to(Device{});
    const Tensor* const inputs[] = {&element};
    const Tensor full = apply_one(op_broadcast_to, inputs, node.attributes);
    rewriter.replace(node.outputs[0], rewriter.constant(full));
    return true;
  });
}

}  // namespace kerascnn
