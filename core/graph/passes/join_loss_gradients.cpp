#include <algorithm>
#include <vector>

#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

class LossGradientJoiner {
 public:
  explicit LossGradientJoiner(const RootedGraph& source)
      : rewriter_(source), graph_(source.graph), gradient_of_(graph_.nodes().size(), -1) {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) find_pair(static_cast<int32_t>(i));
  }

  RootedGraph run() {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      if (gradient_of_[i] >= 0) {
        emit(node, graph_.nodes()[gradient_of_[i]]);
      } else if (!is_joined_gradient(static_cast<int32_t>(i))) {
        rewriter_.copy(node);
      }
    }
    return rewriter_.finish();
  }

 private:
  int32_t node_index(ValueId value) const { return producer_index(graph_, value); }

  void find_pair(int32_t index) {
    const Node& gradient = graph_.nodes()[index];
    if (gradient.op != &op_sparse_softmax_cross_entropy_grad) return;
    const Node* loss = producer(graph_, gradient.inputs[1], op_sparse_softmax_cross_entropy);
    if (loss == nullptr || loss->inputs.size() != 2) return;
    const int32_t loss_index = node_index(gradient.inputs[1]);
    const bool same_call =
        loss->outputs[1] == gradient.inputs[1] && loss->inputs[1] == gradient.inputs[2] &&
        loss->attributes.get_double("epsilon") == gradient.attributes.get_double("epsilon");
    // A value that was computed before the loss does not depend on it.
    const bool is_known = node_index(gradient.inputs[0]) < loss_index;
    if (same_call && is_known && gradient_of_[loss_index] < 0) gradient_of_[loss_index] = index;
  }

  bool is_joined_gradient(int32_t index) const {
    return std::find(gradient_of_.begin(), gradient_of_.end(), index) != gradient_of_.end();
  }

  void emit(const Node& loss, const Node& gradient) {
    const std::vector<ValueId> joined =
        rewriter_.apply(op_sparse_softmax_cross_entropy,
                        {rewriter_.map(loss.inputs[0]), rewriter_.map(loss.inputs[1]),
                         rewriter_.map(gradient.inputs[0])},
                        loss.attributes, loss.scope);
    rewriter_.replace(loss.outputs[0], joined[0]);
    rewriter_.replace(loss.outputs[1], joined[1]);
    rewriter_.replace(gradient.outputs[0], joined[2]);
  }

  GraphRewriter rewriter_;
  const Graph& graph_;
  std::vector<int32_t> gradient_of_;  // by the loss's node: the gradient's node, or -1
};

}  // namespace

RootedGraph join_loss_gradients(const RootedGraph& source) {
  return LossGradientJoiner(source).run();
}

}  // namespace kerascnn
