#include <algorithm>

#include "core/graph/fusion.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/definitions.h"
#include "core/ops/optimizer_updates.h"

namespace kerascnn {
namespace {

class PartialSumFolder {
 public:
  explicit PartialSumFolder(const RootedGraph& source)
      : rewriter_(source),
        graph_(source.graph),
        readers_(source),
        sums_of_(source.graph.values().size(), kNoValue),
        is_dropped_(source.graph.nodes().size(), false),
        stacked_(source.graph.nodes().size()) {
    std::vector<std::vector<ValueId>> gradients(graph_.nodes().size());  // by their producers
    for (const Node& node : graph_.nodes()) {
      const auto update = find_update_groups(*node.op, node.attributes);
      for (size_t i = 0; update && i < update->count; ++i) {
        const ValueId gradient = node.inputs[update->gradient(i)];
        const DType dtype = graph_.value(node.inputs[update->head + i]).spec.dtype;
        // Partial sums are not rounded to fewer bits than the sum's reader has.
        if (graph_.value(gradient).spec.dtype != dtype) continue;
        if (!readers_.only_reader(gradient)) continue;
        if (const int32_t index = producer_index(graph_, origin(gradient)); index >= 0) {
          gradients[index].push_back(gradient);
        }
      }
    }
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].empty()) decide(static_cast<int32_t>(i), gradients[i]);
    }
  }

  RootedGraph run() {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      if (stacked_[i]) {
        emit_stacks(node, *stacked_[i]);
      } else if (const auto update = find_update_groups(*node.op, node.attributes)) {
        emit_update(node, *update);
      } else if (!is_dropped_[i]) {
        rewriter_.copy(node);
      }
    }
    return rewriter_.finish();
  }

 private:
  // The value that is the gradient under another shape, as far as nothing else reads it.
  ValueId origin(ValueId gradient) const {
    const Node* view = producer(graph_, gradient, op_reshape);
    while (view != nullptr && readers_.only_reader(view->inputs[0])) {
      gradient = view->inputs[0];
      view = producer(graph_, gradient, op_reshape);
    }
    return gradient;
  }

  // All that is needed of the node must be gradients for updates.
  void decide(int32_t index, const std::vector<ValueId>& gradients) {
    const Node& node = graph_.nodes()[index];
    const auto is_folded = [&](ValueId output) {
      return std::any_of(gradients.begin(), gradients.end(),
                         [&](ValueId gradient) { return origin(gradient) == output; });
    };
    for (ValueId output : node.outputs) {
      const bool is_needed = readers_.is_root(output) || !readers_.nodes(output).empty();
      if (is_needed && !is_folded(output)) return;
    }
    stacked_[index] = leave_partial_sums(node);
    if (!stacked_[index]) return;
    for (ValueId gradient : gradients) {
      sums_of_[gradient] = origin(gradient);
      for (ValueId view = gradient; view != sums_of_[gradient];) {
        const int32_t reshape = producer_index(graph_, view);
        is_dropped_[reshape] = true;
        view = graph_.nodes()[reshape].inputs[0];
      }
    }
  }

  void emit_stacks(const Node& node, const Attributes& attributes) {
    rewriter_.replace(node.outputs, rewriter_.apply(*node.op, rewriter_.map(node.inputs),
                                                    attributes, node.scope));
  }

  void emit_update(const Node& node, const UpdateGroups& update) {
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId sums = sums_of_[node.inputs[i]];
      const bool is_stack =
          sums != kNoValue && i >= update.gradient(0) && i < update.gradient(update.count);
      inputs.push_back(is_stack ? stack_of(node.inputs[i], sums, node.scope)
                                : rewriter_.map(node.inputs[i]));
    }
    rewriter_.copy_with_inputs(node, inputs);
  }

  // The stack with each copy in the shape of the gradient.
  ValueId stack_of(ValueId gradient, ValueId sums, const Scope& scope) {
    const ValueId stack = rewriter_.map(sums);
    if (sums == gradient) return stack;
    Shape shape = graph_.value(gradient).spec.shape;
    shape.insert(shape.begin(), rewriter_.target().value(stack).spec.shape[0]);
    return rewriter_.apply(op_reshape, {stack}, {{"shape", shape}}, scope)[0];
  }

  GraphRewriter rewriter_;
  const Graph& graph_;
  Readers readers_;
  std::vector<ValueId> sums_of_;  // by gradient that is folded: the output that it is
  std::vector<bool> is_dropped_;  // by node of the source
  // By node of the source: the attributes of the node that leaves its partial sums.
  std::vector<std::optional<Attributes>> stacked_;
};

}  // namespace

RootedGraph fold_partial_sums(const RootedGraph& source) { return PartialSumFolder(source).run(); }

}  // namespace kerascnn
