#include "core/graph/loop.h"

#include <algorithm>

#include "core/graph/body_program.h"
#include "core/graph/loop_gradient.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

constexpr TensorSpec scalar(DType dtype) { return {dtype, {}}; }

TensorSpec row_of(std::string_view what, const TensorSpec& stack, int64_t length) {
  if (stack.shape.empty() || stack.shape[0] != length) {
    throw ValueError(message("loop: ", what, " must have ", length,
                             " rows along its first axis, one for each step; received ",
                             spec_string(stack)));
  }
  return {stack.dtype, Shape(stack.shape.begin() + 1, stack.shape.end())};
}

TensorSpec stack_of(const TensorSpec& row, int64_t length) {
  Shape shape = {length};
  shape.insert(shape.end(), row.shape.begin(), row.shape.end());
  return {row.dtype, shape};
}

std::vector<TensorSpec> infer_loop(const Attributes& attributes, Specs inputs) {
  const LoopShape shape = loop_shape(attributes, inputs.size());
  if (shape.length < (shape.condition == nullptr ? 0 : -1)) {
    throw ValueError(message("loop: a loop without a condition must have a length of at least 0, ",
                             "received ", shape.length));
  }
  if (shape.length < 0 && (shape.num_slices > 0 || shape.num_stacks > 0)) {
    throw ValueError("loop: a loop without a limit can neither take nor leave rows");
  }
  if (shape.counted && inputs[0] != scalar(DType::Int64)) {
    throw ValueError(
        message("loop: the count must be int64 (), received ", spec_string(inputs[0])));
  }
  const std::vector<TensorSpec> given = shape.body_inputs(inputs);
  check_body_inputs("loop: the body", *shape.body, given);
  std::vector<TensorSpec> outputs;
  for (size_t i = 0; i < shape.num_carries; ++i) {
    outputs.push_back(inputs[shape.first_carry() + i]);
    const TensorSpec& next = shape.body->output_spec(i);
    if (next == outputs.back()) continue;
    throw ValueError(message("loop: carry ", i, " begins as ", spec_string(outputs.back()),
                             ", but a step makes it ", spec_string(next),
                             "; a carry keeps its dtype and shape"));
  }
  for (size_t i = 0; i < shape.num_stacks; ++i) {
    outputs.push_back(stack_of(shape.body->output_spec(shape.num_carries + i), shape.length));
  }
  if (shape.condition != nullptr) {
    std::vector<TensorSpec> kept = given;
    kept.erase(kept.begin() + static_cast<int64_t>(shape.num_carries),
               kept.begin() + static_cast<int64_t>(shape.num_carries + shape.num_slices));
    check_body_inputs("loop: the condition", *shape.condition, kept);
    if (shape.condition->outputs.size() != 1 ||
        shape.condition->output_spec(0) != scalar(DType::Bool)) {
      throw ValueError("loop: the condition must give one bool of shape ()");
    }
    outputs.push_back(scalar(DType::Int64));
  }
  for (size_t i = 0; shape.saves() && i < shape.num_carries; ++i) {
    outputs.push_back(stack_of(inputs[shape.first_carry() + i], shape.length));
  }
  return outputs;
}

OpCost loop_cost(const Attributes& attributes, Specs inputs, Specs, OpCost usual) {
  const LoopShape shape = loop_shape(attributes, inputs.size());
  const OpCost step = body_cost(*shape.body);
  const int64_t steps = std::max<int64_t>(shape.length, 1);  // an unknown number counts as one
  return {step.flop * steps, usual.bytes + step.bytes * steps};
}

std::vector<TensorSpec> infer_switch(const Attributes& attributes, Specs inputs) {
  if (inputs.empty()) throw ValueError("switch: expected at least 1 input, received 0");
  if (inputs[0] != scalar(DType::Int32)) {
    throw ValueError(
        message("switch: the index must be int32 (), received ", specs_string(inputs)));
  }
  const Bodies& bodies = attributes.get_bodies("bodies");
  check_num_inputs("switch", inputs, 1 + bodies[0]->inputs.size());
  const std::vector<TensorSpec> operands(inputs.begin() + 1, inputs.end());
  std::vector<TensorSpec> outputs;
  for (size_t i = 0; i < bodies.size(); ++i) {
    const Body& body = *bodies[i];
    check_body_inputs(message("switch: branch ", i), body, operands);
    std::vector<TensorSpec> own;
    for (size_t k = 0; k < body.outputs.size(); ++k) own.push_back(body.output_spec(k));
    if (i == 0) outputs = own;
    if (own == outputs) continue;
    throw ValueError(message("switch: all branches must give results of the same shapes and ",
                             "dtypes; the first gives ", specs_string(outputs), ", branch ", i,
                             " gives ", specs_string(own)));
  }
  return outputs;
}

// The cost is that of the branch that costs most.
OpCost switch_cost(const Attributes& attributes, Specs, Specs, OpCost usual) {
  OpCost most;
  for (const BodyPtr& body : attributes.get_bodies("bodies")) {
    const OpCost cost = body_cost(*body);
    most.flop = std::max(most.flop, cost.flop);
    most.bytes = std::max(most.bytes, cost.bytes);
  }
  return {most.flop, most.bytes + usual.bytes};
}

}  // namespace

std::vector<TensorSpec> LoopShape::body_inputs(Specs inputs) const {
  std::vector<TensorSpec> specs;
  for (size_t i = first_carry(); i < inputs.size(); ++i) {
    const bool is_slice = i >= first_slice() && i < first_other();
    specs.push_back(is_slice ? row_of("what is taken by rows", inputs[i], length) : inputs[i]);
  }
  return specs;
}

LoopShape loop_shape(const Attributes& attributes, size_t num_inputs) {
  LoopShape shape;
  const Bodies& bodies = attributes.get_bodies("bodies");
  if (bodies.size() > 2) {
    throw ValueError(message("loop: expected a body and at most one condition, received ",
                             bodies.size(), " bodies"));
  }
  shape.body = bodies[0];
  if (bodies.size() == 2) shape.condition = bodies[1];
  shape.length = attributes.get_int("length");
  shape.reverse = attributes.get_bool("reverse");
  shape.counted = attributes.get_bool("counted");
  shape.num_carries = static_cast<size_t>(std::max<int64_t>(attributes.get_int("carries"), 0));
  shape.num_slices = static_cast<size_t>(std::max<int64_t>(attributes.get_int("slices"), 0));
  if (num_inputs < shape.first_other() || shape.body->outputs.size() < shape.num_carries) {
    throw ValueError(message("loop: expected at least ", shape.first_other(), " inputs, of which ",
                             shape.num_carries, " are carries and ", shape.num_slices,
                             " slices, and a body that gives the carries; received ", num_inputs,
                             " inputs and a body with ", shape.body->outputs.size(), " outputs"));
  }
  if (num_inputs != shape.first_carry() + shape.body->inputs.size()) {
    throw ValueError(message("loop: expected ", shape.first_carry() + shape.body->inputs.size(),
                             " inputs, as the body has ", shape.body->inputs.size(), ", received ",
                             num_inputs));
  }
  shape.num_others = num_inputs - shape.first_other();
  shape.num_stacks = shape.body->outputs.size() - shape.num_carries;
  return shape;
}

const OpDef op_loop = {
    .name = "loop",
    .infer = infer_loop,
    .gradient = loop_gradient,
    .has_bodies = true,
    .first_optional_output = 0,
    .cost = loop_cost,
};

const OpDef op_switch = {
    .name = "switch",
    .infer = infer_switch,
    .gradient = switch_gradient,
    .has_bodies = true,
    .first_optional_output = 0,
    .cost = switch_cost,
};

}  // namespace kerascnn
