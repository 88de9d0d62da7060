// The ops that work on one element at a time: their names, numbers and forms. What they compute is
// in element_functions.h.
//
// The header includes nothing, so it can be part of sources compiled at run time.
#pragma once

#include "core/base/host_device.h"

namespace kerascnn {

// OP(name, number of tensor operands, number of parameters, result is bool). The parameters are:
// clip (min, max), leaky_relu and its gradient (negative_slope), clipped_relu (max_value), elu
// (alpha), gelu (approximate as 0 or 1). The numbering is part of fused_elementwise's code: append
// only.
// clang-format off
#define KERASCNN_ELEMENT_OP_LIST(OP)                                                              \
  OP(add, 2, 0, false) OP(subtract, 2, 0, false) OP(multiply, 2, 0, false)                        \
  OP(divide, 2, 0, false) OP(power, 2, 0, false)                                                  \
  OP(maximum, 2, 0, false) OP(minimum, 2, 0, false)                                               \
  OP(equal, 2, 0, true) OP(not_equal, 2, 0, true) OP(less, 2, 0, true)                            \
  OP(less_equal, 2, 0, true) OP(greater, 2, 0, true) OP(greater_equal, 2, 0, true)                \
  OP(logical_and, 2, 0, true) OP(logical_or, 2, 0, true) OP(logical_not, 1, 0, true)              \
  OP(where, 3, 0, false)                                                                          \
  OP(negative, 1, 0, false) OP(absolute, 1, 0, false) OP(sign, 1, 0, false)                       \
  OP(reciprocal, 1, 0, false) OP(square, 1, 0, false) OP(sqrt, 1, 0, false)                       \
  OP(rsqrt, 1, 0, false) OP(exp, 1, 0, false) OP(log, 1, 0, false) OP(log1p, 1, 0, false)         \
  OP(floor, 1, 0, false) OP(clip, 1, 2, false) OP(isfinite, 1, 0, true) OP(cast, 1, 0, false)     \
  OP(relu, 1, 0, false) OP(leaky_relu, 1, 1, false) OP(clipped_relu, 1, 1, false)                 \
  OP(elu, 1, 1, false) OP(sigmoid, 1, 0, false) OP(tanh, 1, 0, false) OP(gelu, 1, 1, false)       \
  OP(silu, 1, 0, false) OP(softplus, 1, 0, false)                                                 \
  OP(relu_grad, 2, 0, false) OP(leaky_relu_grad, 2, 1, false) OP(clipped_relu_grad, 2, 1, false)  \
  OP(elu_grad, 2, 1, false) OP(sigmoid_grad, 2, 0, false) OP(tanh_grad, 2, 0, false)              \
  OP(gelu_grad, 2, 1, false) OP(silu_grad, 2, 0, false) OP(softplus_grad, 2, 0, false)            \
  OP(sin, 1, 0, false) OP(cos, 1, 0, false) OP(tan, 1, 0, false) OP(arcsin, 1, 0, false)          \
  OP(arccos, 1, 0, false) OP(arctan, 1, 0, false) OP(sinh, 1, 0, false) OP(cosh, 1, 0, false)     \
  OP(arcsinh, 1, 0, false) OP(arccosh, 1, 0, false) OP(arctanh, 1, 0, false)                      \
  OP(expm1, 1, 0, false) OP(erf, 1, 0, false) OP(erfc, 1, 0, false) OP(erfinv, 1, 0, false)       \
  OP(ceil, 1, 0, false) OP(round, 1, 0, false) OP(arctan2, 2, 0, false) OP(mod, 2, 0, false)      \
  OP(floor_divide, 2, 0, false) OP(bitwise_and, 2, 0, false) OP(bitwise_or, 2, 0, false)          \
  OP(bitwise_xor, 2, 0, false) OP(left_shift, 2, 0, false) OP(right_shift, 2, 0, false)
// clang-format on

// ElementOp::add, ElementOp::relu_grad, ...: the op's own name.
enum class ElementOp : unsigned char {
#define KERASCNN_ENUMERATOR(name, operands, parameters, is_bool) name,
  KERASCNN_ELEMENT_OP_LIST(KERASCNN_ENUMERATOR)
#undef KERASCNN_ENUMERATOR
      count_
};

constexpr int kNumElementOps = static_cast<int>(ElementOp::count_);

KERASCNN_HOST_DEVICE constexpr int element_num_operands(ElementOp op) {
  switch (op) {
#define KERASCNN_CASE(name, operands, parameters, is_bool) \
  case ElementOp::name:                                    \
    return operands;
    KERASCNN_ELEMENT_OP_LIST(KERASCNN_CASE)
#undef KERASCNN_CASE
    default:
      return 0;
  }
}

KERASCNN_HOST_DEVICE constexpr int element_num_parameters(ElementOp op) {
  switch (op) {
#define KERASCNN_CASE(name, operands, parameters, is_bool) \
  case ElementOp::name:                                    \
    return parameters;
    KERASCNN_ELEMENT_OP_LIST(KERASCNN_CASE)
#undef KERASCNN_CASE
    default:
      return 0;
  }
}

KERASCNN_HOST_DEVICE constexpr bool element_result_is_bool(ElementOp op) {
  switch (op) {
#define KERASCNN_CASE(name, operands, parameters, is_bool) \
  case ElementOp::name:                                    \
    return is_bool;
    KERASCNN_ELEMENT_OP_LIST(KERASCNN_CASE)
#undef KERASCNN_CASE
    default:
      return false;
  }
}

constexpr const char* element_op_name(ElementOp op) {
  switch (op) {
#define KERASCNN_CASE(name, operands, parameters, is_bool) \
  case ElementOp::name:                                    \
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
#define KERASCNN_CASE(name, operands, parameters, is_bool) \
  case ElementOp::name:                                    \
    return function(ElementOpConstant<ElementOp::name>());
    KERASCNN_ELEMENT_OP_LIST(KERASCNN_CASE)
#undef KERASCNN_CASE
    default:
      return function(ElementOpConstant<ElementOp::add>());
  }
}

}  // namespace kerascnn
