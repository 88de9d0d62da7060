// add, subtract, multiply, divide, power, maximum, minimum with broadcasting.
#include "core/backend/cpu/binary.h"

#include "core/backend/cpu/kernels.h"

namespace kerascnn::cpu {

namespace {

template <ElementOp op>
std::unique_ptr<Kernel> plan_arithmetic(const PlanRequest& request) {
  return dispatch_number(request, request.inputs[0].dtype,
                         [&]<typename T>(Type<T>) { return make_binary_kernel<op, T>(request); });
}

}  // namespace

std::unique_ptr<Kernel> plan_add(const PlanRequest& request) {
  return plan_arithmetic<ElementOp::add>(request);
}
std::unique_ptr<Kernel> plan_subtract(const PlanRequest& request) {
  return plan_arithmetic<ElementOp::subtract>(request);
}
std::unique_ptr<Kernel> plan_multiply(const PlanRequest& request) {
  return plan_arithmetic<ElementOp::multiply>(request);
}
std::unique_ptr<Kernel> plan_divide(const PlanRequest& request) {
  return dispatch_floating(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_binary_kernel<ElementOp::divide, T>(request);
  });
}
std::unique_ptr<Kernel> plan_power(const PlanRequest& request) {
  return plan_arithmetic<ElementOp::power>(request);
}
std::unique_ptr<Kernel> plan_maximum(const PlanRequest& request) {
  return plan_arithmetic<ElementOp::maximum>(request);
}
std::unique_ptr<Kernel> plan_minimum(const PlanRequest& request) {
  return plan_arithmetic<ElementOp::minimum>(request);
}

}  // namespace kerascnn::cpu
