#include "core/graph/graph.h"

#include <algorithm>
#include <sstream>

#include "core/base/error.h"
#include "core/graph/error_context.h"

namespace kerascnn {
namespace {

struct AttributePrinter {
  std::ostream& out;

  void operator()(bool value) const { out << (value ? "true" : "false"); }
  void operator()(int64_t value) const { out << value; }
  void operator()(double value) const { out << value; }
  void operator()(const std::string& value) const { out << '"' << value << '"'; }
  void operator()(const Bodies& bodies) const {
    out << bodies.size() << (bodies.size() == 1 ? " body" : " bodies");
  }
  template <typename T>
  void operator()(const std::vector<T>& values) const {
    out << '[';
    for (size_t i = 0; i < values.size(); ++i) out << (i ? ", " : "") << values[i];
    out << ']';
  }
};

void print_values(std::ostream& out, const Graph& graph, const std::vector<ValueId>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    out << (i ? ", " : "") << '%' << graph.without_reading(values[i]);
  }
}

void print_node(std::ostream& out, const Graph& graph, const Node& node) {
  print_values(out, graph, node.outputs);
  out << " = " << node.op->name << '(';
  print_values(out, graph, node.inputs);
  out << ')';
  const auto& entries = node.attributes.entries();
  for (size_t i = 0; i < entries.size(); ++i) {
    out << (i ? ", " : " {") << entries[i].first << '=';
    std::visit(AttributePrinter{out}, entries[i].second);
  }
  out << (entries.empty() ? "" : "}") << " : ";
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    out << (i ? ", " : "") << spec_string(graph.value(node.outputs[i]).spec);
  }
  if (!node.scope.empty()) out << "  # " << node.scope.path;
  out << '\n';
}

}  // namespace

ValueId Graph::add_value(Value value) {
  values_.push_back(std::move(value));
  return static_cast<ValueId>(values_.size() - 1);
}

void Graph::pop_scope() {
  if (scopes_.empty()) throw ValueError("pop_scope: no scope was pushed that could be left");
  scopes_.pop_back();
}

ValueId Graph::input(std::string name, const TensorSpec& spec) {
  num_bytes(spec);  // throws where an extent is negative or the size overflows
  const ValueId id = add_value({spec, ValueKind::Input, static_cast<int32_t>(input_names_.size())});
  input_names_.push_back(std::move(name));
  inputs_.push_back(id);
  return id;
}

ValueId Graph::constant(const Tensor& tensor) {
  if (!tensor.defined()) throw ValueError("constant: the tensor has no storage");
  const ValueId id =
      add_value({tensor.spec(), ValueKind::Constant, static_cast<int32_t>(constants_.size())});
  constants_.push_back(tensor.detached().contiguous());
  return id;
}

ValueId Graph::full(const TensorSpec& spec, double value) {
  const ValueId element = constant(Tensor::scalar(spec.dtype, value, Device{}));
  if (spec.shape.empty()) return element;
  return apply("broadcast_to", {element}, {{"shape", spec.shape}})[0];
}

std::vector<ValueId> Graph::apply_same(const Node& node, const std::vector<ValueId>& inputs) {
  std::vector<ValueId> outputs = apply(*node.op, inputs, node.attributes);
  nodes_.back().scope = node.scope;
  return outputs;
}

std::vector<ValueId> Graph::apply(std::string_view op, const std::vector<ValueId>& inputs,
                                  const Attributes& attributes) {
  const OpDef& definition =
      with_scope(current_scope().path, [&]() -> const OpDef& { return find_op(op); });
  return apply(definition, inputs, attributes);
}

std::vector<ValueId> Graph::apply(const OpDef& op, const std::vector<ValueId>& inputs,
                                  const Attributes& attributes) {
  const Scope scope = current_scope();
  return with_scope(scope.path, [&] {
    std::vector<TensorSpec> specs;
    specs.reserve(inputs.size());
    for (ValueId id : inputs) {
      if (id < 0 || static_cast<size_t>(id) >= values_.size()) {
        throw ValueError(message(op.name, ": value %", id, " is not part of this graph, which has ",
                                 values_.size(), " values"));
      }
      specs.push_back(values_[id].spec);
    }
    std::vector<TensorSpec> outputs = infer_outputs(op, attributes, specs);
    for (const ValueId id : inputs) {
      if (phase_ != kForward || values_[id].kind != ValueKind::State) continue;
      std::string& layer = state_layers_[values_[id].source];
      if (layer.empty()) layer = scope.path;
    }
    return add_node(op, attributes, inputs, std::move(outputs),
                    phase_ == kUpdate ? updated_layers(inputs, scope) : scope);
  });
}

std::vector<ValueId> Graph::add_node(const OpDef& op, const Attributes& attributes,
                                     const std::vector<ValueId>& inputs,
                                     std::vector<TensorSpec> output_specs, const Scope& scope) {
  const auto index = static_cast<int32_t>(nodes_.size());
  std::vector<ValueId> outputs;
  outputs.reserve(output_specs.size());
  for (size_t i = 0; i < output_specs.size(); ++i) {
    outputs.push_back(
        add_value({std::move(output_specs[i]), ValueKind::Result, index, static_cast<int32_t>(i)}));
  }
  nodes_.push_back({&op, attributes, inputs, outputs, scope});
  return outputs;
}

Scope Graph::current_scope() const {
  Scope scope{.path = "", .phases = static_cast<uint8_t>(phase_)};
  for (const std::string& part : scopes_) scope.path += (scope.empty() ? "" : "/") + part;
  return scope;
}

Scope Graph::weight_layers(const std::vector<ValueId>& inputs) const {
  Scope weights{.path = "", .phases = kUpdate};
  for (const ValueId id : inputs) {
    const Value& value = values_[id];
    if (value.kind != ValueKind::State) continue;
    weights.join({.path = state_layers_[value.source], .phases = kUpdate});
  }
  return weights;
}

Scope Graph::updated_layers(const std::vector<ValueId>& inputs, const Scope& own) const {
  const Scope weights = weight_layers(inputs);
  if (!weights.empty()) return weights;
  Scope gradients{.path = "", .phases = kUpdate};
  for (const ValueId id : inputs) {
    const Value& value = values_[id];
    if (value.kind != ValueKind::Result) continue;
    const Scope& scope = nodes_[value.source].scope;
    const bool is_forward = (scope.phases & kForward) != 0;
    if (!is_forward && scope.path != own.path) gradients.join({scope.path, kUpdate});
  }
  return gradients.empty() ? own : gradients;
}

Graph::Graph(const std::shared_ptr<Graph>& parent)
    : phase_(parent->phase_), is_body_(true), parent_(parent) {
  const Scope scope = parent->current_scope();
  if (!scope.empty()) scopes_.push_back(scope.path);
}

ValueId Graph::capture(const std::shared_ptr<Graph>& owner, ValueId id) {
  if (parent_ == nullptr) {
    throw ValueError(message("value ", id, " (", spec_string(owner->value(id).spec),
                             ") belongs to another graph; values can't outlive the trace they "
                             "come from, nor the loop or branch that they are made in"));
  }
  const ValueId outer = parent_ == owner ? id : parent_->capture(owner, id);
  const Value& value = parent_->value(outer);
  const auto [found, is_new] = captured_index_.try_emplace(outer, kNoValue);
  if (!is_new) return found->second;
  if (value.kind == ValueKind::Constant) {
    return found->second = constant(parent_->constants()[value.source]);
  }
  found->second = input(message("captured_", captured_.size()), value.spec);
  captured_.push_back({outer, found->second});
  return found->second;
}

void Graph::bind(const VariablePtr& variable, ValueId outer) {
  if (parent_ == nullptr) throw ValueError("bind: the graph is no body, or its parent is gone");
  if (knows(variable)) {
    throw ValueError(message("bind: variable \"", variable->name(), "\" has been read already"));
  }
  const ValueId id = input(variable->name(), parent_->value(outer).spec);
  state_index_.emplace(variable.get(), static_cast<int32_t>(states_.size()));
  states_.push_back(variable);
  state_values_.push_back(id);
  current_values_.push_back(id);
  state_layers_.emplace_back();
  outer_states_.push_back(outer);
}

std::vector<Graph::BoundState> Graph::bound_states() const {
  std::vector<BoundState> result;
  for (size_t i = 0; i < outer_states_.size(); ++i) {
    result.push_back({states_[i], outer_states_[i], state_values_[i], current_values_[i]});
  }
  return result;
}

ValueId Graph::read(const VariablePtr& variable) {
  if (is_body_ && !knows(variable)) {
    if (parent_ == nullptr) {
      throw ValueError(message("variable \"", variable->name(), "\" is read in a loop or branch ",
                               "whose trace has ended"));
    }
    bind(variable, parent_->read(variable));
  }
  const auto [at, is_new] =
      state_index_.try_emplace(variable.get(), static_cast<int32_t>(states_.size()));
  if (is_new) {
    const ValueId id = add_value({variable->value().spec(), ValueKind::State, at->second});
    states_.push_back(variable);
    state_values_.push_back(id);
    current_values_.push_back(id);
    state_layers_.emplace_back();
  }
  return current_values_[at->second];
}

ValueId Graph::reading(const VariablePtr& variable) {
  const ValueId held = read(variable);
  Value value = values_[held];
  value.same_as = held;
  value.variable = state_index_.at(variable.get());
  return add_value(std::move(value));
}

VariablePtr Graph::variable_of(ValueId id) const {
  const int32_t variable = values_.at(id).variable;
  return variable < 0 ? nullptr : states_[variable];
}

ValueId Graph::without_reading(ValueId id) const {
  const ValueId same_as = values_.at(id).same_as;
  return same_as == kNoValue ? id : same_as;
}

void Graph::join_readings() {
  for (Node& node : nodes_) {
    for (ValueId& id : node.inputs) id = without_reading(id);
  }
}

void Graph::assign(const VariablePtr& variable, ValueId value) {
  const TensorSpec& expected = variable->value().spec();
  const TensorSpec& received = values_.at(value).spec;
  if (expected != received) {
    throw ValueError(message("assign: variable \"", variable->name(), "\" is ",
                             spec_string(expected), " and can't take a value of ",
                             spec_string(received), "; cast or reshape the value first"));
  }
  read(variable);
  current_values_[state_index_.at(variable.get())] = without_reading(value);
}

std::vector<Assignment> Graph::assignments() const {
  std::vector<Assignment> result;
  for (size_t i = 0; i < states_.size(); ++i) {
    if (current_values_[i] != state_values_[i]) {
      result.push_back({static_cast<int32_t>(i), current_values_[i]});
    }
  }
  return result;
}

std::string Graph::to_string() const {
  std::ostringstream out;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    out << '%' << inputs_[i] << " = input \"" << input_names_[i]
        << "\" : " << spec_string(values_[inputs_[i]].spec) << '\n';
  }
  for (size_t i = 0; i < states_.size() && !is_body_; ++i) {
    out << '%' << state_values_[i] << " = variable \"" << states_[i]->name()
        << "\" : " << spec_string(values_[state_values_[i]].spec) << '\n';
  }
  for (size_t id = 0; id < values_.size(); ++id) {
    if (values_[id].kind != ValueKind::Constant || values_[id].same_as != kNoValue) continue;
    out << '%' << id << " = constant : " << spec_string(values_[id].spec) << '\n';
  }
  for (const Node& node : nodes_) print_node(out, *this, node);
  for (const Assignment& assignment : assignments()) {
    out << "assign \"" << states_[assignment.state]->name() << "\" = %" << assignment.value << '\n';
  }
  return out.str();
}

}  // namespace kerascnn
