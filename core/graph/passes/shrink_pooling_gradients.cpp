#include <algorithm>

#include "core/graph/passes/activation_nodes.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

class PoolingGradientShrinker {
 public:
  explicit PoolingGradientShrinker(const RootedGraph& source)
      : rewriter_(source), graph_(source.graph), readers_(source) {}

  RootedGraph run() {
    for (const Node& node : graph_.nodes()) {
      if (!swap_activation(node) && !sum_before_pooling(node)) rewriter_.copy(node);
    }
    return rewriter_.finish();
  }

 private:
  // activation_grad(max_pool2d_grad(g, index), y) with (p, index) = max_pool2d(y) becomes
  // max_pool2d_grad(activation_grad(g, p), index): where the gradient is not 0, y is the maximum p.
  bool swap_activation(const Node& node) {
    if (!undone_activation(node)) return false;
    const Node* spread = producer(graph_, node.inputs[0], op_max_pool2d_grad);
    if (spread == nullptr || !readers_.only_reader(node.inputs[0])) return false;
    const Node* pool = producer(graph_, spread->inputs[1], op_max_pool2d);
    if (pool == nullptr || pool->inputs[0] != node.inputs[1]) return false;
    const std::vector<ValueId> narrow = rewriter_.apply(
        *node.op, {rewriter_.map(spread->inputs[0]), rewriter_.map(pool->outputs[0])},
        node.attributes, node.scope);
    const std::vector<ValueId> wide =
        rewriter_.apply(op_max_pool2d_grad, {narrow[0], rewriter_.map(spread->inputs[1])},
                        spread->attributes, spread->scope);
    rewriter_.replace(node.outputs[0], wide[0]);
    return true;
  }

  // reduce_sum(max_pool2d_grad(g, index)) over samples and positions is reduce_sum(g): each element
  // of g is added to exactly one position.
  bool sum_before_pooling(const Node& node) {
    if (node.op != &op_reduce_sum) return false;
    const std::vector<int64_t>& axes = node.attributes.get_ints("axes");
    const auto has = [&](int64_t axis) {
      return std::find(axes.begin(), axes.end(), axis) != axes.end() ||
             std::find(axes.begin(), axes.end(), axis - 4) != axes.end();
    };
    if (!axes.empty() && !(has(1) && has(2))) return false;
    // The search is in the target, where activations have changed places with the pooling already.
    const Node* spread =
        producer(rewriter_.target(), rewriter_.map(node.inputs[0]), op_max_pool2d_grad);
    if (spread == nullptr) return false;
    const ValueId gradient = spread->inputs[0];
    rewriter_.replace(node.outputs[0],
                      rewriter_.apply(op_reduce_sum, {gradient}, node.attributes, node.scope)[0]);
    return true;
  }

  GraphRewriter rewriter_;
  const Graph& graph_;
  Readers readers_;
};

}  // namespace

RootedGraph shrink_pooling_gradients(const RootedGraph& source) {
  return PoolingGradientShrinker(source).run();
}

}  // namespace kerascnn
