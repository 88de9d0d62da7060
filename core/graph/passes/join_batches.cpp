#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

class BatchJoiner {
 public:
  BatchJoiner(const RootedGraph& source, const PassOptions& options)
      : rewriter_(source),
        graph_(source.graph),
        options_(options),
        is_taken_(source.graph.nodes().size(), false) {}

  RootedGraph run() {
    find_first();
    if (first_ >= 0) collect();
    const bool joins = is_worth_it();
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      if (joins && static_cast<int32_t>(i) == first_) {
        emit();
      } else if (!joins || !is_taken_[i]) {
        rewriter_.copy(graph_.nodes()[i]);
      }
    }
    return rewriter_.finish();
  }

 private:
  void find_first() {
    for (size_t i = 0; i < graph_.nodes().size() && first_ < 0; ++i) {
      if (graph_.nodes()[i].op == &op_take_batch) first_ = static_cast<int32_t>(i);
    }
  }

  // All nodes that take the same batch as the first. Their data are known at the first: nothing
  // computes data sets.
  void collect() {
    const Node& first = graph_.nodes()[first_];
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      const bool is_same = node.op == &op_take_batch && node.inputs[1] == first.inputs[1] &&
                           node.inputs[2] == first.inputs[2] && node.attributes == first.attributes;
      if (!is_same || graph_.value(node.inputs[0]).kind == ValueKind::Result) continue;
      is_taken_[i] = true;
      taken_.push_back(&node);
    }
  }

  bool is_worth_it() const {
    if (taken_.size() < 2) return false;
    return is_gain(options_, graph_, op_take_batches, taken_[0]->attributes, input_ids());
  }

  std::vector<ValueId> input_ids() const {
    std::vector<ValueId> ids;
    for (const Node* node : taken_) ids.push_back(node->inputs[0]);
    ids.insert(ids.end(), {taken_[0]->inputs[1], taken_[0]->inputs[2]});
    return ids;
  }

  void emit() {
    const Node& first = *taken_[0];
    const std::vector<ValueId> batches =
        rewriter_.apply(op_take_batches, rewriter_.map(input_ids()), first.attributes, first.scope);
    for (size_t i = 0; i < taken_.size(); ++i) {
      rewriter_.replace(taken_[i]->outputs[0], batches[i]);
    }
  }

  GraphRewriter rewriter_;
  const Graph& graph_;
  const PassOptions& options_;
  int32_t first_ = -1;  // the first node that takes a batch
  std::vector<const Node*> taken_;
  std::vector<bool> is_taken_;  // by node of the source, the first included
};

}  // namespace

RootedGraph join_batches(const RootedGraph& source, const PassOptions& options) {
  return options.fuses ? BatchJoiner(source, options).run() : source;
}

}  // namespace kerascnn
