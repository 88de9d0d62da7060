// What dense and conv2d do with a finished row of sums: add the bias, apply the activation.
#pragma once

#include "core/backend/cpu/element_loops.h"
#include "core/ops/activation_kind.h"
#include "core/ops/element_functions.h"

namespace kerascnn::cpu {

template <typename T>
void apply_activation(const ActivationCall& call, T* values, int64_t count) {
  const T parameter = static_cast<T>(call.alpha);
  const auto apply = [&]<ElementOp op>(ElementOpConstant<op>) {
    if constexpr (std::is_same_v<T, float>) {
      element_loop(op)(values, nullptr, values, count, parameter, 0.0f);
    } else {
      for (int64_t i = 0; i < count; ++i) {
        values[i] = element_apply<op, T>(values[i], T(), T(), parameter);
      }
    }
  };
  switch (call.kind) {
    case Activation::Linear:
      return;
    case Activation::Relu:
      return apply(ElementOpConstant<ElementOp::relu>());
    case Activation::LeakyRelu:
      return apply(ElementOpConstant<ElementOp::leaky_relu>());
    case Activation::ClippedRelu:
      return apply(ElementOpConstant<ElementOp::clipped_relu>());
    case Activation::Elu:
      return apply(ElementOpConstant<ElementOp::elu>());
    case Activation::Sigmoid:
      return apply(ElementOpConstant<ElementOp::sigmoid>());
    case Activation::Tanh:
      return apply(ElementOpConstant<ElementOp::tanh>());
    case Activation::Gelu:
      return apply(ElementOpConstant<ElementOp::gelu>());
    case Activation::Silu:
      return apply(ElementOpConstant<ElementOp::silu>());
    case Activation::Softplus:
      return apply(ElementOpConstant<ElementOp::softplus>());
  }
}

// values (rows, columns): bias, which may be null, then the activation.
template <typename T>
void apply_epilogue(const T* bias, const ActivationCall& call, T* values, int64_t rows,
                    int64_t columns) {
  if (bias != nullptr) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t j = 0; j < columns; ++j) values[row * columns + j] += bias[j];
    }
  }
  apply_activation(call, values, rows * columns);
}

}  // namespace kerascnn::cpu
