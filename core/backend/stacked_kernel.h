// The form of an op with the attribute "copies" (core/ops/partial_sums.h) for kernels that make
// the whole sum, or another number of copies: the sum is the first copy, the others are zeros.
#pragma once

#include <memory>

#include "core/backend/backend.h"

namespace kerascnn {

// Fills memory with zeros, on a stream where the device has them.
using ZeroFunction = void (*)(void* data, int64_t bytes, void* stream);

// `plan` plans the op without "copies".
std::unique_ptr<Kernel> plan_stacked(const PlanRequest& request, PlanFunction plan,
                                     ZeroFunction zero);

}  // namespace kerascnn
