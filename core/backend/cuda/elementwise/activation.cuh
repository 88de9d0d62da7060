// An activation chosen at run time, and its gradient, for the ends of kernels.
#pragma once

#include "core/ops/activation_kind.h"
#include "core/ops/element_functions.h"

namespace kerascnn::cuda {

template <typename T>
__device__ __forceinline__ T activate(Activation kind, T x, T alpha) {
  switch (kind) {
    case Activation::Relu:
      return element::relu(x);
    case Activation::LeakyRelu:
      return element::leaky_relu(x, alpha);
    case Activation::ClippedRelu:
      return element::clipped_relu(x, alpha);
    case Activation::Elu:
      return element::elu(x, alpha);
    case Activation::Sigmoid:
      return element::sigmoid(x);
    case Activation::Tanh:
      return element::tanh(x);
    case Activation::Gelu:
      return element::gelu(x, alpha);
    case Activation::Silu:
      return element::silu(x);
    case Activation::Softplus:
      return element::softplus(x);
    default:
      return x;
  }
}

// The gradient before the activation, from the gradient g behind it and the activation's output y:
// of those of which it follows from the output.
template <typename T>
__device__ __forceinline__ T activation_gradient(Activation kind, T g, T y, T alpha) {
  switch (kind) {
    case Activation::Relu:
      return element::relu_grad(g, y);
    case Activation::LeakyRelu:
      return element::leaky_relu_grad(g, y, alpha);
    case Activation::ClippedRelu:
      return element::clipped_relu_grad(g, y, alpha);
    case Activation::Elu:
      return element::elu_grad(g, y, alpha);
    case Activation::Sigmoid:
      return element::sigmoid_grad(g, y);
    case Activation::Tanh:
      return element::tanh_grad(g, y);
    default:
      return g;
  }
}

}  // namespace kerascnn::cuda
