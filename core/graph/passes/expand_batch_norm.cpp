#include <numeric>

#include "core/graph/passes/expansion.h"
#include "core/graph/passes/passes.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

// The two ops as reductions over columns and element ops.
class BatchNormExpansion : Expansion {
 public:
  BatchNormExpansion(GraphRewriter& rewriter, const Node& node, const TensorSpec& x)
      : Expansion(rewriter, node.scope, x.dtype), shape_(x.shape) {}

  // x, gamma, beta -> y, mean, variance, inverse deviation
  std::vector<ValueId> forward(const std::vector<ValueId>& inputs, double epsilon) {
    const ValueId x = wide(inputs[0]);
    const std::vector<ValueId> moments = call_all("column_moments", {x});
    const ValueId mean = moments[0], variance = moments[1];
    const ValueId inverse = call("rsqrt", {call("add", {variance, number(epsilon)})});
    const ValueId scale = call("multiply", {wide(inputs[1]), inverse});
    const ValueId scaled = call("multiply", {call("subtract", {x, mean}), scale});
    const ValueId y = call("add", {scaled, wide(inputs[2])});
    return {narrow(y), narrow(mean), narrow(variance), narrow(inverse)};
  }

  // gy, x, gamma, mean, inverse deviation -> gx, ggamma, gbeta. With z = (x - mean) inverse: gx =
  // gamma inverse (gy - gbeta / n - z ggamma / n). There are two nodes for z, one for the sums and
  // one for what is computed with them, so that z need not be stored.
  std::vector<ValueId> backward(const std::vector<ValueId>& inputs) {
    std::vector<ValueId> values;
    for (ValueId id : inputs) values.push_back(wide(id));
    const ValueId gy = values[0], x = values[1], gamma = values[2];
    const ValueId mean = values[3], inverse = values[4];
    const auto normalized = [&] {
      return call("multiply", {call("subtract", {x, mean}), inverse});
    };
    const ValueId ggamma = sum(call("multiply", {gy, normalized()}));
    const ValueId gbeta = sum(gy);
    const ValueId share =
        number(static_cast<double>(shape_.back()) / static_cast<double>(num_elements(shape_)));
    const ValueId shared_mean = call("multiply", {gbeta, share});
    const ValueId shared_product = call("multiply", {ggamma, share});
    const ValueId along = call("multiply", {normalized(), shared_product});
    const ValueId rest = call("subtract", {call("subtract", {gy, shared_mean}), along});
    const ValueId gx = call("multiply", {rest, call("multiply", {gamma, inverse})});
    return {narrow(gx), narrow(ggamma), narrow(gbeta)};
  }

 private:
  ValueId sum(ValueId id) {
    Shape axes(shape_.size() - 1);
    std::iota(axes.begin(), axes.end(), 0);
    return reduce("reduce_sum", id, axes, false);
  }

  const Shape shape_;  // of x
};

}  // namespace

RootedGraph expand_batch_norm(const RootedGraph& source, const PassOptions& options) {
  if (!options.region_limits) return source;
  return replace_nodes(source, [&](GraphRewriter& rewriter, const Node& node) {
    const bool is_forward = node.op == &op_batch_norm;
    if (!is_forward && node.op != &op_batch_norm_grad) return false;
    const TensorSpec& x = source.graph.value(node.inputs[is_forward ? 0 : 1]).spec;
    if (!options.region_limits(x.shape).columns) return false;
    const std::vector<ValueId> inputs = rewriter.map(node.inputs);
    BatchNormExpansion expansion(rewriter, node, x);
    rewriter.replace(node.outputs,
                     is_forward ? expansion.forward(inputs, node.attributes.get_double("epsilon"))
                                : expansion.backward(inputs));
    return true;
  });
}

}  // namespace kerascnn
