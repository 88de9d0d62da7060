// The loop of every op of two operands.
#pragma once

#include "core/backend/cpu/element_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/ops/element_functions.h"

namespace kerascnn::cpu {

// The steps 0 and 1 get loops of their own, which the compiler can vectorize.
template <ElementOp op, typename T>
void run_binary(const void* a, int64_t a_step, const void* b, int64_t b_step, void* out,
                int64_t count, double parameter) {
  using Out = std::conditional_t<element_result_is_bool(op), bool, T>;
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  Out* to = static_cast<Out*>(out);
  const T p = static_cast<T>(parameter);
  const auto apply = [p](const T& x, const T& y) {
    return static_cast<Out>(element_apply<op, T>(x, y, T(), p, T()));
  };
  if (a_step == 1 && b_step == 1) {
    for (int64_t i = 0; i < count; ++i) to[i] = apply(x[i], y[i]);
  } else if (a_step == 1 && b_step == 0) {
    const T second = *y;
    for (int64_t i = 0; i < count; ++i) to[i] = apply(x[i], second);
  } else if (a_step == 0 && b_step == 1) {
    const T first = *x;
    for (int64_t i = 0; i < count; ++i) to[i] = apply(first, y[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = apply(x[i * a_step], y[i * b_step]);
  }
}

template <ElementOp op, typename T>
std::unique_ptr<Kernel> plan_binary(const PlanRequest& request, double parameter = 0) {
  if constexpr (std::is_same_v<compute_t<T>, float>) {
    return make_float_binary_kernel(request, run_binary<op, float>, element_loop(op), parameter);
  } else {
    return make_binary_kernel(request, run_binary<op, T>, parameter);
  }
}

}  // namespace kerascnn::cpu
