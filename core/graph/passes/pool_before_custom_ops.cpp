#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/custom_op.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

// A custom op, the pooling of its result, and, where there are gradients, the nodes that take them
// back through both.
struct Pair {
  int32_t op = -1;
  int32_t pool = -1;
  int32_t spread = -1;    // max_pool2d_grad
  int32_t gradient = -1;  // of the custom op
};

class PoolingMover {
 public:
  explicit PoolingMover(const RootedGraph& source)
      : rewriter_(source),
        graph_(source.graph),
        readers_(source),
        pair_of_(source.graph.nodes().size(), -1) {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      Pair pair;
      if (!find_pair(static_cast<int32_t>(i), pair)) continue;
      for (int32_t node : {pair.op, pair.pool, pair.spread, pair.gradient}) {
        if (node >= 0) pair_of_[node] = static_cast<int32_t>(pairs_.size());
      }
      pairs_.push_back(pair);
    }
    pooled_.resize(pairs_.size(), kNoValue);
  }

  RootedGraph run() {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const auto index = static_cast<int32_t>(i);
      if (pair_of_[index] < 0) {
        rewriter_.copy(graph_.nodes()[i]);
      } else if (pairs_[pair_of_[index]].pool == index) {
        emit_forward(pair_of_[index]);
      } else if (pairs_[pair_of_[index]].gradient == index) {
        emit_gradient(pair_of_[index]);
      }
    }
    return rewriter_.finish();
  }

 private:
  const Node& node(int32_t index) const { return graph_.nodes()[index]; }

  bool find_pair(int32_t index, Pair& pair) const {
    const Node& call = node(index);
    if (call.op != &op_custom_op || call.inputs.size() != 1 || call.outputs.size() != 1) {
      return false;
    }
    const CustomOpPtr op = custom_op_of(call.attributes);
    const ValueId result = call.outputs[0];
    if (!op->is_increasing || readers_.is_root(result)) return false;
    pair.op = index;
    for (int32_t reader : readers_.nodes(result)) {
      const Node& other = node(reader);
      if (other.op == &op_max_pool2d && pair.pool < 0) {
        pair.pool = reader;
      } else if (other.op == &op_custom_op && pair.gradient < 0 &&
                 other.attributes.get_string("op") == op->gradient) {
        pair.gradient = reader;
      } else {
        return false;
      }
    }
    if (pair.pool < 0) return false;
    return pair.gradient < 0 || find_spread(call, *op, pair);
  }

  // gradient(x, y, max_pool2d_grad(g, index)) of y = op(x), pooled with this index.
  bool find_spread(const Node& call, const CustomOp& op, Pair& pair) const {
    const Node& gradient = node(pair.gradient);
    if (!find_custom_op(op.gradient)->is_elementwise || gradient.inputs.size() != 3 ||
        gradient.inputs[0] != call.inputs[0] || gradient.inputs[1] != call.outputs[0]) {
      return false;
    }
    const ValueId spread = gradient.inputs[2];
    const Node* found = producer(graph_, spread, op_max_pool2d_grad);
    if (found == nullptr || found->inputs[1] != node(pair.pool).outputs[1]) return false;
    pair.spread = producer_index(graph_, spread);
    return readers_.only_reader(spread).has_value();
  }

  void emit_forward(int32_t number) {
    const Node& call = node(pairs_[number].op);
    const Node& pool = node(pairs_[number].pool);
    const std::vector<ValueId> narrow = rewriter_.apply(
        op_max_pool2d, {rewriter_.map(call.inputs[0])}, pool.attributes, pool.scope);
    pooled_[number] = narrow[0];
    const ValueId result =
        rewriter_.apply(op_custom_op, {narrow[0]}, call.attributes, call.scope)[0];
    rewriter_.replace(pool.outputs[0], result);
    rewriter_.replace(pool.outputs[1], narrow[1]);
  }

  void emit_gradient(int32_t number) {
    const Pair& pair = pairs_[number];
    const Node& spread = node(pair.spread);
    const Node& gradient = node(pair.gradient);
    const ValueId narrow =
        rewriter_.apply(op_custom_op,
                        {pooled_[number], rewriter_.map(node(pair.pool).outputs[0]),
                         rewriter_.map(spread.inputs[0])},
                        gradient.attributes, gradient.scope)[0];
    const ValueId wide =
        rewriter_.apply(op_max_pool2d_grad, {narrow, rewriter_.map(spread.inputs[1])},
                        spread.attributes, spread.scope)[0];
    rewriter_.replace(gradient.outputs[0], wide);
  }

  GraphRewriter rewriter_;
  const Graph& graph_;
  Readers readers_;
  std::vector<Pair> pairs_;
  std::vector<int32_t> pair_of_;  // by node; -1 where it is in none
  std::vector<ValueId> pooled_;   // by pair: what the pooling gives, in the target
};

}  // namespace

RootedGraph pool_before_custom_ops(const RootedGraph& source) { return PoolingMover(source).run(); }

}  // namespace kerascnn
