// Element ops can be computed before or behind a transpose. Behind it they can join it, as a region
// reads transposed inputs, but stores its outputs in order.
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/graph/region.h"
#include "core/ops/definitions.h"
#include "core/ops/element_program.h"

namespace kerascnn {
namespace {

// Element ops of one large value each, from the last to the first; nothing else reads their
// results.
struct Chain {
  std::vector<const Node*> ops;
  ValueId head = kNoValue;  // what the first reads
};

class Mover {
 public:
  Mover(const RootedGraph& source, const PassOptions& options)
      : source_(source), graph_(source.graph), options_(options), readers_(source) {}

  RootedGraph move() {
    GraphRewriter rewriter(source_);
    for (const Node& node : graph_.nodes()) {
      const Chain chain = chain_before(node);
      if (chain.ops.empty()) {
        rewriter.copy(node);
        continue;
      }
      ValueId value =
          rewriter.apply(*node.op, {rewriter.map(chain.head)}, node.attributes, node.scope)[0];
      for (size_t i = chain.ops.size(); i-- > 0;) {
        const Node& op = *chain.ops[i];
        std::vector<ValueId> inputs;
        for (ValueId id : op.inputs) {
          inputs.push_back(is_large(id, op) ? value : rewriter.map(id));
        }
        value = rewriter.apply(*op.op, inputs, op.attributes, op.scope)[0];
      }
      rewriter.replace(node.outputs[0], value);
    }
    return rewriter.finish();
  }

 private:
  bool is_large(ValueId id, const Node& op) const {
    return graph_.value(id).spec.shape == graph_.value(op.outputs[0]).spec.shape &&
           !uniform_constant(graph_, id);
  }

  // The one large operand of an element op whose other operands are the same for all elements, also
  // where the large one has `rank` axes.
  ValueId only_operand(const Node& node, size_t rank) const {
    if (!find_element_op(*node.op)) {
      return kNoValue;
    }
    ValueId found = kNoValue;
    for (ValueId id : node.inputs) {
      if (is_large(id, node)) {
        if (found != kNoValue) return kNoValue;
        found = id;
      } else {
        const Shape& shape = graph_.value(id).spec.shape;
        if (num_elements(shape) != 1 || shape.size() > rank) return kNoValue;
      }
    }
    return found;
  }

  bool is_reading(const Node* node) const {
    if (node == nullptr || node->op != &op_transpose) return false;
    const Shape& operand = graph_.value(node->inputs[0]).spec.shape;
    const RegionLimits limits = options_.region_limits(operand);
    return limits.rows && limits.columns && is_read_in_stretches(*node, operand);
  }

  // Is it in a region, which would have to store it for a transpose behind it?
  bool is_computed_in_region(ValueId id) const {
    const Node* node = producer(graph_, id);
    while (node != nullptr && node->op->is_view) node = producer(graph_, node->inputs[0]);
    return node != nullptr &&
           (node->op->is_elementwise || node->op == &op_dropout || node->op == &op_broadcast_to ||
            node->op == &op_reduce_sum || node->op == &op_reduce_mean);
  }

  // What the node is moved before; empty where it stays.
  Chain chain_before(const Node& node) const {
    const bool is_transpose = is_reading(&node);
    if (!is_transpose && node.op != &op_reshape) return {};
    const size_t rank = graph_.value(node.outputs[0]).spec.shape.size();
    Chain chain;
    for (ValueId id = node.inputs[0];;) {
      const Node* op = producer(graph_, id);
      const ValueId operand = op != nullptr ? only_operand(*op, rank) : kNoValue;
      if (operand == kNoValue || !readers_.only_reader(id)) break;
      chain.ops.push_back(op);
      chain.head = id = operand;
    }
    if (chain.ops.empty()) return {};
    const bool moves = is_transpose ? !is_computed_in_region(chain.head)
                                    : is_reading(producer(graph_, chain.head)) &&
                                          readers_.only_reader(chain.head).has_value();
    return moves ? chain : Chain{};
  }

  const RootedGraph& source_;
  const Graph& graph_;
  const PassOptions& options_;
  const Readers readers_;
};

}  // namespace

RootedGraph move_before_elements(const RootedGraph& source, const PassOptions& options) {
  if (!options.region_limits) return source;
  return eliminate_dead_code(Mover(source, options).move());
}

}  // namespace kerascnn
