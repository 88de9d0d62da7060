// The loop of every op of two operands with broadcasting.
#pragma once

#include "core/backend/cpu/broadcast.h"
#include "core/backend/cpu/element_loops.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/parallel.h"
#include "core/ops/element_functions.h"

namespace kerascnn::cpu {

// out[i] = op(a[i * a_step], b[i * b_step], parameter). The steps 0 and 1 get loops of their own,
// which the compiler can vectorize; `loop` does it where both are 1, unless it is null.
template <ElementOp op, typename T, typename Out>
void binary_run(const T* a, int64_t a_step, const T* b, int64_t b_step, Out* out, int64_t count,
                compute_t<T> parameter, [[maybe_unused]] ElementLoop loop) {
  using C = compute_t<T>;
  if constexpr (std::is_same_v<C, float> && std::is_same_v<T, Out>) {
    if (a_step == 1 && b_step == 1 && loop != nullptr) {
      return run_element_loop<T>(loop, a, b, out, count, parameter, 0.0f);
    }
  }
  const auto apply = [&](const T& x, const T& y) {
    return static_cast<Out>(
        element_apply<op, C>(static_cast<C>(x), static_cast<C>(y), C(), parameter, C()));
  };
  if (a_step == 1 && b_step == 1) {
    for (int64_t i = 0; i < count; ++i) out[i] = apply(a[i], b[i]);
  } else if (a_step == 1 && b_step == 0) {
    const T y = *b;
    for (int64_t i = 0; i < count; ++i) out[i] = apply(a[i], y);
  } else if (a_step == 0 && b_step == 1) {
    const T x = *a;
    for (int64_t i = 0; i < count; ++i) out[i] = apply(x, b[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) out[i] = apply(a[i * a_step], b[i * b_step]);
  }
}

template <ElementOp op, typename T>
std::unique_ptr<Kernel> make_binary_kernel(const PlanRequest& request, double parameter = 0) {
  using Out = std::conditional_t<element_result_is_bool(op), bool, T>;
  const BroadcastGeometry geometry = broadcast_geometry(request.outputs[0].shape, request.inputs);
  const auto p = static_cast<compute_t<T>>(parameter);
  const ElementLoop loop = element_loop(op);
  return make_kernel("kerascnn elementwise", [geometry, p, loop](const KernelArgs& args) {
    const T* a = input<T>(args, 0);
    const T* b = input<T>(args, 1);
    Out* out = output<Out>(args, 0);
    const int64_t a_step = geometry.strides[0].back();
    const int64_t b_step = geometry.strides[1].back();
    parallel_for(geometry.size, kElementGrain, [&](int64_t begin, int64_t end) {
      for_each_run<2>(geometry, begin, end, [&](int64_t at, const auto& offsets, int64_t count) {
        binary_run<op, T, Out>(a + offsets[0], a_step, b + offsets[1], b_step, out + at, count, p,
                               loop);
      });
    });
  });
}

}  // namespace kerascnn::cpu
