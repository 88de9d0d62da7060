#include <algorithm>

#include "core/graph/body.h"
#include "core/graph/loop.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

// The entries of `all` that are kept.
template <typename T>
std::vector<T> chosen(const std::vector<T>& all, const std::vector<bool>& kept) {
  std::vector<T> result;
  for (size_t i = 0; i < all.size(); ++i) {
    if (kept[i]) result.push_back(all[i]);
  }
  return result;
}

int64_t count(const std::vector<bool>& kept, size_t first, size_t size) {
  const auto begin = kept.begin() + static_cast<int64_t>(first);
  return std::count(begin, begin + static_cast<int64_t>(size), true);
}

bool is_all(const std::vector<bool>& kept) {
  return std::find(kept.begin(), kept.end(), false) == kept.end();
}

// Marks the inputs that these outputs of a body need.
void mark_needed(const Body& body, const std::vector<ValueId>& outputs, std::vector<bool>& kept) {
  const std::vector<bool> needed = needed_values(*body.graph, outputs);
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    if (body.inputs[i] != kNoValue && needed[body.inputs[i]]) kept[i] = true;
  }
}

// What stays of a node: inputs and outputs of its body, and outputs of the node.
class LoopPruning {
 public:
  LoopPruning(const Node& node, const std::vector<bool>& is_read)
      : node_(node), shape_(loop_shape(node.attributes, node.inputs.size())) {
    const Body& body = *shape_.body;
    outputs_.assign(body.outputs.size(), false);
    inputs_.assign(body.inputs.size(), false);
    for (size_t i = 0; i < body.outputs.size(); ++i) outputs_[i] = is_read[i];
    for (size_t i = 0; shape_.saves() && i < shape_.num_carries; ++i) {
      if (is_read[shape_.first_saved() + i]) outputs_[i] = true;
    }
    for (bool grows = true; grows;) grows = mark();
  }

  bool is_whole() const { return is_all(inputs_) && is_all(outputs_); }

  void rewrite(GraphRewriter& rewriter) const {
    const size_t carries = shape_.num_carries, slices = shape_.num_slices;
    Bodies bodies = {
        std::make_shared<Body>(Body{shape_.body->graph, chosen(shape_.body->inputs, inputs_),
                                    chosen(shape_.body->outputs, outputs_)})};
    if (shape_.condition != nullptr) {
      std::vector<bool> kept = inputs_;
      kept.erase(kept.begin() + static_cast<int64_t>(carries),
                 kept.begin() + static_cast<int64_t>(carries + slices));
      bodies.push_back(std::make_shared<Body>(Body{shape_.condition->graph,
                                                   chosen(shape_.condition->inputs, kept),
                                                   shape_.condition->outputs}));
    }
    std::vector<ValueId> inputs = rewriter.map(node_.inputs);
    std::vector<bool> kept_inputs(shape_.first_carry(), true);
    kept_inputs.insert(kept_inputs.end(), inputs_.begin(), inputs_.end());
    Attributes attributes = node_.attributes;
    attributes.set("bodies", bodies);
    attributes.set("carries", count(inputs_, 0, carries));
    attributes.set("slices", count(inputs_, carries, slices));
    const std::vector<ValueId> results =
        rewriter.apply(op_loop, chosen(inputs, kept_inputs), attributes, node_.scope);

    std::vector<bool> kept = outputs_;  // of the node
    if (shape_.condition != nullptr) kept.push_back(true);
    if (shape_.saves())
      kept.insert(kept.end(), outputs_.begin(), outputs_.begin() + static_cast<int64_t>(carries));
    for (size_t i = 0, next = 0; i < kept.size(); ++i) {
      if (kept[i]) rewriter.replace(node_.outputs[i], results[next++]);
    }
  }

 private:
  // If anything needs a carry, the next step does too, so its next value is needed.
  bool mark() {
    const std::vector<bool> before = outputs_;
    std::fill(inputs_.begin(), inputs_.end(), false);
    mark_needed(*shape_.body, chosen(shape_.body->outputs, outputs_), inputs_);
    if (shape_.condition != nullptr) mark_needed_by_condition();
    for (size_t i = 0; i < shape_.num_carries; ++i) {
      const bool is_needed = inputs_[i] || outputs_[i];
      inputs_[i] = outputs_[i] = is_needed;
    }
    return outputs_ != before;
  }

  void mark_needed_by_condition() {
    std::vector<bool> kept(shape_.condition->inputs.size(), false);
    mark_needed(*shape_.condition, shape_.condition->outputs, kept);
    for (size_t i = 0; i < kept.size(); ++i) {
      const size_t place = i < shape_.num_carries ? i : i + shape_.num_slices;
      if (kept[i]) inputs_[place] = true;
    }
  }

  const Node& node_;
  LoopShape shape_;
  std::vector<bool> inputs_, outputs_;
};

class SwitchPruning {
 public:
  SwitchPruning(const Node& node, const std::vector<bool>& is_read)
      : node_(node), outputs_(is_read), inputs_(node.inputs.size() - 1, false) {
    for (const BodyPtr& body : node.attributes.get_bodies("bodies")) {
      mark_needed(*body, chosen(body->outputs, outputs_), inputs_);
    }
  }

  bool is_whole() const { return is_all(inputs_) && is_all(outputs_); }

  void rewrite(GraphRewriter& rewriter) const {
    Bodies bodies;
    for (const BodyPtr& body : node_.attributes.get_bodies("bodies")) {
      bodies.push_back(std::make_shared<Body>(
          Body{body->graph, chosen(body->inputs, inputs_), chosen(body->outputs, outputs_)}));
    }
    std::vector<bool> kept_inputs = {true};
    kept_inputs.insert(kept_inputs.end(), inputs_.begin(), inputs_.end());
    const std::vector<ValueId> results =
        rewriter.apply(op_switch, chosen(rewriter.map(node_.inputs), kept_inputs),
                       {{"bodies", bodies}}, node_.scope);
    for (size_t i = 0, next = 0; i < outputs_.size(); ++i) {
      if (outputs_[i]) rewriter.replace(node_.outputs[i], results[next++]);
    }
  }

 private:
  const Node& node_;
  std::vector<bool> outputs_, inputs_;
};

}  // namespace

RootedGraph prune_bodies(const RootedGraph& source) {
  const Readers readers(source);
  return replace_nodes(source, [&](GraphRewriter& rewriter, const Node& node) {
    std::vector<bool> is_read;
    for (const ValueId id : node.outputs) {
      is_read.push_back(readers.is_root(id) || !readers.nodes(id).empty());
    }
    const auto prune = [&](const auto& pruning) {
      if (pruning.is_whole()) return false;
      pruning.rewrite(rewriter);
      return true;
    };
    if (node.op == &op_loop) return prune(LoopPruning(node, is_read));
    return node.op == &op_switch && prune(SwitchPruning(node, is_read));
  });
}

}  // namespace kerascnn
