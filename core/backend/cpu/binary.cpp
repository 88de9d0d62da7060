// Arithmetic and functions of bits of two operands with broadcasting.
#include "core/backend/cpu/binary.h"

#include "core/backend/cpu/kernels.h"

namespace kerascnn::cpu {

namespace {

template <ElementOp op>
std::unique_ptr<Kernel> plan_arithmetic(const PlanRequest& request) {
  return dispatch_number(request, request.inputs[0].dtype,
                         [&]<typename T>(Type<T>) { return plan_binary<op, T>(request); });
}

template <ElementOp op>
std::unique_ptr<Kernel> plan_of_integers(const PlanRequest& request) {
  return dispatch_integer(request, request.inputs[0].dtype,
                          [&]<typename T>(Type<T>) { return plan_binary<op, T>(request); });
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
    return plan_binary<ElementOp::divide, T>(request);
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
std::unique_ptr<Kernel> plan_mod(const PlanRequest& request) {
  return plan_arithmetic<ElementOp::mod>(request);
}
std::unique_ptr<Kernel> plan_floor_divide(const PlanRequest& request) {
  return plan_arithmetic<ElementOp::floor_divide>(request);
}
std::unique_ptr<Kernel> plan_arctan2(const PlanRequest& request) {
  return dispatch_floating(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return plan_binary<ElementOp::arctan2, T>(request);
  });
}
std::unique_ptr<Kernel> plan_bitwise_and(const PlanRequest& request) {
  return plan_of_integers<ElementOp::bitwise_and>(request);
}
std::unique_ptr<Kernel> plan_bitwise_or(const PlanRequest& request) {
  return plan_of_integers<ElementOp::bitwise_or>(request);
}
std::unique_ptr<Kernel> plan_bitwise_xor(const PlanRequest& request) {
  return plan_of_integers<ElementOp::bitwise_xor>(request);
}
std::unique_ptr<Kernel> plan_left_shift(const PlanRequest& request) {
  return plan_of_integers<ElementOp::left_shift>(request);
}
std::unique_ptr<Kernel> plan_right_shift(const PlanRequest& request) {
  return plan_of_integers<ElementOp::right_shift>(request);
}

}  // namespace kerascnn::cpu
