// Reverse-mode differentiation: one walk over the nodes from the loss back, so that depth costs no
// stack. Gradients of a value that several nodes read are added in the order of the walk, which is
// fixed.
#include <algorithm>

#include "core/base/error.h"
#include "core/graph/error_context.h"
#include "core/graph/graph.h"

namespace kerascnn {
namespace {

// Which of the first `count` values a small change of `wrt` can change, and by a small amount:
// dependence ends at integers, bools and leaves.
std::vector<bool> find_dependent(const Graph& graph, const std::vector<ValueId>& wrt,
                                 const std::vector<bool>& is_leaf, size_t num_nodes) {
  std::vector<bool> dependent(graph.values().size(), false);
  for (ValueId id : wrt) dependent[id] = is_floating(graph.value(id).spec.dtype);
  for (size_t i = 0; i < num_nodes; ++i) {
    const Node& node = graph.nodes()[i];
    const bool any = std::any_of(node.inputs.begin(), node.inputs.end(),
                                 [&](ValueId id) { return dependent[id]; });
    if (!any) continue;
    for (ValueId id : node.outputs) {
      if (is_floating(graph.value(id).spec.dtype) && !is_leaf[id]) dependent[id] = true;
    }
  }
  return dependent;
}

void check_gradient(const Graph& graph, const Node& node, ValueId input, ValueId gradient) {
  const TensorSpec& expected = graph.value(input).spec;
  const TensorSpec& received = graph.value(gradient).spec;
  if (expected == received) return;
  throw ValueError(message("the gradient rule of op \"", node.op->name, "\" gave ",
                           spec_string(received), " for an input of ", spec_string(expected),
                           "; a gradient has its input's dtype and shape"));
}

// Applies the node's gradient rule; the result has one entry for each of its inputs.
std::vector<ValueId> differentiate(Graph& graph, const Node& node,
                                   const std::vector<ValueId>& output_gradients) {
  if (node.op->gradient == nullptr) {
    throw ValueError(message("op \"", node.op->name,
                             "\" is not differentiable: ", node.op->not_differentiable,
                             ". A gradient was asked for that leads through it"));
  }
  GradientContext context(graph, node, output_gradients);
  std::vector<ValueId> gradients = node.op->gradient(context);
  if (gradients.size() != node.inputs.size()) {
    throw ValueError(message("the gradient rule of op \"", node.op->name, "\" gave ",
                             gradients.size(), " gradients for ", node.inputs.size(), " inputs"));
  }
  return gradients;
}

// Gives the graph another stack of scopes for a while, also when an exception passes.
class ScopesGuard {
 public:
  explicit ScopesGuard(std::vector<std::string>& scopes) : scopes_(scopes), saved_(scopes) {}
  ~ScopesGuard() { scopes_.swap(saved_); }
  ScopesGuard(const ScopesGuard&) = delete;
  ScopesGuard& operator=(const ScopesGuard&) = delete;

 private:
  std::vector<std::string>& scopes_;
  std::vector<std::string> saved_;
};

}  // namespace

std::vector<ValueId> Graph::gradients(ValueId loss, const std::vector<ValueId>& wrt,
                                      const std::vector<ValueId>& leaves) {
  const Value target = values_.at(loss);
  if (!target.spec.shape.empty() || !is_floating(target.spec.dtype)) {
    throw ValueError(message("gradients: the loss must be a floating scalar, but it is ",
                             spec_string(target.spec),
                             "; reduce it first, for example with reduce_mean"));
  }
  for (ValueId id : wrt) values_.at(id);
  const size_t num_nodes =
      target.kind == ValueKind::Result ? static_cast<size_t>(target.source) + 1 : 0;
  std::vector<bool> is_leaf(values_.size(), false);
  for (ValueId id : leaves) is_leaf.at(id) = true;
  const std::vector<bool> dependent = find_dependent(*this, wrt, is_leaf, num_nodes);

  std::vector<ValueId> gradient(values_.size(), kNoValue);
  if (dependent[loss]) gradient[loss] = full(target.spec, 1.0);

  const ScopesGuard guard(scopes_);
  for (size_t index = num_nodes; index-- > 0;) {
    // A copy: applying ops may move the graph's nodes.
    const Node node = nodes_[index];
    std::vector<ValueId> output_gradients;
    for (ValueId id : node.outputs) {
      output_gradients.push_back(is_leaf[id] ? kNoValue : gradient[id]);
    }
    const auto is_wanted = [&](ValueId id) { return dependent[id]; };
    const auto has_gradient = [](ValueId id) { return id != kNoValue; };
    if (std::none_of(output_gradients.begin(), output_gradients.end(), has_gradient)) continue;
    if (std::none_of(node.inputs.begin(), node.inputs.end(), is_wanted)) continue;

    // Nodes of the backward pass belong to the layer whose forward pass they differentiate.
    scopes_.assign(node.scope.empty() ? 0 : 1, node.scope);
    const std::vector<ValueId> input_gradients =
        with_scope(node.scope, [&] { return differentiate(*this, node, output_gradients); });
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      const ValueId addend = input_gradients[i];
      if (addend == kNoValue || !dependent[input]) continue;
      with_scope(node.scope, [&] { check_gradient(*this, node, input, addend); });
      ValueId& sum = gradient[input];
      sum = sum == kNoValue ? addend : apply("add", {sum, addend})[0];
    }
  }

  std::vector<ValueId> result;
  for (ValueId id : wrt) result.push_back(gradient[id]);
  return result;
}

}  // namespace kerascnn
