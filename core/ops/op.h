// What an op is: shape rule, gradient and a few facts that planning needs, without device code.
// docs/adding_an_op.md describes how to add one; op_list.h is the one list of all ops.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/attributes.h"
#include "core/base/error.h"
#include "core/base/shape.h"

namespace kerascnn {

struct OpDef;

// Throws ValueError where no op has this name.
const OpDef& find_op(std::string_view name);

// An op, given by its definition or by its name, as find_op() takes it.
class OpRef {
 public:
  OpRef(const OpDef& op) : op_(&op) {}
  OpRef(std::string_view name) : op_(&find_op(name)) {}
  OpRef(const std::string& name) : op_(&find_op(name)) {}
  OpRef(const char* name) : op_(&find_op(name)) {}

  const OpDef& operator*() const { return *op_; }
  const OpDef* operator->() const { return op_; }

 private:
  const OpDef* op_;
};

using ValueId = int32_t;
constexpr ValueId kNoValue = -1;

using Specs = std::span<const TensorSpec>;

// Checks the call and returns the specs of its outputs. Throws ValueError or TypeError that starts
// with the op's name and prints the shapes received.
using InferFunction = std::vector<TensorSpec> (*)(const Attributes& attributes, Specs inputs);

// What a gradient rule sees of the call that it differentiates, and how it adds nodes to the graph
// that the call is a node of.
class GradientContext {
 public:
  virtual ~GradientContext() = default;

  ValueId input(size_t index) const { return inputs_.at(index); }
  ValueId output(size_t index) const { return outputs_.at(index); }
  size_t num_inputs() const { return inputs_.size(); }
  // kNoValue where nothing depends on that output.
  ValueId output_gradient(size_t index = 0) const { return output_gradients_.at(index); }
  // Zeros where nothing depends on that output.
  ValueId output_gradient_or_zeros(size_t index);
  const Attributes& attributes() const { return attributes_; }
  virtual const TensorSpec& spec(ValueId value) const = 0;

  ValueId apply(OpRef op, const std::vector<ValueId>& inputs, const Attributes& attributes = {});
  std::vector<ValueId> apply_all(OpRef op, const std::vector<ValueId>& inputs,
                                 const Attributes& attributes = {});
  // The op on the gradient of output 0 and on `others`, with the attributes of this call and the
  // attribute "input_shape", the shape of input 0.
  ValueId apply_with_input_shape(OpRef grad, std::vector<ValueId> others = {});
  // A constant of the shape and dtype of `like` with every element equal to `value`.
  ValueId full_like(ValueId like, double value);
  // A constant of shape () and the dtype of `like`, for the broadcasting ops.
  ValueId scalar_like(ValueId like, double value);
  // Sums `gradient` over the axes that broadcasting added, so that it has the shape of `target`.
  ValueId sum_to_shape_of(ValueId gradient, ValueId target);

 protected:
  GradientContext(std::vector<ValueId> inputs, std::vector<ValueId> outputs,
                  std::vector<ValueId> output_gradients, Attributes attributes);

 private:
  virtual std::vector<ValueId> add_node(const OpDef& op, const std::vector<ValueId>& inputs,
                                        const Attributes& attributes) = 0;
  virtual ValueId add_constant(const TensorSpec& spec, double value) = 0;

  // These are copies, since adding nodes may move the graph's.
  std::vector<ValueId> inputs_;
  std::vector<ValueId> outputs_;
  std::vector<ValueId> output_gradients_;
  Attributes attributes_;
};

// One gradient for each input, kNoValue where there is none (integers, labels, random state).
using GradientFunction = std::vector<ValueId> (*)(GradientContext& context);

// A pair (output, input) that may share memory: the kernel reads each input element before it
// writes there. The planner uses it only where both specs are equal and nothing else reads the
// input afterwards.
struct InPlace {
  size_t output;
  size_t input;
};
using InPlaceFunction = std::vector<InPlace> (*)(const Attributes& attributes, size_t num_inputs);

// What a call computes and moves, for profiles: floating point operations, of which a
// multiplication with an addition is two, and bytes to and from memory.
struct OpCost {
  int64_t flop = 0;
  int64_t bytes = 0;
};
// `usual` is what holds for most ops: one operation for each element of the largest tensor, and
// every input and output moved once.
using CostFunction = OpCost (*)(const Attributes& attributes, Specs inputs, Specs outputs,
                                OpCost usual);

struct OpDef {
  std::string_view name;
  InferFunction infer = nullptr;
  GradientFunction gradient = nullptr;
  // The reason, where there is no gradient. Exactly one of the two is set.
  std::string_view not_differentiable = {};
  InPlaceFunction in_place = nullptr;
  // Output 0 is the memory of input 0 under another shape: no kernel runs.
  bool is_view = false;
  // It is a function of each element alone (after broadcasting), so it may join a region
  // (core/graph/region.h).
  bool is_elementwise = false;
  // Calls with equal inputs and attributes are neither merged nor evaluated at compile time.
  bool is_stateful = false;
  // It runs code that is not kerascnn's own, so it is not evaluated while a program is compiled.
  bool runs_user_code = false;
  // Processes that train one model meet in its calls: in a program they stay in the order in which
  // they were recorded, which is the same in all processes.
  bool meets_processes = false;
  // It runs graphs of its own, which may take any time: it is not evaluated while a program is
  // compiled either.
  bool has_bodies = false;
  // Outputs from this index on may be left out: the kernel gets null where nothing reads one.
  size_t first_optional_output = SIZE_MAX;
  // Set where the cost is not the usual one (core/ops/cost.h).
  CostFunction cost = nullptr;
};

// Calls op.infer; a missing or mistyped attribute is reported under the op's name too.
std::vector<TensorSpec> infer_outputs(const OpDef& op, const Attributes& attributes, Specs inputs);

// The cost of a call with these specs; outputs that nothing reads are left out of `outputs`.
OpCost op_cost(const OpDef& op, const Attributes& attributes, Specs inputs, Specs outputs);

const std::vector<const OpDef*>& all_ops();

// Helpers for shape rules; all messages start with the op's name.
std::string specs_string(Specs specs);                        // "float32 (2, 3), int32 (2,)"
std::string ints_string(const std::vector<int64_t>& values);  // "[2, 2]"
void check_num_inputs(std::string_view op, Specs inputs, size_t expected);
void check_rank(std::string_view op, std::string_view argument, const TensorSpec& spec,
                size_t rank);
void check_shape(std::string_view op, std::string_view argument, const TensorSpec& spec,
                 const Shape& shape);
void check_spec(std::string_view op, std::string_view argument, const TensorSpec& spec,
                const TensorSpec& expected);
void check_same_dtype(std::string_view op, Specs inputs);
void check_same_spec(std::string_view op, Specs inputs);
void check_floating(std::string_view op, std::string_view argument, const TensorSpec& spec);
void check_number(std::string_view op, std::string_view argument, const TensorSpec& spec);
void check_integer(std::string_view op, std::string_view argument, const TensorSpec& spec);
// int32 or int64.
void check_index(std::string_view op, std::string_view argument, const TensorSpec& spec);
// An integer attribute that is at least 1.
int64_t check_positive(std::string_view op, const Attributes& attributes, std::string_view name);
// An attribute in [0, end), or in [0, end] where `includes_end`.
double check_range(std::string_view op, const Attributes& attributes, std::string_view name,
                   double end, bool includes_end = false);
double check_not_negative(std::string_view op, const Attributes& attributes, std::string_view name);
// A list attribute with `count` entries, none smaller than `minimum`.
const std::vector<int64_t>& check_ints(std::string_view op, const Attributes& attributes,
                                       std::string_view name, size_t count, int64_t minimum);

}  // namespace kerascnn
