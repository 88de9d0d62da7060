// Element ops can be computed before or behind a transpose. Behind it they can join it, as a region
// reads transposed inputs, but stores its outputs in order. Of a reshape they can join what
// computes its operand, which is of another domain than they are behind it.
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

bool is_large(const Graph& graph, ValueId id, const Node& op) {
  return graph.value(id).spec.shape == graph.value(op.outputs[0]).spec.shape &&
         !uniform_constant(graph, id);
}

// The one large operand of an element op whose other operands are the same for all elements, also
// where the large one has `rank` axes.
ValueId only_operand(const Graph& graph, const Node& node, size_t rank) {
  if (!find_element_op(*node.op)) return kNoValue;
  ValueId found = kNoValue;
  for (ValueId id : node.inputs) {
    if (is_large(graph, id, node)) {
      if (found != kNoValue) return kNoValue;
      found = id;
    } else {
      const Shape& shape = graph.value(id).spec.shape;
      if (num_elements(shape) != 1 || shape.size() > rank) return kNoValue;
    }
  }
  return found;
}

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
          inputs.push_back(is_large(graph_, id, op) ? value : rewriter.map(id));
        }
        value = rewriter.apply(*op.op, inputs, op.attributes, op.scope)[0];
      }
      rewriter.replace(node.outputs[0], value);
    }
    return rewriter.finish();
  }

 private:
  bool is_reading(const Node* node) const {
    if (node == nullptr || node->op != &op_transpose) return false;
    const Shape& operand = graph_.value(node->inputs[0]).spec.shape;
    const RegionLimits limits = options_.region_limits(operand);
    return limits.all_kinds() && is_read_in_stretches(*node, operand);
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
      const ValueId operand = op != nullptr ? only_operand(graph_, *op, rank) : kNoValue;
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

// Element ops of one reshaped value, of which they can be taken before it is reshaped.
class Scaler {
 public:
  Scaler(const RootedGraph& source, const PassOptions& options)
      : graph_(source.graph), options_(options), readers_(source) {}

  // Puts the op, then the reshape, in its place; false where the node stays.
  bool replace(GraphRewriter& rewriter, const Node& node) const {
    const Graph& target = rewriter.target();
    const Shape& shape = graph_.value(node.outputs[0]).spec.shape;
    const ValueId operand = only_operand(graph_, node, shape.size());
    if (operand == kNoValue || !is_only_for(operand, node)) return false;
    const Node* reshape = producer(target, rewriter.map(operand), op_reshape);
    if (reshape == nullptr) return false;
    const ValueId before = reshape->inputs[0];
    const Shape& own = target.value(before).spec.shape;
    if (only_operand(graph_, node, own.size()) == kNoValue || !joins(target, before)) return false;
    std::vector<ValueId> inputs;
    for (ValueId id : node.inputs) inputs.push_back(id == operand ? before : rewriter.map(id));
    const ValueId result = rewriter.apply(*node.op, inputs, node.attributes, node.scope)[0];
    rewriter.replace(node.outputs[0],
                     rewriter.apply(op_reshape, {result}, {{"shape", shape}}, node.scope)[0]);
    return true;
  }

 private:
  // Else the value would be stored beside the result. A wider result would take more memory.
  bool is_only_for(ValueId operand, const Node& node) const {
    const Node* reshape = producer(graph_, operand, op_reshape);
    return readers_.only_reader(operand) &&
           (reshape == nullptr || readers_.only_reader(reshape->inputs[0])) &&
           itemsize(graph_.value(node.outputs[0]).spec.dtype) <=
               itemsize(graph_.value(operand).spec.dtype);
  }

  // Is it computed in what becomes a region?
  bool joins(const Graph& target, ValueId id) const {
    const Node* node = producer(target, id);
    const RegionLimits limits = options_.region_limits(target.value(id).spec.shape);
    if (node != nullptr && node->op == &op_broadcast_to) node = producer(target, node->inputs[0]);
    return node != nullptr && find_element_op(*node->op) && limits.all_kinds();
  }

  const Graph& graph_;
  const PassOptions& options_;
  const Readers readers_;
};

}  // namespace

RootedGraph elements_before_reshapes(const RootedGraph& source, const PassOptions& options) {
  if (!options.region_limits) return source;
  const Scaler scaler(source, options);
  return eliminate_dead_code(replace_nodes(source, [&](GraphRewriter& rewriter, const Node& node) {
    return scaler.replace(rewriter, node);
  }));
}

RootedGraph move_before_elements(const RootedGraph& source, const PassOptions& options) {
  if (!options.region_limits) return source;
  return eliminate_dead_code(Mover(source, options).move());
}

}  // namespace kerascnn
