// Where a thread is in a grid that loops over its items, and index arithmetic.
#pragma once

#include <cstdint>

namespace kerascnn::cuda {

__device__ __forceinline__ int64_t first_item() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t item_step() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// Quotient and remainder of sizes that are not negative. Where they fit they are divided in 32
// bits, which is several times faster.
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
