// What dense and conv2d do with a finished row of sums: add the bias, apply the activation.
#pragma once

#include "core/backend/cpu/element_loops.h"
#include "core/ops/activation_kind.h"
#include "core/ops/element_functions.h"

namespace kerascnn::cpu {

template <typename T>
void apply_activation(const ActivationCall& call, T* values, int64_t count) {
  const T parameter = static_cast<T>(call.alpha);
  dispatch_activation(call.kind, [&]<ElementOp op>(ElementOpConstant<op>) {
    if constexpr (std::is_same_v<T, float>) {
      element_loop(op)(values, nullptr, values, count, parameter, 0.0f);
    } else {
      for (int64_t i = 0; i < count; ++i) {
        values[i] = element_apply<op, T>(values[i], T(), T(), parameter);
      }
    }
  });
}

// Adds the bias, which may be null, to values (rows, columns), then applies the activation.
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
