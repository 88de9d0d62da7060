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

// Quotient and remainder of sizes that are not negative; in 32 bits, which is several times faster, where
// they fit.
struct Division {
  int64_t quotient;
  int64_t remainder;
};
__device__ __forceinline__ Division divide(int64_t a, int64_t b) {
  Division result;
  if (((a | b) >> 32) == 0) {
    result.quotient = static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
  } else {
    result.quotient = a / b;
  }
  result.remainder = a - result.quotient * b;
  return result;
}

}  // namespace kerascnn::cuda
