// Reverse-mode differentiation: one walk over the nodes from the loss back, so that deep graphs
// need no stack. Gradients of a value that several nodes read are added in the order of the walk,
// which is fixed.
#include <algorithm>
#include <limits>
#include <unordered_map>

#include "core/base/error.h"
#include "core/graph/error_context.h"
#include "core/graph/graph.h"
#include "core/ops/definitions.h"

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

// Gives the graph another stack of scopes, that of the backward pass, until this object goes, also
// when an exception passes.
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

// Adds what a gradient rule asks for to the graph of the node.
class NodeGradientContext final : public GradientContext {
 public:
  NodeGradientContext(Graph& graph, const Node& node, const std::vector<ValueId>& output_gradients)
      : GradientContext(node.inputs, node.outputs, output_gradients, node.attributes),
        graph_(graph) {}

  const TensorSpec& spec(ValueId value) const override { return graph_.value(value).spec; }

 private:
  std::vector<ValueId> add_node(const OpDef& op, const std::vector<ValueId>& inputs,
                                const Attributes& attributes) override {
    return graph_.apply(op, inputs, attributes);
  }
  ValueId add_constant(const TensorSpec& spec, double value) override {
    return graph_.full(spec, value);
  }

  Graph& graph_;
};

}  // namespace

std::vector<ValueId> differentiate(Graph& graph, const Node& node,
                                   const std::vector<ValueId>& output_gradients) {
  if (node.op->gradient == nullptr) {
    throw ValueError(message("op \"", node.op->name,
                             "\" is not differentiable: ", node.op->not_differentiable,
                             ". A gradient was asked for that leads through it"));
  }
  NodeGradientContext context(graph, node, output_gradients);
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
  GraphWalk(Graph& graph, const std::vector<ValueId>& targets,
            const std::vector<std::vector<ValueId>>& sources, const GraphTape* tape)
      : graph_(graph),
        followed_since_(graph.values().size(), tape == nullptr ? kAlways : kNever),
        dependent_(graph.values().size(), false),
        gradient_(graph.values().size(), kNoValue),
        sums_(sources.size(), kNoValue) {
    for (const ValueId id : targets) {
      const Value& target = graph.value(id);
      if (target.kind != ValueKind::Result) continue;
      num_nodes_ = std::max(num_nodes_, static_cast<size_t>(target.source) + 1);
    }
    is_recorded_.assign(num_nodes_, tape == nullptr);
    if (tape != nullptr) find_recorded(*tape);
    find_dependent(sources);
  }

  bool is_dependent(ValueId id) const { return dependent_[id]; }

  void add(ValueId id, ValueId addend) {
    const auto found = sources_of_.find(id);
    if (found == sources_of_.end()) return add_to(gradient_[id], addend);
    // Nothing goes on from the reading of a variable, so it is enough to add to the sum of all its
    // readings at once.
    if (graph_.value(id).same_as == kNoValue) add_to(gradient_[id], addend);
    for (const size_t source : found->second) add_to(sums_[source], addend);
  }

  // The gradient with respect to each source.
  std::vector<ValueId> results() const { return sums_; }

  void run() {
    for (size_t index = num_nodes_; index-- > 0;) {
      // This is a copy, since applying ops may move the graph's nodes.
      const Node node = graph_.nodes()[index];
      // Calls with a gradient of their own have one node for each output. The first of them stands
      // for the call; the walk reaches it when the gradients of all outputs are known.
      if (node.own_gradient >= 0 && node.own_output > 0) continue;
      if (is_recorded_[index]) visit(node);
    }
  }

 private:
  const std::vector<ValueId>& inputs_of(const Node& node) const {
    return node.own_gradient < 0 ? node.inputs : graph_.own_calls_[node.own_gradient].inputs;
  }
  const std::vector<ValueId>& outputs_of(const Node& node) const {
    return node.own_gradient < 0 ? node.outputs : graph_.own_calls_[node.own_gradient].outputs;
  }

  static constexpr ValueId kAlways = 0;
  static constexpr ValueId kNever = std::numeric_limits<ValueId>::max();

  void add_to(ValueId& sum, ValueId addend) {
    sum = sum == kNoValue ? addend : graph_.apply("add", {sum, addend})[0];
  }

  // Did the tape follow the value when the call was recorded?
  bool follows(const Node& node, ValueId input) const {
    return followed_since_[input] <= node.outputs.front();
  }

  // Finds the calls that the tape recorded: those in its spans with an input that it followed.
  void find_recorded(const GraphTape& tape) {
    for (const GraphTape::Watched& watched : tape.watched) {
      ValueId& since = followed_since_.at(watched.value);
      since = std::min(since, watched.since);
    }
    auto span = tape.spans.begin();
    for (size_t i = 0; i < num_nodes_; ++i) {
      const Node& node = graph_.nodes()[i];
      const ValueId time = node.outputs.front();
      while (span != tape.spans.end() && span->last <= time) ++span;
      if (span == tape.spans.end()) return;
      if (time < span->first || node.op == &op_stop_gradient) continue;
      const std::vector<ValueId>& inputs = inputs_of(node);
      if (std::none_of(inputs.begin(), inputs.end(),
                       [&](ValueId id) { return follows(node, id); })) {
        continue;
      }
      is_recorded_[i] = true;
      for (const ValueId id : node.outputs) {
        if (is_floating(graph_.value(id).spec.dtype)) followed_since_[id] = kAlways;
      }
    }
  }

  // Finds the values that a small change of the sources can change by a small amount: dependence
  // ends at integers and bools.
  void find_dependent(const std::vector<std::vector<ValueId>>& sources) {
    for (size_t source = 0; source < sources.size(); ++source) {
      for (const ValueId id : sources[source]) {
        const bool is_float = is_floating(graph_.value(id).spec.dtype);
        if (!is_float || followed_since_.at(id) == kNever) continue;
        dependent_[id] = true;
        sources_of_[id].push_back(source);
      }
    }
    for (size_t i = 0; i < num_nodes_; ++i) {
      const Node& node = graph_.nodes()[i];
      const std::vector<ValueId>& inputs = inputs_of(node);
      if (!is_recorded_[i] || std::none_of(inputs.begin(), inputs.end(), [&](ValueId id) {
            return dependent_[id] && follows(node, id);
          })) {
        continue;
      }
      for (const ValueId id : node.outputs) {
        if (is_floating(graph_.value(id).spec.dtype)) dependent_[id] = true;
      }
    }
  }

  void visit(const Node& node) {
    // These are copies, as above.
    const std::vector<ValueId> inputs = inputs_of(node);
    std::vector<ValueId> output_gradients;
    for (const ValueId id : outputs_of(node)) {
      output_gradients.push_back(gradient_[id]);
    }
    const auto is_wanted = [&](ValueId id) { return dependent_[id] && follows(node, id); };
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
      if (input_gradients[i] != kNoValue && is_wanted(inputs[i]))
        add(inputs[i], input_gradients[i]);
    }
  }

  Graph& graph_;
  size_t num_nodes_ = 0;
  std::vector<bool> is_recorded_;        // by node
  std::vector<ValueId> followed_since_;  // by value
  std::vector<bool> dependent_;
  std::vector<ValueId> gradient_;
  std::unordered_map<ValueId, std::vector<size_t>> sources_of_;  // sources of a value
  std::vector<ValueId> sums_;                                    // by source
};

std::vector<ValueId> Graph::gradients(ValueId loss, const std::vector<ValueId>& wrt) {
  const TensorSpec& spec = values_.at(loss).spec;
  if (!spec.shape.empty() || !is_floating(spec.dtype)) {
    throw ValueError(message("gradients: the loss must be a floating scalar, but it is ",
                             spec_string(spec), "; reduce it first, for example with reduce_mean"));
  }
  return gradients({loss}, {kNoValue}, wrt);
}

std::vector<ValueId> Graph::gradients(const std::vector<ValueId>& targets,
                                      const std::vector<ValueId>& output_gradients,
                                      const std::vector<ValueId>& wrt) {
  std::vector<std::vector<ValueId>> sources;
  for (const ValueId id : wrt) sources.push_back({id});
  return gradients(targets, output_gradients, sources);
}

std::vector<ValueId> Graph::gradients(const std::vector<ValueId>& targets,
                                      const std::vector<ValueId>& output_gradients,
                                      const std::vector<std::vector<ValueId>>& sources,
                                      const GraphTape* tape) {
  for (const ValueId id : targets) {
    const TensorSpec& spec = values_.at(id).spec;
    if (is_floating(spec.dtype)) continue;
    throw TypeError(message("gradient: the target is ", spec_string(spec),
                            ", and only floating tensors have gradients; cast it before "
                            "what follows is computed"));
  }
  GraphWalk walk(*this, targets, sources, tape);
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
  return walk.results();
}

const std::vector<ValueId>& Graph::own_gradient_inputs(const Node& node) const {
  static const std::vector<ValueId> none;
  return node.own_gradient < 0 ? none : own_calls_[node.own_gradient].inputs;
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
    if (id != kNoValue) needed.at(whole.without_reading(id)) = true;
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
    for (const ValueId id : node.inputs) needed[whole.without_reading(id)] = true;
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
    for (const ValueId id : node.inputs) inputs.push_back(map[whole.without_reading(id)]);
    const std::vector<ValueId> results = part.graph.apply_same(node, inputs);
    for (size_t i = 0; i < results.size(); ++i) map[node.outputs[i]] = results[i];
  }
  for (const ValueId id : outputs) {
    part.outputs.push_back(id == kNoValue ? kNoValue : map[whole.without_reading(id)]);
  }
  return part;
}

}  // namespace kerascnn
