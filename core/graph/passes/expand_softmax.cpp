#include "core/graph/passes/expansion.h"
#include "core/graph/passes/passes.h"
#include "core/ops/definitions.h"
#include "core/ops/geometry.h"

namespace kerascnn {
namespace {

// Writes softmax, log_softmax and their gradients as reductions over rows and element ops.
class SoftmaxExpansion : Expansion {
 public:
  SoftmaxExpansion(GraphRewriter& rewriter, const Node& node, const TensorSpec& x)
      : Expansion(rewriter, node.scope, x.dtype),
        last_({static_cast<int64_t>(x.shape.size()) - 1}),
        is_log_(node.op == &op_log_softmax || node.op == &op_log_softmax_grad) {}

  ValueId forward(ValueId input) {
    const ValueId x = wide(input);
    const ValueId shifted = call("subtract", {x, row("reduce_max", x)});
    const ValueId powers = call("exp", {shifted});
    const ValueId sum = row("reduce_sum", powers);
    if (is_log_) return narrow(call("subtract", {shifted, call("log", {sum})}));
    // One division for each row: the product's error is nothing beside that of 16 bits.
    return narrow(call("multiply", {powers, call("reciprocal", {sum})}));
  }

  ValueId backward(ValueId of_y, ValueId result) {
    const ValueId gy = wide(of_y), y = wide(result);
    if (is_log_) {
      const ValueId share = call("multiply", {call("exp", {y}), row("reduce_sum", gy)});
      return narrow(call("subtract", {gy, share}));
    }
    const ValueId sum = row("reduce_sum", call("multiply", {gy, y}));
    return narrow(call("multiply", {y, call("subtract", {gy, sum})}));
  }

 private:
  ValueId row(std::string_view op, ValueId id) { return reduce(op, id, last_, true); }

  const Shape last_;  // the axis
  const bool is_log_;
};

}  // namespace

RootedGraph expand_softmax(const RootedGraph& source, const PassOptions& options) {
  if (!options.region_limits) return source;
  return replace_nodes(source, [&](GraphRewriter& rewriter, const Node& node) {
    const bool is_forward = node.op == &op_softmax || node.op == &op_log_softmax;
    const bool is_gradient = node.op == &op_softmax_grad || node.op == &op_log_softmax_grad;
    if (!is_forward && !is_gradient) return false;
    const TensorSpec& x = source.graph.value(node.inputs[0]).spec;
    const auto rank = static_cast<int64_t>(x.shape.size());
    const int64_t axis =
        normalize_axis(std::string(node.op->name), node.attributes.get_int("axis"), rank);
    const RegionLimits limits = options.region_limits(x.shape);
    // A region could not tell a row of one element from the result of its reductions.
    if (itemsize(x.dtype) > 2 || axis != rank - 1 || !limits.all_kinds() ||
        num_elements(x.shape) == 0 || x.shape.back() == 1 || x.shape.back() > limits.max_row) {
      return false;
    }
    SoftmaxExpansion expansion(rewriter, node, x);
    const std::vector<ValueId> inputs = rewriter.map(node.inputs);
    rewriter.replace(node.outputs[0], is_forward ? expansion.forward(inputs[0])
                                                 : expansion.backward(inputs[0], inputs[1]));
    return true;
  });
}

}  // namespace kerascnn
