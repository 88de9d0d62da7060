// A traced computation: nodes in order of execution over values, each with a static shape. Purely
// functional; variables are read as values and written at the end of a step (assign).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/attributes.h"
#include "core/ops/op.h"
#include "core/tensor/variable.h"

namespace kerascnn {

enum class ValueKind : uint8_t { Input, State, Constant, Result };

struct Value {
  TensorSpec spec;
  ValueKind kind;
  int32_t source;      // index of the input, state variable, constant or node it comes from
  int32_t output = 0;  // which output of that node
};

struct Node {
  const OpDef* op;
  Attributes attributes;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::string scope;  // "sequential/conv2d_1", for errors and profiles
};

struct Assignment {
  int32_t state;  // index into states()
  ValueId value;
};

class Graph {
 public:
  ValueId input(std::string name, const TensorSpec& spec);
  ValueId constant(const Tensor& tensor);
  ValueId full(const TensorSpec& spec,
               double value);  // a constant, stored as one element and broadcast
  std::vector<ValueId> apply(std::string_view op, const std::vector<ValueId>& inputs,
                             const Attributes& attributes = {});

  // The variable's value at this point of the trace: what was last assigned to it, else what it
  // holds when the step starts.
  ValueId read(const VariablePtr& variable);
  // Throws ValueError where dtype or shape differ from the variable's.
  void assign(const VariablePtr& variable, ValueId value);

  // d loss / d wrt for each of `wrt`; kNoValue where loss does not depend on it. `loss` is a
  // floating scalar. Throws ValueError naming the op where a path leads through one that is not
  // differentiable. `leaves` count as given: no gradient goes through what they were computed by.
  std::vector<ValueId> gradients(ValueId loss, const std::vector<ValueId>& wrt,
                                 const std::vector<ValueId>& leaves = {});

  void push_scope(std::string name) { scopes_.push_back(std::move(name)); }
  void pop_scope() { scopes_.pop_back(); }

  const Value& value(ValueId id) const { return values_[id]; }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<std::string>& input_names() const { return input_names_; }
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<VariablePtr>& states() const { return states_; }
  const std::vector<Tensor>& constants() const { return constants_; }
  std::vector<Assignment> assignments() const;

  std::string to_string() const;  // one line per node, for people and tests

 private:
  friend class GraphRewriter;
  ValueId add_value(Value value);
  std::vector<ValueId> add_node(const OpDef& op, const Attributes& attributes,
                                const std::vector<ValueId>& inputs,
                                std::vector<TensorSpec> output_specs, const std::string& scope);
  std::string current_scope() const;

  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<std::string> input_names_;
  std::vector<ValueId> inputs_;
  std::vector<Tensor> constants_;
  std::vector<VariablePtr> states_;
  std::vector<ValueId> state_values_;    // the value a state has when the step starts
  std::vector<ValueId> current_values_;  // what was last assigned, or the same
  std::unordered_map<const Variable*, int32_t> state_index_;
  std::vector<std::string> scopes_;
};

}  // namespace kerascnn
