// The ops that own graphs (body.h): `loop` runs one again and again, `switch` one of several.
//
// loop: inputs {count}? {carries} {slices} {others}; the body's inputs are the carries as they are,
// one row of each of the slices, and the others; its outputs the carries' next values and one row
// of each stack. Outputs {carries} {stacks} {count}? {saved carries}?
//
//   bodies   [body] or [body, condition]; the condition reads what the body does but the slices,
//   and
//            gives a bool. The loop ends where it is false, and `count` says after how many steps.
//   length   The number of steps, or the most; -1 for no limit, which needs a condition. The first
//            axis of slices, stacks and saved carries.
//   carries, slices   how many inputs are which
//   reverse  Steps take and leave the rows from the last to the first.
//   counted  The first input, an int64 scalar, says how many of the steps are made, and the rows
//            are those before it.
//
// Saved carries are there where the length is known, for gradients: row i has the carry that the
// step of row i began with. Rows of stacks and saved carries that no step leaves are 0.
//
// switch: inputs {index} {operands}; runs the body of that number, the first or last for an index
// outside. Each body's inputs are the operands.
#pragma once

#include <string>
#include <vector>

#include "core/graph/body.h"
#include "core/ops/op.h"

namespace kerascnn {

struct LoopShape {
  BodyPtr body;
  BodyPtr condition;  // null where there is none
  int64_t length = 0;
  bool reverse = false;
  bool counted = false;
  size_t num_carries = 0;
  size_t num_slices = 0;
  size_t num_others = 0;
  size_t num_stacks = 0;

  size_t first_carry() const { return counted ? 1 : 0; }  // of the inputs
  size_t first_slice() const { return first_carry() + num_carries; }
  size_t first_other() const { return first_slice() + num_slices; }
  size_t count_output() const { return num_carries + num_stacks; }
  size_t first_saved() const { return count_output() + (condition != nullptr ? 1 : 0); }
  bool saves() const { return length >= 0; }
  // Of the body's inputs, from the node's.
  std::vector<TensorSpec> body_inputs(Specs inputs) const;
};

LoopShape loop_shape(const Attributes& attributes, size_t num_inputs);

}  // namespace kerascnn
