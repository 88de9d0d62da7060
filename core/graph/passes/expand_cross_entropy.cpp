// Cross-entropy of logits that were rounded to 16 bits. Otherwise their casts, and that of their
// gradient, would be kernels of their own.
#include <limits>
#include <numeric>

#include "core/graph/passes/expansion.h"
#include "core/graph/passes/passes.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

const Shape kClasses = {1};  // the axis

// Writes the two ops as reductions over rows and element ops. What belongs to a row has the shape
// (n, 1).
class CrossEntropyExpansion : Expansion {
 public:
  CrossEntropyExpansion(GraphRewriter& rewriter, const Node& node, const TensorSpec& scores)
      : Expansion(rewriter, node.scope, scores.dtype),
        shape_(scores.shape),
        epsilon_(node.attributes.get_double("epsilon")) {}

  // logits, labels -> loss, probabilities; with the loss's gradient also the logits'
  std::vector<ValueId> forward(const std::vector<ValueId>& inputs) {
    const ValueId x = wide(inputs[0]);
    const ValueId shifted = call("subtract", {x, row("reduce_max", x)});
    const ValueId powers = call("exp", {shifted});
    const ValueId sum = row("reduce_sum", powers);
    const ValueId is_label = find_label(inputs[1]);
    const ValueId at_label = of_label(is_label, shifted);
    ValueId loss = kNoValue, clipped = kNoValue;
    if (epsilon_ == 0.0) {
      loss = call("subtract", {call("log", {sum}), at_label});
    } else {
      const ValueId probability = call("divide", {call("exp", {at_label}), sum});
      const Attributes range = {{"min", epsilon_}, {"max", 1.0 - epsilon_}};
      loss = call("negative", {call("log", {call("clip", {probability}, range)})});
      clipped = is_clipped(probability);
    }
    const ValueId probabilities = call("divide", {powers, sum});
    std::vector<ValueId> results = {
        reshape(narrow(or_nan(is_label, loss)), {shape_[0]}),
        narrow(probabilities),
    };
    if (inputs.size() == 3) {
      results.push_back(gradient(inputs[2], probabilities, is_label, clipped));
    }
    return results;
  }

  // the loss's gradient, probabilities, labels -> the logits' gradient
  std::vector<ValueId> backward(const std::vector<ValueId>& inputs) {
    const ValueId probabilities = wide(inputs[1]);
    const ValueId is_label = find_label(inputs[2]);
    const ValueId clipped =
        epsilon_ == 0.0 ? kNoValue : is_clipped(of_label(is_label, probabilities));
    return {gradient(inputs[0], probabilities, is_label, clipped)};
  }

 private:
  ValueId row(std::string_view op, ValueId id) { return reduce(op, id, kClasses, true); }

  // Is this the label's column?
  ValueId find_label(ValueId labels) {
    const ValueId label = reshape(labels, {shape_[0], 1});
    const bool is_wide = spec(labels).dtype == DType::Int64;
    return call("equal", {label, constant(is_wide ? numbers<int64_t>(DType::Int64)
                                                  : numbers<int32_t>(DType::Int32))});
  }

  template <typename T>
  Tensor numbers(DType dtype) const {
    std::vector<T> classes(static_cast<size_t>(shape_[1]));
    std::iota(classes.begin(), classes.end(), T(0));
    return Tensor::from_host(classes.data(), {dtype, {shape_[1]}}, Device{});
  }

  ValueId of_label(ValueId is_label, ValueId values) {
    return row("reduce_sum", call("where", {is_label, values, number(0.0)}));
  }

  ValueId is_clipped(ValueId probability) {
    return call("logical_or", {call("less", {probability, number(epsilon_)}),
                               call("greater", {probability, number(1.0 - epsilon_)})});
  }

  // Gives NaN in rows whose label is no class. A reduction finds this out, so that it belongs to
  // the region of the other nodes.
  ValueId or_nan(ValueId is_label, ValueId values) {
    const ValueId has_label = call("greater", {row("reduce_sum", wide(is_label)), number(0.0)});
    return call("where", {has_label, values, number(std::numeric_limits<double>::quiet_NaN())});
  }

  ValueId gradient(ValueId of_loss, ValueId probabilities, ValueId is_label, ValueId clipped) {
    ValueId factor = reshape(wide(of_loss), {shape_[0], 1});
    if (clipped != kNoValue) factor = call("where", {clipped, number(0.0), factor});
    const ValueId slope = call("subtract", {probabilities, wide(is_label)});
    return narrow(call("multiply", {or_nan(is_label, factor), slope}));
  }

  const Shape shape_;  // of the logits
  const double epsilon_;
};

bool is_narrowed(const Graph& graph, const Readers& readers, ValueId id) {
  const std::optional<int32_t> reader = readers.only_reader(id);
  if (!reader || graph.nodes()[*reader].op != &op_cast) return false;
  const Value& result = graph.value(graph.nodes()[*reader].outputs[0]);
  return itemsize(result.spec.dtype) < itemsize(graph.value(id).spec.dtype);
}

}  // namespace

RootedGraph expand_cross_entropy(const RootedGraph& source, const PassOptions& options) {
  if (!options.region_limits) return source;
  const Graph& graph = source.graph;
  const Readers readers(source);
  return replace_nodes(source, [&](GraphRewriter& rewriter, const Node& node) {
    const bool is_forward =
        node.op == &op_sparse_softmax_cross_entropy && is_widened(graph, node.inputs[0]);
    const bool is_gradient = node.op == &op_sparse_softmax_cross_entropy_grad &&
                             is_narrowed(graph, readers, node.outputs[0]);
    if (!is_forward && !is_gradient) return false;
    const TensorSpec& scores = graph.value(node.inputs[is_forward ? 0 : 1]).spec;
    const RegionLimits limits = options.region_limits(scores.shape);
    // A region could not tell a row of one element from the result of its reductions.
    if (!limits.all_kinds() || scores.shape[1] == 1 || scores.shape[1] > limits.max_row)
      return false;
    CrossEntropyExpansion expansion(rewriter, node, scores);
    const std::vector<ValueId> inputs = rewriter.map(node.inputs);
    rewriter.replace(node.outputs,
                     is_forward ? expansion.forward(inputs) : expansion.backward(inputs));
    return true;
  });
}

}  // namespace kerascnn
