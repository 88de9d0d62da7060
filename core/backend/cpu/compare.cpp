// Comparisons and logic with broadcasting, and where.
#include "core/backend/cpu/binary.h"
#include "core/backend/cpu/broadcast.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/backend/cpu/unary.h"

namespace kerascnn::cpu {

namespace {

template <ElementOp op>
std::unique_ptr<Kernel> plan_comparison(const PlanRequest& request) {
  return dispatch_any(request, request.inputs[0].dtype,
                      [&]<typename T>(Type<T>) { return plan_binary<op, T>(request); });
}

}  // namespace

std::unique_ptr<Kernel> plan_equal(const PlanRequest& request) {
  return plan_comparison<ElementOp::equal>(request);
}
std::unique_ptr<Kernel> plan_not_equal(const PlanRequest& request) {
  return plan_comparison<ElementOp::not_equal>(request);
}
std::unique_ptr<Kernel> plan_less(const PlanRequest& request) {
  return plan_comparison<ElementOp::less>(request);
}
std::unique_ptr<Kernel> plan_less_equal(const PlanRequest& request) {
  return plan_comparison<ElementOp::less_equal>(request);
}
std::unique_ptr<Kernel> plan_greater(const PlanRequest& request) {
  return plan_comparison<ElementOp::greater>(request);
}
std::unique_ptr<Kernel> plan_greater_equal(const PlanRequest& request) {
  return plan_comparison<ElementOp::greater_equal>(request);
}
std::unique_ptr<Kernel> plan_logical_and(const PlanRequest& request) {
  return plan_comparison<ElementOp::logical_and>(request);
}
std::unique_ptr<Kernel> plan_logical_or(const PlanRequest& request) {
  return plan_comparison<ElementOp::logical_or>(request);
}

std::unique_ptr<Kernel> plan_logical_not(const PlanRequest& request) {
  return dispatch_any(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return plan_unary<ElementOp::logical_not, T>(request);
  });
}

namespace {

template <typename T>
void where_run(const bool* condition, int64_t condition_step, const T* a, int64_t a_step,
               const T* b, int64_t b_step, T* out, int64_t count) {
  if (condition_step == 1 && a_step == 1 && b_step == 1) {
    for (int64_t i = 0; i < count; ++i) out[i] = host_math::select(condition[i], a[i], b[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = host_math::select(condition[i * condition_step], a[i * a_step], b[i * b_step]);
    }
  }
}

}  // namespace

// Only moves elements, so it is compiled for each element size.
std::unique_ptr<Kernel> plan_where(const PlanRequest& request) {
  const BroadcastGeometry geometry = broadcast_geometry(request.outputs[0].shape, request.inputs);
  return dispatch_size(request.outputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_kernel("kerascnn elementwise", [geometry](const KernelArgs& args) {
      const bool* condition = input<bool>(args, 0);
      const T* a = input<T>(args, 1);
      const T* b = input<T>(args, 2);
      T* out = output<T>(args, 0);
      const int64_t steps[3] = {geometry.strides[0].back(), geometry.strides[1].back(),
                                geometry.strides[2].back()};
      parallel_for(geometry.size, kElementGrain, [&](int64_t begin, int64_t end) {
        for_each_run<3>(geometry, begin, end, [&](int64_t at, const auto& offsets, int64_t count) {
          where_run(condition + offsets[0], steps[0], a + offsets[1], steps[1], b + offsets[2],
                    steps[2], out + at, count);
        });
      });
    });
  });
}

}  // namespace kerascnn::cpu
