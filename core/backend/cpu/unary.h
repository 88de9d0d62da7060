// The loop of every op of one operand.
#pragma once

#include "core/backend/cpu/element_loops.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/parallel.h"
#include "core/ops/element_functions.h"

namespace kerascnn::cpu {

template <ElementOp op, typename T>
std::unique_ptr<Kernel> make_unary_kernel(const PlanRequest& request, double parameter0 = 0,
                                          double parameter1 = 0) {
  using C = compute_t<T>;
  using Out = std::conditional_t<element_result_is_bool(op), bool, T>;
  const int64_t size = size_of(request.outputs[0]);
  const C p0 = static_cast<C>(parameter0);
  const C p1 = static_cast<C>(parameter1);
  if constexpr (std::is_same_v<C, float> && !element_result_is_bool(op)) {
    if (const ElementLoop loop = element_loop(op); loop != nullptr) {
      return make_kernel("kerascnn elementwise", [size, p0, p1, loop](const KernelArgs& args) {
        parallel_for(size, kElementGrain, [&](int64_t begin, int64_t end) {
          run_element_loop<T>(loop, input<T>(args, 0) + begin, nullptr, output<T>(args, 0) + begin,
                              end - begin, p0, p1);
        });
      });
    }
  }
  return make_kernel("kerascnn elementwise", [size, p0, p1](const KernelArgs& args) {
    const T* x = input<T>(args, 0);
    Out* out = output<Out>(args, 0);
    parallel_for(size, kElementGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        out[i] = static_cast<Out>(element_apply<op, C>(static_cast<C>(x[i]), C(), C(), p0, p1));
      }
    });
  });
}

}  // namespace kerascnn::cpu
