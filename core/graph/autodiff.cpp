// Reverse-mode differentiation: one walk over the nodes from the loss back, so that depth costs no
// stack. Gradients of a value that several nodes read are added in the order of the walk, which is
// fixed.
#include <algorithm>

#include "core/base/error.h"
#include "core/graph/error_context.h"
#include "core/graph/graph.h"

namespace kerascnn {
namespace {

void check_gradient(const Graph& graph, const Node& node, ValueId input, ValueId gradient) {
  const TensorSpec& expected = graph.value(input).spec;
  const TensorSpec& received = graph.value(gradient).spec;
  if (expected == received) return;
  throw ValueError(message("the gradient rule of op \"", node.op->name, "\" gave ",
                           spec_string(received), " for an input of ", spec_string(expected),
                           "; a gradient has its input's dtype and shape"));
}

void check_own_gradients(const Graph& graph, const std::vector<ValueId>& inputs,
                         const std::vector<ValueId>& gradients) {
  if (gradients.size() != inputs.size()) {
    throw ValueError(message("custom_gradient: the gradient function gave ", gradients.size(),
                             " gradients for ", inputs.size(),
                             " inputs; it must give one for each, None where there is none"));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (gradients[i] == kNoValue) continue;
    const TensorSpec& expected = graph.value(inputs[i]).spec;
    const TensorSpec& received = graph.value(gradients[i]).spec;
    if (expected == received) continue;
    throw ValueError(message("custom_gradient: the gradient function gave ", spec_string(received),
                             " for an input of ", spec_string(expected),
                             "; a gradient has its input's dtype and shape"));
  }
}

// Gives the graph another stack of scopes for a while, of the backward pass, also when an exception
// passes.
class ScopesGuard {
 public:
  ScopesGuard(Graph& graph, std::vector<std::string>& scopes)
      : graph_(graph), scopes_(scopes), saved_(scopes), phase_(graph.phase()) {
    graph.set_phase(kBackward);
  }
  ~ScopesGuard() {
    scopes_.swap(saved_);
    graph_.set_phase(phase_);
  }
  ScopesGuard(const ScopesGuard&) = delete;
  ScopesGuard& operator=(const ScopesGuard&) = delete;

 private:
  Graph& graph_;
  std::vector<std::string>& scopes_;
  std::vector<std::string> saved_;
  Phase phase_;
};

}  // namespace

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
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i] != kNoValue) check_gradient(graph, node, node.inputs[i], gradients[i]);
  }
  return gradients;
}

// One walk back over the nodes that were there when it began.
class GraphWalk {
 public:
  GraphWalk(Graph& graph, const std::vector<ValueId>& targets, const std::vector<ValueId>& wrt,
            const std::vector<ValueId>& leaves)
      : graph_(graph),
        is_leaf_(graph.values().size(), false),
        dependent_(graph.values().size(), false),
        gradient_(graph.values().size(), kNoValue) {
    for (const ValueId id : leaves) is_leaf_.at(id) = true;
    for (const ValueId id : targets) {
      const Value& target = graph.value(id);
      if (target.kind != ValueKind::Result) continue;
      num_nodes_ = std::max(num_nodes_, static_cast<size_t>(target.source) + 1);
    }
    find_dependent(wrt);
  }

  bool is_dependent(ValueId id) const { return dependent_[id]; }
  ValueId gradient(ValueId id) const { return gradient_[id]; }

  void add(ValueId id, ValueId addend) {
    ValueId& sum = gradient_[id];
    sum = sum == kNoValue ? addend : graph_.apply("add", {sum, addend})[0];
  }

  void run() {
    for (size_t index = num_nodes_; index-- > 0;) {
      // A copy: applying ops may move the graph's nodes.
      const Node node = graph_.nodes()[index];
      // Calls with a gradient of their own have one node for each output: the first of them stands
      // for the call, and is reached when the gradients of all of its outputs are known.
      if (node.own_gradient >= 0 && node.own_output > 0) continue;
      visit(node);
    }
  }

 private:
  const std::vector<ValueId>& inputs_of(const Node& node) const {
    return node.own_gradient < 0 ? node.inputs : graph_.own_calls_[node.own_gradient].inputs;
  }
  const std::vector<ValueId>& outputs_of(const Node& node) const {
    return node.own_gradient < 0 ? node.outputs : graph_.own_calls_[node.own_gradient].outputs;
  }

  // Which values a small change of `wrt` can change, and by a small amount: dependence ends at
  // integers, bools and leaves.
  void find_dependent(const std::vector<ValueId>& wrt) {
    for (const ValueId id : wrt) dependent_.at(id) = is_floating(graph_.value(id).spec.dtype);
    for (size_t i = 0; i < num_nodes_; ++i) {
      const Node& node = graph_.nodes()[i];
      const std::vector<ValueId>& inputs = inputs_of(node);
      if (std::none_of(inputs.begin(), inputs.end(), [&](ValueId id) { return dependent_[id]; })) {
        continue;
      }
      for (const ValueId id : node.outputs) {
        if (is_floating(graph_.value(id).spec.dtype) && !is_leaf_[id]) dependent_[id] = true;
      }
    }
  }

  void visit(const Node& node) {
    // Copies, as above.
    const std::vector<ValueId> inputs = inputs_of(node);
    std::vector<ValueId> output_gradients;
    for (const ValueId id : outputs_of(node)) {
      output_gradients.push_back(is_leaf_[id] ? kNoValue : gradient_[id]);
    }
    const auto is_wanted = [&](ValueId id) { return dependent_[id]; };
    const auto has_gradient = [](ValueId id) { return id != kNoValue; };
    if (std::none_of(output_gradients.begin(), output_gradients.end(), has_gradient)) return;
    if (std::none_of(inputs.begin(), inputs.end(), is_wanted)) return;

    // Nodes of the backward pass belong to the layer whose forward pass they differentiate.
    graph_.scopes_.assign(node.scope.empty() ? 0 : 1, node.scope.path);
    const std::vector<ValueId> input_gradients = with_scope(node.scope.path, [&] {
      if (node.own_gradient < 0) return differentiate(graph_, node, output_gradients);
      const OwnGradient own = graph_.own_calls_[node.own_gradient].gradient;
      if (own == nullptr) {
        throw ValueError(
            "gradient: a custom gradient was asked for after the trace that it is part of had "
            "ended; take gradients inside of the traced function");
      }
      std::vector<ValueId> gradients = own(graph_, output_gradients);
      check_own_gradients(graph_, inputs, gradients);
      return gradients;
    });
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (input_gradients[i] != kNoValue && dependent_[inputs[i]]) {
        add(inputs[i], input_gradients[i]);
      }
    }
  }

  Graph& graph_;
  size_t num_nodes_ = 0;
  std::vector<bool> is_leaf_;
  std::vector<bool> dependent_;
  std::vector<ValueId> gradient_;
};

std::vector<ValueId> Graph::gradients(ValueId loss, const std::vector<ValueId>& wrt,
                                      const std::vector<ValueId>& leaves) {
  const TensorSpec& spec = values_.at(loss).spec;
  if (!spec.shape.empty() || !is_floating(spec.dtype)) {
    throw ValueError(message("gradients: the loss must be a floating scalar, but it is ",
                             spec_string(spec), "; reduce it first, for example with reduce_mean"));
  }
  return gradients({loss}, {kNoValue}, wrt, leaves);
}

std::vector<ValueId> Graph::gradients(const std::vector<ValueId>& targets,
                                      const std::vector<ValueId>& output_gradients,
                                      const std::vector<ValueId>& wrt,
                                      const std::vector<ValueId>& leaves) {
  for (const ValueId id : targets) {
    const TensorSpec& spec = values_.at(id).spec;
    if (is_floating(spec.dtype)) continue;
    throw TypeError(message("gradient: the target is ", spec_string(spec),
                            ", and only floating tensors have gradients; cast it (ops.cast) before "
                            "what follows is computed"));
  }
  GraphWalk walk(*this, targets, wrt, leaves);
  const ScopesGuard guard(*this, scopes_);
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!walk.is_dependent(targets[i])) continue;
    const TensorSpec spec = values_[targets[i]].spec;
    const ValueId given = output_gradients.at(i);
    if (given != kNoValue && values_.at(given).spec != spec) {
      throw ValueError(message("gradient: the output gradient of target ", i, " must be ",
                               spec_string(spec), " as the target is, received ",
                               spec_string(values_[given].spec)));
    }
    if (values_[targets[i]].kind == ValueKind::Result) {
      const Scope& scope = nodes_[values_[targets[i]].source].scope;
      scopes_.assign(scope.empty() ? 0 : 1, scope.path);
    }
    walk.add(targets[i], given == kNoValue ? full(spec, 1.0) : given);
  }
  walk.run();
  std::vector<ValueId> result;
  for (const ValueId id : wrt) result.push_back(walk.gradient(id));
  return result;
}

std::vector<ValueId> Graph::with_own_gradient(const std::vector<ValueId>& inputs,
                                              const std::vector<ValueId>& outputs,
                                              OwnGradient gradient) {
  std::vector<ValueId> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Shape shape = values_.at(outputs[i]).spec.shape;
    results.push_back(apply("reshape", {outputs[i]}, {{"shape", shape}})[0]);
    nodes_.back().own_gradient = static_cast<int32_t>(own_calls_.size());
    nodes_.back().own_output = static_cast<int32_t>(i);
  }
  own_calls_.push_back({inputs, results, std::move(gradient)});
  return results;
}

void Graph::forget_own_gradients() {
  for (OwnCall& call : own_calls_) call.gradient = nullptr;
  parent_.reset();
}

GraphPart cut_from(const Graph& whole, size_t first_node, const std::vector<ValueId>& outputs) {
  std::vector<bool> needed(whole.values().size(), false);
  for (const ValueId id : outputs) {
    if (id != kNoValue) needed.at(id) = true;
  }
  const auto is_inside = [&](const Value& value) {
    return value.kind == ValueKind::Result && static_cast<size_t>(value.source) >= first_node;
  };
  for (size_t index = whole.nodes().size(); index-- > first_node;) {
    const Node& node = whole.nodes()[index];
    const bool any = std::any_of(node.outputs.begin(), node.outputs.end(),
                                 [&](ValueId id) { return needed[id]; });
    for (const ValueId id : node.outputs) needed[id] = any;
    if (!any) continue;
    for (const ValueId id : node.inputs) needed[id] = true;
  }
  GraphPart part;
  std::vector<ValueId> map(whole.values().size(), kNoValue);
  for (size_t id = 0; id < map.size(); ++id) {
    const Value& value = whole.value(static_cast<ValueId>(id));
    if (!needed[id] || is_inside(value)) continue;
    if (value.kind == ValueKind::Constant) {
      map[id] = part.graph.constant(whole.constants()[value.source]);
    } else {
      map[id] = part.graph.input(message("value_", id), value.spec);
      part.inputs.push_back(static_cast<ValueId>(id));
    }
  }
  for (size_t index = first_node; index < whole.nodes().size(); ++index) {
    const Node& node = whole.nodes()[index];
    if (!needed[node.outputs.front()]) continue;
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(map[id]);
    const std::vector<ValueId> results = part.graph.apply(node.op->name, inputs, node.attributes);
    part.graph.set_scope(static_cast<int32_t>(part.graph.nodes().size()) - 1, node.scope);
    for (size_t i = 0; i < results.size(); ++i) map[node.outputs[i]] = results[i];
  }
  for (const ValueId id : outputs) part.outputs.push_back(id == kNoValue ? kNoValue : map[id]);
  return part;
}

}  // namespace kerascnn
