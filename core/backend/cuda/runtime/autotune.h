// Times kernels for one call, to take the fastest (core/backend/kernel_choice.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/backend/kernel_choice.h"

namespace kerascnn::cuda {

// Kernels of so few multiplications end before the next one is launched, so their times say
// nothing; the host's rules choose better there.
constexpr int64_t kFewProducts = int64_t{1} << 24;

// Does choose_fastest time the candidates of such a call?
inline bool is_timed(const PlanRequest& request, int64_t num_products) {
  return request.autotune && num_products > kFewProducts;
}

// Where the request allows it and there are many products, returns the candidate that is the
// fastest on the current device and computes what the first one does. Otherwise, and where there is
// not enough memory to find out, returns the first one that takes the call. Null where none does.
std::unique_ptr<Kernel> choose_fastest(const PlanRequest& request, int64_t num_products,
                                       const std::vector<KernelCandidate>& candidates);

}  // namespace kerascnn::cuda
