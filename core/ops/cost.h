// Rules for what a call costs that several ops share (OpDef::cost).
#pragma once

#include "core/ops/op.h"

namespace kerascnn {

// The cost of so many operations for each element.
template <int64_t operations>
OpCost cost_per_element(const Attributes&, Specs, Specs, OpCost usual) {
  return {operations * usual.flop, usual.bytes};
}

// The call moves what it is given and computes nothing.
inline OpCost cost_of_moving(const Attributes&, Specs, Specs, OpCost usual) {
  return {0, usual.bytes};
}

// The same, but the call reads no more of its first input than it puts out.
inline OpCost cost_of_picking(const Attributes&, Specs, Specs outputs, OpCost) {
  int64_t bytes = 0;
  for (const TensorSpec& spec : outputs) bytes += num_bytes(spec);
  return {0, 2 * bytes};
}

// A product of an (m, k) and a (k, n) matrix has 2 m k n operations; there are `matrices` of them.
constexpr int64_t product_flop(int64_t m, int64_t k, int64_t n, int64_t matrices = 1) {
  return 2 * m * k * n * matrices;
}

}  // namespace kerascnn
