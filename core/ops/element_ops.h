// The ops that work on one element at a time: their names, numbers and forms. What they compute is
// in element_functions.h.
//
// The header includes nothing, so it can be part of sources compiled at run time.
#pragma once

#include "core/base/host_device.h"

namespace kerascnn {

// What an op takes and gives. Ops of the first three kinds give what they take.
enum class ElementKind : unsigned char {
  Number,     // integers and floating point
  Floating,   // floating point only
  Integer,    // integers only
  Condition,  // takes any dtype, gives bool
  Own,        // operands or result of several dtypes: where, cast
};

// The one list of element ops: OP(name, number of tensor operands, number of parameters, kind). The
// ops of op_list.h, their kernels on both backends and element_apply() follow from it. The
// parameters are: clip (min, max), the one parameter of an activation and of its gradient
// (activation_kind.h).
// clang-format off
#define KERASCNN_ELEMENT_OP_LIST(OP)                                                              \
  OP(add, 2, 0, Number) OP(subtract, 2, 0, Number) OP(multiply, 2, 0, Number)                     \
  OP(divide, 2, 0, Floating) OP(power, 2, 0, Number) OP(maximum, 2, 0, Number)                    \
  OP(minimum, 2, 0, Number) OP(equal, 2, 0, Condition) OP(not_equal, 2, 0, Condition)             \
  OP(less, 2, 0, Condition) OP(less_equal, 2, 0, Condition) OP(greater, 2, 0, Condition)          \
  OP(greater_equal, 2, 0, Condition) OP(logical_and, 2, 0, Condition)                             \
  OP(logical_or, 2, 0, Condition) OP(logical_not, 1, 0, Condition) OP(where, 3, 0, Own)           \
  OP(negative, 1, 0, Number) OP(absolute, 1, 0, Number) OP(sign, 1, 0, Number)                    \
  OP(reciprocal, 1, 0, Floating) OP(square, 1, 0, Number) OP(sqrt, 1, 0, Floating)                \
  OP(rsqrt, 1, 0, Floating) OP(exp, 1, 0, Floating) OP(log, 1, 0, Floating)                       \
  OP(log1p, 1, 0, Floating) OP(floor, 1, 0, Floating) OP(clip, 1, 2, Number)                      \
  OP(isfinite, 1, 0, Condition) OP(cast, 1, 0, Own) OP(relu, 1, 0, Floating)                      \
  OP(leaky_relu, 1, 1, Floating) OP(clipped_relu, 1, 1, Floating) OP(elu, 1, 1, Floating)         \
  OP(sigmoid, 1, 0, Floating) OP(tanh, 1, 0, Floating) OP(gelu, 1, 1, Floating)                   \
  OP(silu, 1, 0, Floating) OP(softplus, 1, 0, Floating) OP(relu_grad, 2, 0, Floating)             \
  OP(leaky_relu_grad, 2, 1, Floating) OP(clipped_relu_grad, 2, 1, Floating)                       \
  OP(elu_grad, 2, 1, Floating) OP(sigmoid_grad, 2, 0, Floating) OP(tanh_grad, 2, 0, Floating)     \
  OP(gelu_grad, 2, 1, Floating) OP(silu_grad, 2, 0, Floating) OP(softplus_grad, 2, 0, Floating)   \
  OP(sin, 1, 0, Floating) OP(cos, 1, 0, Floating) OP(tan, 1, 0, Floating)                         \
  OP(arcsin, 1, 0, Floating) OP(arccos, 1, 0, Floating) OP(arctan, 1, 0, Floating)                \
  OP(sinh, 1, 0, Floating) OP(cosh, 1, 0, Floating) OP(arcsinh, 1, 0, Floating)                   \
  OP(arccosh, 1, 0, Floating) OP(arctanh, 1, 0, Floating) OP(expm1, 1, 0, Floating)               \
  OP(erf, 1, 0, Floating) OP(erfc, 1, 0, Floating) OP(erfinv, 1, 0, Floating)                     \
  OP(ceil, 1, 0, Floating) OP(round, 1, 0, Floating) OP(arctan2, 2, 0, Floating)                  \
  OP(mod, 2, 0, Number) OP(floor_divide, 2, 0, Number) OP(bitwise_and, 2, 0, Integer)             \
  OP(bitwise_or, 2, 0, Integer) OP(bitwise_xor, 2, 0, Integer) OP(left_shift, 2, 0, Integer)      \
  OP(right_shift, 2, 0, Integer)
// clang-format on

// ElementOp::add, ElementOp::relu_grad, ... have the names of the ops.
enum class ElementOp : unsigned char {
#define KERASCNN_ENUMERATOR(name, operands, parameters, kind) name,
  KERASCNN_ELEMENT_OP_LIST(KERASCNN_ENUMERATOR)
#undef KERASCNN_ENUMERATOR
      count_
};

constexpr int kNumElementOps = static_cast<int>(ElementOp::count_);

struct ElementOpForm {
  int num_operands = 0;
  int num_parameters = 0;
  ElementKind kind = ElementKind::Own;
};

KERASCNN_HOST_DEVICE constexpr ElementOpForm element_op_form(ElementOp op) {
  switch (op) {
#define KERASCNN_CASE(name, operands, parameters, kind) \
  case ElementOp::name:                                 \
    return {operands, parameters, ElementKind::kind};
    KERASCNN_ELEMENT_OP_LIST(KERASCNN_CASE)
#undef KERASCNN_CASE
    default:
      return {};
  }
}

KERASCNN_HOST_DEVICE constexpr int element_num_operands(ElementOp op) {
  return element_op_form(op).num_operands;
}
KERASCNN_HOST_DEVICE constexpr int element_num_parameters(ElementOp op) {
  return element_op_form(op).num_parameters;
}
KERASCNN_HOST_DEVICE constexpr ElementKind element_kind(ElementOp op) {
  return element_op_form(op).kind;
}
KERASCNN_HOST_DEVICE constexpr bool element_result_is_bool(ElementOp op) {
  return element_kind(op) == ElementKind::Condition;
}

#ifndef __CUDACC_RTC__  // the rest is for hosts

constexpr const char* element_op_name(ElementOp op) {
  switch (op) {
#define KERASCNN_CASE(name, operands, parameters, kind) \
  case ElementOp::name:                                 \
    return #name;
    KERASCNN_ELEMENT_OP_LIST(KERASCNN_CASE)
#undef KERASCNN_CASE
    default:
      return "";
  }
}

template <ElementOp value>
struct ElementOpConstant {
  static constexpr ElementOp op = value;
};

// Calls function(ElementOpConstant<op>()), so that a kernel's loop can be compiled for each op.
template <typename Function>
decltype(auto) dispatch_element_op(ElementOp op, Function&& function) {
  switch (op) {
#define KERASCNN_CASE(name, operands, parameters, kind) \
  case ElementOp::name:                                 \
    return function(ElementOpConstant<ElementOp::name>());
    KERASCNN_ELEMENT_OP_LIST(KERASCNN_CASE)
#undef KERASCNN_CASE
    default:
      return function(ElementOpConstant<ElementOp::add>());
  }
}

#endif

}  // namespace kerascnn
