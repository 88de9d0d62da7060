// Integer operands that name positions: labels, indices, orders.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/backend/cuda/device/types.cuh"

namespace kerascnn::cuda {

// Calls function(Type<Index>()) for the two dtypes of labels and indices.
template <typename Function>
decltype(auto) dispatch_label(std::string_view op, DType dtype, Function&& function) {
  switch (dtype) {
    case DType::Int32:
      return function(Type<int32_t>());
    case DType::Int64:
      return function(Type<int64_t>());
    default:
      unsupported_dtype(op, dtype);
  }
}

__device__ __forceinline__ int64_t clamp_index(int64_t index, int64_t length) {
  return index < 0 ? 0 : (index < length ? index : length - 1);
}

}  // namespace kerascnn::cuda
