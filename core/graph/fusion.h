// What a fusion is: one kernel that somebody wrote for several nodes of a graph. It is data: a
// name, a pattern, and a function that plans the kernel for a match of the pattern, or says no. The
// pass apply_fusions makes one node, `fused`, of each match that a kernel was planned for. Where an
// op has the kernel already, on every backend, the function writes calls of ops instead. How to
// write a fusion is described in docs/adding_a_fusion.md.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend/backend.h"
#include "core/graph/body.h"
#include "core/graph/graph.h"

namespace kerascnn {

class GraphRewriter;
class Match;
class Pattern;

// What must hold of a node beside its op.
using NodeCondition = bool (*)(const Graph& graph, const Node& node);
// What must hold of all nodes together.
using MatchCondition = bool (*)(const Match& match);
// Adds calls to a graph, and gives a result that is computed of the value.
using ValueWriter = ValueId (*)(Graph& graph, ValueId value);

// A value of a pattern. Patterns are written as gradient rules are: each call is a node to find.
class PatternValue {
 public:
  // The first result of a call with this value, and then `others`, as its inputs. Inputs of a
  // commutative op may be in either order in the graph.
  PatternValue call(const OpDef& op, std::vector<PatternValue> others = {}) const;
  // The same of any op for which the condition holds.
  PatternValue call(NodeCondition any, std::vector<PatternValue> others = {}) const;
  // Another result of the same call.
  PatternValue result(size_t index) const;
  // Nothing is gained unless fusions are all that reads the value, where anything reads it.
  PatternValue read_by_fusions() const;

  // About the call that the value is a result of:
  PatternValue as(std::string name) const;  // what Match calls it
  PatternValue where(NodeCondition condition) const;
  PatternValue like(const PatternValue& other) const;  // the same op with the same attributes
  // The kernel computes it again, so that others, other fusions included, may read its results.
  // Where calls are written in the place of the match, it stays, and they may read its results too.
  PatternValue again() const;

 private:
  friend class Pattern;
  friend class PatternMatcher;
  PatternValue(Pattern* pattern, int32_t id) : pattern_(pattern), id_(id) {}

  Pattern* pattern_;
  int32_t id_;
};

// A small graph to look for. Nobody but the pattern's own nodes may read a result in it that is not
// one of its outputs.
class Pattern {
 public:
  Pattern() = default;
  Pattern(const Pattern&) = delete;
  Pattern(Pattern&&) = default;

  // The kernel's inputs are in the order of these calls.
  PatternValue input(std::string name);
  // The kernel's outputs are. Those that may be left out where nobody reads them come last.
  void output(std::string name, const PatternValue& value);
  void optional_output(std::string name, const PatternValue& value);
  void where(MatchCondition condition);

  // What one fusion's kernel knows may spare another one work: a kernel of the gradient reads what
  // the kernel of the forward pass had anyway. The first hands it over, as an optional output that
  // is no value of the graph: `write` says what it is.
  void hand_over(std::string name, const PatternValue& of, ValueWriter write);
  // The other one takes an output of the fusion, earlier in the list, in whose match `known` is,
  // and is dropped together with that. Nodes of the pattern don't read it; such inputs come last.
  void take_over(std::string name, const PatternValue& known);
  // Is this part in the pattern? Patterns are looked for with each part and without, those with
  // more parts first.
  bool has(std::string_view part);

 private:
  friend class PatternValue;
  friend class PatternMatcher;
  friend class Match;
  friend class FusionPass;
  friend std::vector<Pattern> all_patterns(void (*write)(Pattern&));

  struct Call {
    const OpDef* op = nullptr;  // null: any for which the conditions hold
    std::vector<NodeCondition> conditions;
    std::vector<int32_t> operands;  // values
    std::vector<int32_t> results;   // values by output; kNoValue where the pattern has none
    std::string name;
    int32_t like = -1;  // a call
    bool again = false;
  };
  struct Value {
    int32_t call = -1;  // -1 for an input
    size_t output = 0;
    bool by_fusions = false;  // is anything that reads it a part of a fusion?
  };
  struct Named {
    std::string name;
    int32_t value;
  };

  struct HandedOver {
    int32_t of;  // a value
    ValueWriter write;
  };

  PatternValue add_call(const OpDef* op, std::vector<PatternValue> operands);
  Call& call_of(int32_t value);
  std::optional<size_t> find_output(std::string_view name) const;

  std::vector<Value> values_;
  std::vector<Call> calls_;
  std::vector<Named> inputs_;
  std::vector<Named> outputs_;
  std::vector<HandedOver> handed_over_;  // the last outputs
  std::vector<int32_t> taken_over_;      // of each of the last inputs the value that is known
  std::vector<MatchCondition> conditions_;
  size_t num_required_ = 0;  // of the outputs
  size_t first_ = 0;         // the call that a search begins with
  // The parts that were asked for, and whether each is in.
  std::vector<std::pair<std::string, bool>> parts_;
  size_t num_asked_ = 0;
};

// Where a pattern was found. Names are those of the pattern.
class Match {
 public:
  bool has(std::string_view name) const;          // is there such a call or input?
  const Node& node(std::string_view call) const;  // its values are those of the graph around
  // Of an input, an output, or the first result of a call.
  const TensorSpec& spec(std::string_view name) const;
  // Where the kernel's arguments have it.
  size_t input(std::string_view name) const;
  size_t output(std::string_view name) const;
  // The one element of an input that is a constant or a broadcast one.
  std::optional<double> constant(std::string_view input) const;
  // All elements of an input that is a constant, possibly of another shape; null where it is none.
  const Tensor* constant_tensor(std::string_view input) const;
  // The match that the inputs are taken over from, while a kernel is planned.
  const Match& giver() const { return *giver_; }

  // The call of the whole, with all attributes by the names of their calls: "argmax.axis".
  PlanRequest request() const;
  // A kernel that runs the nodes one after another, as they are, for what the fusion's kernel can't
  // do at a run.
  std::unique_ptr<Kernel> plan_body() const;

  bool allow_tf32() const { return allow_tf32_; }
  bool autotune() const { return autotune_; }

 private:
  friend class FusionPass;

  const Pattern* pattern_ = nullptr;
  const Graph* graph_ = nullptr;  // around
  const Match* giver_ = nullptr;
  std::vector<ValueId> values_;    // of the graph, by value of the pattern
  std::vector<Node> nodes_;        // by call of the pattern
  std::vector<TensorSpec> specs_;  // by value of the pattern
  std::vector<TensorSpec> inputs_, outputs_;
  Attributes all_attributes_;
  BodyPtr body_;
  Device device_;
  bool allow_tf32_ = true;
  bool autotune_ = false;
};

// Writes the calls that take the place of a match. Values are those of the new graph.
class Replacement {
 public:
  Replacement(GraphRewriter& rewriter, const std::vector<ValueId>& inputs, const Scope& scope)
      : rewriter_(rewriter), inputs_(inputs), scope_(scope) {}

  // In the order in which the pattern declares them.
  const std::vector<ValueId>& inputs() const { return inputs_; }
  // The results of a node that stays (PatternValue::again).
  std::vector<ValueId> results(const Node& node) const;
  std::vector<ValueId> call(const OpDef& op, const std::vector<ValueId>& inputs,
                            const Attributes& attributes);
  // The call of a node of the match with other inputs.
  std::vector<ValueId> call(const Node& node, const std::vector<ValueId>& inputs);

 private:
  GraphRewriter& rewriter_;
  const std::vector<ValueId>& inputs_;
  const Scope& scope_;
};

// It has one of the two functions, `plan` or `write`.
struct Fusion {
  std::string_view name;
  // Writes the pattern. A search begins with its first call of one op that is not made again, or
  // with the first call of any op where there is no such one.
  void (*pattern)(Pattern& pattern);
  // Null where there is no kernel for the match, or none that is faster than the nodes one by one.
  // The device is current.
  std::unique_ptr<Kernel> (*plan)(const Match& match) = nullptr;
  // Gives what takes the place of the pattern's outputs.
  std::vector<ValueId> (*write)(const Match& match, Replacement& replacement) = nullptr;
  // Is it looked for in what normalizations are expanded to, rather than before?
  bool of_expanded = false;
};

// The patterns of a fusion, with and without its parts; made once.
const std::vector<Pattern>& patterns_of(const Fusion& fusion);

// The kernel that was planned for a call of the op `fused`.
const std::shared_ptr<Kernel>& fused_kernel(const Attributes& attributes);

// The attributes of the same call of `fused` with a kernel that leaves its partial sums
// (Kernel::leave_partial_sums): its outputs are stacks of as many as the attribute "copies" says.
// Nothing where the kernel makes none.
std::optional<Attributes> leave_partial_sums(const Node& node);

// The outputs of a node from this index on may be left out: the kernel gets null where nobody reads
// one.
size_t first_optional_output(const Node& node);

}  // namespace kerascnn
