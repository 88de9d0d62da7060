#include <algorithm>

#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"

namespace kerascnn {
namespace {

constexpr std::string_view kJoined = "dense_wgrad";

// The gradient of a kernel, of a (samples, features) input.
bool is_kernel_gradient(const Graph& graph, const Node& node) {
  return node.op->name == "matmul" && node.attributes.get_bool("transpose_a") &&
         !node.attributes.get_bool("transpose_b") &&
         graph.value(node.inputs[0]).spec.shape.size() == 2 &&
         graph.value(node.inputs[1]).spec.shape.size() == 2;
}

// Of a matrix.
bool is_sum_over_rows(const Node& node) {
  if (node.op->name != "reduce_sum") return false;
  const std::vector<int64_t>& axes = node.attributes.get_ints("axes");
  return axes == std::vector<int64_t>{0} || axes == std::vector<int64_t>{-2};
}

class DenseGradientJoiner {
 public:
  DenseGradientJoiner(const RootedGraph& source, const PassOptions& options)
      : rewriter_(source),
        graph_(source.graph),
        readers_(source),
        joined_at_(source.graph.nodes().size(), -1),
        is_dropped_(source.graph.nodes().size(), false) {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      if (is_kernel_gradient(graph_, node) && is_gain(options, graph_, kJoined, {}, node.inputs)) {
        join_bias(static_cast<int32_t>(i));
      }
    }
  }

  RootedGraph run() {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      if (joined_at_[i] >= 0) {
        emit(pairs_[joined_at_[i]]);
      } else if (!is_dropped_[i]) {
        rewriter_.copy(graph_.nodes()[i]);
      }
    }
    return rewriter_.finish();
  }

 private:
  struct Pair {
    const Node* kernel;
    const Node* bias;
  };

  // The pair takes the place of the first of the two, so that no reader comes before it. The input
  // of the layer has to be known there; the gradient is, as both read it.
  void join_bias(int32_t kernel) {
    const Node& product = graph_.nodes()[kernel];
    for (int32_t bias : readers_.nodes(product.inputs[1])) {
      const Node& sum = graph_.nodes()[bias];
      const int32_t place = std::min(kernel, bias);
      if (is_dropped_[bias] || !is_sum_over_rows(sum)) continue;
      if (producer_index(graph_, product.inputs[0]) >= place) continue;
      joined_at_[place] = static_cast<int32_t>(pairs_.size());
      is_dropped_[kernel] = is_dropped_[bias] = true;
      pairs_.push_back({&product, &sum});
      return;
    }
  }

  void emit(const Pair& pair) {
    const std::vector<ValueId> joined =
        rewriter_.apply(kJoined, rewriter_.map(pair.kernel->inputs), {}, pair.kernel->scope);
    rewriter_.replace(pair.kernel->outputs[0], joined[0]);
    const ValueId sum = pair.bias->outputs[0];
    const Shape& shape = graph_.value(sum).spec.shape;
    rewriter_.replace(sum, shape.size() == 1
                               ? joined[1]
                               : rewriter_.apply("reshape", {joined[1]}, {{"shape", shape}},
                                                 pair.bias->scope)[0]);
  }

  GraphRewriter rewriter_;
  const Graph& graph_;
  Readers readers_;
  std::vector<Pair> pairs_;
  std::vector<int32_t> joined_at_;  // by node of the source: which of pairs_, or -1
  std::vector<bool> is_dropped_;    // by node of the source
};

}  // namespace

RootedGraph fuse_dense_gradients(const RootedGraph& source, const PassOptions& options) {
  return options.fuses ? DenseGradientJoiner(source, options).run() : source;
}

}  // namespace kerascnn
