#include <optional>

#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/count_matches.h"

namespace kerascnn {
namespace {

constexpr std::string_view kCount = "count_matches";

class CountFinder {
 public:
  CountFinder(const RootedGraph& source, const PassOptions& options)
      : graph_(source.graph), readers_(source), options_(options) {}

  // The scores and the labels, where the node is the sum of what a classifier has right.
  std::optional<std::vector<ValueId>> find(const Node& sum) const {
    const TensorSpec& total = graph_.value(sum.outputs[0]).spec;
    const bool is_sum = sum.op->name == "reduce_sum" && total == TensorSpec{DType::Float32, {}};
    const Node* cast = is_sum ? read_once(sum.inputs[0], "cast") : nullptr;
    const Node* equal = cast != nullptr ? read_once(cast->inputs[0], "equal") : nullptr;
    if (equal == nullptr) return std::nullopt;
    // Of one-hot labels the place is an argmax too; predictions come second then.
    for (const size_t side : {1, 0}) {
      const Node* argmax = find_argmax(equal->inputs[side]);
      if (argmax == nullptr) continue;
      const std::vector<ValueId> inputs = {argmax->inputs[0], equal->inputs[1 - side]};
      if (is_classifier(*argmax, inputs) && is_worth_it(inputs)) return inputs;
    }
    return std::nullopt;
  }

 private:
  // The `op` that computes a value which has one reader.
  const Node* read_once(ValueId value, std::string_view op) const {
    return readers_.only_reader(value) ? producer(graph_, value, op) : nullptr;
  }

  // Of indices, or of indices cast to the dtype of the labels.
  const Node* find_argmax(ValueId place) const {
    const Node* cast = read_once(place, "cast");
    return read_once(cast != nullptr ? cast->inputs[0] : place, "argmax");
  }

  bool is_classifier(const Node& argmax, const std::vector<ValueId>& inputs) const {
    const TensorSpec& scores = graph_.value(inputs[0]).spec;
    const TensorSpec& labels = graph_.value(inputs[1]).spec;
    if (!is_floating(scores.dtype) || scores.shape.size() != 2) return false;
    if (normalize_axis("argmax", argmax.attributes.get_int("axis"), 2) != 1) return false;
    // Labels of another shape are broadcast.
    return is_match_label(labels.dtype) && labels.shape == Shape{scores.shape[0]};
  }

  bool is_worth_it(const std::vector<ValueId>& inputs) const {
    return is_gain(options_, graph_, kCount, {}, inputs);
  }

  const Graph& graph_;
  const Readers readers_;
  const PassOptions& options_;
};

}  // namespace

RootedGraph fuse_match_counts(const RootedGraph& source, const PassOptions& options) {
  if (!options.fuses) return source;
  GraphRewriter rewriter(source);
  const CountFinder finder(source, options);
  for (const Node& node : source.graph.nodes()) {
    if (const auto inputs = finder.find(node)) {
      const ValueId count = rewriter.apply(kCount, rewriter.map(*inputs), {}, node.scope).front();
      rewriter.replace(node.outputs[0], count);
    } else {
      rewriter.copy(node);
    }
  }
  return rewriter.finish();  // what it stands for is dead now
}

}  // namespace kerascnn
