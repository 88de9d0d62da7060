// A traced computation: nodes in order of execution over values, each with a static shape. It is
// purely functional: variables are read as values and written at the end of a step (assign).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/attributes.h"
#include "core/ops/op.h"
#include "core/profile/scope.h"
#include "core/tensor/variable.h"

namespace kerascnn {

enum class ValueKind : uint8_t { Input, State, Constant, Result };

struct Value {
  TensorSpec spec;
  ValueKind kind;
  int32_t source;      // index of the input, state variable, constant or node it comes from
  int32_t output = 0;  // which output of that node
  // What a variable held when it was read (Graph::reading): the value that this one is equal to,
  // and the variable, as an index into states().
  ValueId same_as = kNoValue;
  int32_t variable = -1;
};

struct Node {
  const OpDef* op;
  Attributes attributes;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Scope scope;  // for errors and profiles
  // Which of the graph's own gradients this node belongs to, and as which output of it.
  int32_t own_gradient = -1;
  int32_t own_output = 0;
};

struct Assignment {
  int32_t state;  // index into states()
  ValueId value;
};

// What a tape saw of a graph. Values have growing numbers, which serve as the time.
struct GraphTape {
  // It recorded the calls whose first result is in one of these spans, [first, last), in growing
  // order.
  struct Span {
    ValueId first;
    ValueId last;
  };
  // It followed this value from the call on whose first result is `since`.
  struct Watched {
    ValueId value;
    ValueId since;
  };
  std::vector<Span> spans;
  std::vector<Watched> watched;
};

class Graph;

// Gradients of the inputs of a call, from those of its outputs (kNoValue where there is none),
// added to the graph by whoever defined the call.
using OwnGradient =
    std::function<std::vector<ValueId>(Graph& graph, const std::vector<ValueId>& output_gradients)>;

class Graph {
 public:
  Graph() = default;
  // Makes the graph of a node's body (body.h). What it reads of the parent, values and variables,
  // becomes its inputs.
  explicit Graph(const std::shared_ptr<Graph>& parent);

  ValueId input(std::string name, const TensorSpec& spec);
  ValueId constant(const Tensor& tensor);
  ValueId full(const TensorSpec& spec,
               double value);  // a constant, stored as one element and broadcast
  std::vector<ValueId> apply(const OpDef& op, const std::vector<ValueId>& inputs,
                             const Attributes& attributes = {});
  std::vector<ValueId> apply(std::string_view op, const std::vector<ValueId>& inputs,
                             const Attributes& attributes = {});

  // The call of a node of another graph, in its scope, with inputs of this one.
  std::vector<ValueId> apply_same(const Node& node, const std::vector<ValueId>& inputs);

  // The variable's value at this point of the trace: what was last assigned to it, or what it holds
  // when the step starts.
  ValueId read(const VariablePtr& variable);
  // The same as a value of its own: gradients by it are those of what is computed from this
  // reading, and end here also where the variable was assigned something computed.
  ValueId reading(const VariablePtr& variable);
  // The variable that the value is a reading of, or null.
  VariablePtr variable_of(ValueId id) const;
  // Throws ValueError where dtype or shape differ from the variable's.
  void assign(const VariablePtr& variable, ValueId value);

  // In a body: the input that stands for a value of its parent, or of a graph around that. Throws
  // ValueError for a value of any other graph, and where the parent is gone.
  ValueId capture(const std::shared_ptr<Graph>& owner, ValueId id);
  // From now on, this value of the parent is what the variable has before the body. By default it
  // is what the parent reads.
  void bind(const VariablePtr& variable, ValueId outer);
  bool knows(const VariablePtr& variable) const { return state_index_.contains(variable.get()); }
  // What a body's inputs stand for: a value of the parent, and an input of this graph.
  struct Captured {
    ValueId outer;
    ValueId inner;
  };
  const std::vector<Captured>& captured() const { return captured_; }
  // In a body, for each variable that it reads or assigns: the parent's value, the input that
  // stands for it, and the value at the end.
  struct BoundState {
    VariablePtr variable;
    ValueId outer;
    ValueId inner;
    ValueId last;
  };
  std::vector<BoundState> bound_states() const;

  // d loss / d wrt for each of `wrt`; kNoValue where loss does not depend on it. `loss` is a
  // floating scalar. Throws ValueError naming the op where a path leads through one that is not
  // differentiable.
  std::vector<ValueId> gradients(ValueId loss, const std::vector<ValueId>& wrt);

  // d sum(targets * output_gradients) / d source for each source, which is the sum of those by its
  // values; an output gradient of kNoValue stands for ones. The walk goes only through what `tape`
  // recorded; without a tape it goes through everything.
  std::vector<ValueId> gradients(const std::vector<ValueId>& targets,
                                 const std::vector<ValueId>& output_gradients,
                                 const std::vector<std::vector<ValueId>>& sources,
                                 const GraphTape* tape = nullptr);
  std::vector<ValueId> gradients(const std::vector<ValueId>& targets,
                                 const std::vector<ValueId>& output_gradients,
                                 const std::vector<ValueId>& wrt);

  // The same values as `outputs`, whose gradients reach `inputs` by `gradient` and go nowhere else.
  std::vector<ValueId> with_own_gradient(const std::vector<ValueId>& inputs,
                                         const std::vector<ValueId>& outputs, OwnGradient gradient);

  // The inputs of such a call, given a node that belongs to it; none for other nodes.
  const std::vector<ValueId>& own_gradient_inputs(const Node& node) const;

  // For the end of the trace: such functions may hold what holds the graph. A body lets go of its
  // parent.
  void forget_own_gradients();

  // The layer that later nodes belong to, within those that were pushed before.
  void push_scope(std::string name) { scopes_.push_back(std::move(name)); }
  void pop_scope();  // throws ValueError where nothing was pushed
  bool in_scope() const { return !scopes_.empty(); }
  // The part of the step that later nodes belong to. In an update the scope only names nodes that
  // have no other: the rest belong to the layers whose weights or gradients they read.
  Phase phase() const { return phase_; }
  void set_phase(Phase phase) { phase_ = phase; }
  void set_scope(int32_t node, Scope scope) { nodes_[node].scope = std::move(scope); }

  // Differentiation tells readings of a variable apart; passes and programs must not.
  ValueId without_reading(ValueId id) const;
  void join_readings();

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
                                std::vector<TensorSpec> output_specs, const Scope& scope);
  Scope current_scope() const;
  // The layers whose weights are among the inputs of an update.
  Scope weight_layers(const std::vector<ValueId>& inputs) const;
  // The same; where there are none, the layers whose gradients are among them, or else `own`.
  Scope updated_layers(const std::vector<ValueId>& inputs, const Scope& own) const;
  struct OwnCall {
    std::vector<ValueId> inputs;
    std::vector<ValueId> outputs;
    OwnGradient gradient;
  };
  friend class GraphWalk;

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
  Phase phase_ = kForward;
  std::vector<std::string> state_layers_;  // which layer's forward pass reads a state first
  std::vector<OwnCall> own_calls_;
  // These are used in bodies only.
  bool is_body_ = false;
  std::shared_ptr<Graph> parent_;  // until the trace ends
  std::vector<Captured> captured_;
  std::unordered_map<ValueId, ValueId> captured_index_;  // by the parent's value
  std::vector<ValueId> outer_states_;                    // by state
};

// Applies the gradient rule of a call whose values are in the graph. It gives one gradient for each
// of the call's inputs, kNoValue where there is none. Throws ValueError where the op is not
// differentiable.
std::vector<ValueId> differentiate(Graph& graph, const Node& node,
                                   const std::vector<ValueId>& output_gradients);

// The nodes from `first_node` on that the outputs need, as a graph of its own. Its inputs are the
// values that it needs from before that node; it has constants of its own.
struct GraphPart {
  Graph graph;
  std::vector<ValueId> inputs;   // of the whole graph
  std::vector<ValueId> outputs;  // of this part, kNoValue where the wanted output is
};
GraphPart cut_from(const Graph& whole, size_t first_node, const std::vector<ValueId>& outputs);

}  // namespace kerascnn
