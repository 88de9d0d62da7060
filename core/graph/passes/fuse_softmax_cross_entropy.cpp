#include <algorithm>

#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"

namespace kerascnn {
namespace {

class SoftmaxCrossEntropyFuser {
 public:
  explicit SoftmaxCrossEntropyFuser(const RootedGraph& source)
      : rewriter_(source), graph_(source.graph), readers_(source) {
    // Which node is emitted in the place of which: by the index of the cross entropy.
    for (size_t i = 0; i < graph_.nodes().size(); ++i) find_pair(static_cast<int32_t>(i));
  }

  RootedGraph run() {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      const auto pair = std::find_if(pairs_.begin(), pairs_.end(), [&](const Pair& candidate) {
        return candidate.softmax == static_cast<int32_t>(i) ||
               candidate.loss == static_cast<int32_t>(i);
      });
      if (pair != pairs_.end()) {
        if (pair->emit_at == static_cast<int32_t>(i)) emit(*pair);
      } else if (!fuse_gradient(node)) {
        rewriter_.copy(node);
      }
    }
    return rewriter_.finish();
  }

 private:
  struct Pair {
    int32_t softmax;
    int32_t loss;
    int32_t emit_at;  // one of the two
  };

  bool is_last_axis_softmax(const Node& node) const {
    const auto rank = static_cast<int64_t>(graph_.value(node.inputs[0]).spec.shape.size());
    const int64_t axis = node.attributes.get_int("axis");
    return rank == 2 && (axis == 1 || axis == -1);
  }

  // Where value is computed; -1 for inputs, variables and constants.
  int32_t node_index(ValueId value) const {
    const Value& source = graph_.value(value);
    return source.kind == ValueKind::Result ? source.source : -1;
  }

  void find_pair(int32_t index) {
    const Node& loss = graph_.nodes()[index];
    if (loss.op->name != "sparse_cross_entropy") return;
    const ValueId probabilities = loss.inputs[0];
    const Node* softmax = producer(graph_, probabilities, "softmax");
    if (softmax == nullptr || !is_last_axis_softmax(*softmax)) return;
    const int32_t softmax_index = node_index(probabilities);
    const bool is_taken = std::any_of(pairs_.begin(), pairs_.end(), [&](const Pair& pair) {
      return pair.softmax == softmax_index;
    });
    if (is_taken) return;
    // The fused op needs the labels before it and all readers of the probabilities after it.
    if (node_index(loss.inputs[1]) < softmax_index) {
      pairs_.push_back({softmax_index, index, softmax_index});
    } else if (readers_.nodes(probabilities).front() == index) {
      pairs_.push_back({softmax_index, index, index});
    }
  }

  void emit(const Pair& pair) {
    const Node& softmax = graph_.nodes()[pair.softmax];
    const Node& loss = graph_.nodes()[pair.loss];
    const std::vector<ValueId> fused =
        rewriter_.apply("sparse_softmax_cross_entropy",
                        {rewriter_.map(softmax.inputs[0]), rewriter_.map(loss.inputs[1])},
                        {{"epsilon", loss.attributes.get_double("epsilon")}}, loss.scope);
    rewriter_.replace(loss.outputs[0], fused[0]);
    rewriter_.replace(softmax.outputs[0], fused[1]);
  }

  // softmax_grad(sparse_cross_entropy_grad(gy, p, labels), p), where p is the softmax of a pair or
  // not.
  bool fuse_gradient(const Node& node) {
    if (node.op->name != "softmax_grad" || !is_last_axis_softmax(node)) return false;
    const Node* inner = producer(graph_, node.inputs[0], "sparse_cross_entropy_grad");
    const ValueId probabilities = node.inputs[1];
    if (inner == nullptr || inner->inputs[1] != probabilities) return false;
    if (producer(graph_, probabilities, "softmax") == nullptr) return false;
    const std::vector<ValueId> fused =
        rewriter_.apply("sparse_softmax_cross_entropy_grad", rewriter_.map(inner->inputs),
                        {{"epsilon", inner->attributes.get_double("epsilon")}}, node.scope);
    rewriter_.replace(node.outputs[0], fused[0]);
    return true;
  }

  GraphRewriter rewriter_;
  const Graph& graph_;
  Readers readers_;
  std::vector<Pair> pairs_;
};

}  // namespace

RootedGraph fuse_softmax_cross_entropy(const RootedGraph& source) {
  return SoftmaxCrossEntropyFuser(source).run();
}

}  // namespace kerascnn
