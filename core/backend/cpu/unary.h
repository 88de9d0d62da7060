// The loop of every op of one operand.
#pragma once

#include "core/backend/cpu/element_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/ops/element_functions.h"

namespace kerascnn::cpu {

template <ElementOp op, typename T>
void run_unary(const void* x, void* out, int64_t count, double p0, double p1) {
  using C = compute_t<T>;
  using Out = std::conditional_t<element_result_is_bool(op), bool, T>;
  const T* from = static_cast<const T*>(x);
  Out* to = static_cast<Out*>(out);
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<Out>(element_apply<op, C>(static_cast<C>(from[i]), C(), C(),
                                                  static_cast<C>(p0), static_cast<C>(p1)));
  }
}

// For ops without a loop of element_loops.h.
template <ElementOp op>
void run_float_unary(const float* a, const float*, float* out, int64_t count, float p0, float p1) {
  run_unary<op, float>(a, out, count, p0, p1);
}

template <ElementOp op, typename T>
std::unique_ptr<Kernel> plan_unary(const PlanRequest& request, double p0 = 0, double p1 = 0) {
  if constexpr (std::is_same_v<compute_t<T>, float> && !element_result_is_bool(op)) {
    const ElementLoop loop = element_loop(op);
    return make_float_unary_kernel(request, loop != nullptr ? loop : run_float_unary<op>, p0, p1);
  } else {
    return make_unary_kernel(request, run_unary<op, T>, p0, p1);
  }
}

}  // namespace kerascnn::cpu
