// An activation chosen at run time, and its gradient, for the ends of kernels.
#pragma once

#include "core/ops/activation_kind.h"
#include "core/ops/element_functions.h"

namespace kerascnn::cuda {

template <typename T>
__device__ __forceinline__ T activate(Activation activation, T x, T alpha) {
  switch (activation) {
#define KERASCNN_CASE(kind, op, ...) \
  case Activation::kind:             \
    return element_apply<ElementOp::op>(x, T(), T(), alpha);
    KERASCNN_ACTIVATION_LIST(KERASCNN_CASE)
#undef KERASCNN_CASE
    default:
      return x;
  }
}

// The same for N values, with one branch for all of them.
template <typename T, int N>
__device__ __forceinline__ void activate_all(Activation activation, T (&x)[N], T alpha) {
  switch (activation) {
#define KERASCNN_CASE(kind, op, ...)                              \
  case Activation::kind:                                          \
    _Pragma("unroll") for (int k = 0; k < N; ++k) {               \
      x[k] = element_apply<ElementOp::op>(x[k], T(), T(), alpha); \
    }                                                             \
    break;
    KERASCNN_ACTIVATION_LIST(KERASCNN_CASE)
#undef KERASCNN_CASE
    default:
      break;
  }
}

// The gradient before the activation, from the gradient g behind it and the activation's output y.
// This is only for activations whose gradient follows from their output.
template <typename T>
__device__ __forceinline__ T activation_gradient(Activation activation, T g, T y, T alpha) {
  switch (activation) {
#define KERASCNN_CASE(kind, op, ...)                                \
  case Activation::kind:                                            \
    if constexpr (gradient_uses_output(Activation::kind)) {         \
      return element_apply<ElementOp::op##_grad>(g, y, T(), alpha); \
    }                                                               \
    break;
    KERASCNN_ACTIVATION_LIST(KERASCNN_CASE)
#undef KERASCNN_CASE
    default:
      break;
  }
  return g;
}

}  // namespace kerascnn::cuda
