#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/activation_kind.h"
#include "core/ops/pool2d.h"

namespace kerascnn {
namespace {

class UnpoolingMover {
 public:
  explicit UnpoolingMover(const RootedGraph& source)
      : rewriter_(source), graph_(source.graph), readers_(source) {}

  RootedGraph run() {
    for (const Node& node : graph_.nodes()) {
      if (!move_activation_gradient(node) && !move_sum(node)) rewriter_.copy(node);
    }
    return rewriter_.finish();
  }

 private:
  static bool is_mask(std::string_view op) {
    return op == "relu_grad" || op == "leaky_relu_grad" || op == "clipped_relu_grad";
  }
  static bool is_product(std::string_view op) {
    return op == "elu_grad" || op == "sigmoid_grad" || op == "tanh_grad";
  }

  bool windows_overlap(const Node& unpooling) const {
    const Attributes& attributes = unpooling.attributes;
    return pool2d_geometry("max_pool2d_grad", attributes, attributes.get_ints("input_shape"))
        .windows_overlap();
  }

  // activation_grad(max_pool2d_grad(gy, index), y), where y is what was pooled: y at the position
  // of a maximum is the pooled value itself, and everywhere else the gradient is zero.
  bool move_activation_gradient(const Node& node) {
    if (!is_mask(node.op->name) && !is_product(node.op->name)) return false;
    const Node* unpooling = producer(graph_, node.inputs[0], "max_pool2d_grad");
    if (unpooling == nullptr || !readers_.only_reader(node.inputs[0])) return false;
    if (is_product(node.op->name) && windows_overlap(*unpooling)) return false;  // sums would round
    const Node* pooling = producer(graph_, unpooling->inputs[1], "max_pool2d");
    if (pooling == nullptr || pooling->inputs[0] != node.inputs[1]) return false;
    const std::vector<ValueId> gradient = rewriter_.apply(
        node.op->name, {rewriter_.map(unpooling->inputs[0]), rewriter_.map(pooling->outputs[0])},
        node.attributes, node.scope);
    const std::vector<ValueId> unpooled =
        rewriter_.apply("max_pool2d_grad", {gradient[0], rewriter_.map(unpooling->inputs[1])},
                        unpooling->attributes, unpooling->scope);
    rewriter_.replace(node.outputs[0], unpooled[0]);
    return true;
  }

  // reduce_sum(max_pool2d_grad(gy, index)) over images, rows and columns: each element of gy goes
  // to one place.
  bool move_sum(const Node& node) {
    if (node.op->name != "reduce_sum") return false;
    if (node.attributes.get_ints("axes") != std::vector<int64_t>{0, 1, 2}) return false;
    // In the target, since the gradient may just have been moved there.
    const Node* unpooling =
        producer(rewriter_.target(), rewriter_.map(node.inputs[0]), "max_pool2d_grad");
    if (unpooling == nullptr) return false;
    rewriter_.copy_with_inputs(node, {unpooling->inputs[0]});
    return true;
  }

  GraphRewriter rewriter_;
  const Graph& graph_;
  Readers readers_;
};

}  // namespace

RootedGraph move_gradients_before_unpooling(const RootedGraph& source) {
  return UnpoolingMover(source).run();
}

}  // namespace kerascnn
