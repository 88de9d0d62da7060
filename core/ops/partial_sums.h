// Results that come as several partial sums. A kernel that spreads a long sum over the device first
// makes some copies of its result, each with a share of the sum, and then adds them up. Ops that
// allow it take the attribute "copies": then each output is the stack of the copies, with one more
// axis in front, and whoever reads it adds up. Only the sum of a stack is defined, not how it is
// spread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/attributes.h"
#include "core/ops/op.h"

namespace kerascnn {

// 0 where the sum is asked for. Throws ValueError that starts with the op's name.
int64_t num_copies(std::string_view op, const Attributes& attributes);

// The specs of sums as the attributes ask for them: themselves, or stacks.
std::vector<TensorSpec> stack_sums(std::string_view op, const Attributes& attributes,
                                   std::vector<TensorSpec> sums);

// The same call that makes the sums.
Attributes without_copies(const Attributes& attributes);

}  // namespace kerascnn
