// What several warps or blocks have in shared or global memory is added up here, always in the same
// order.
#pragma once

#include <cuda_runtime.h>

namespace kerascnn::cuda {

__device__ __forceinline__ float add(float a, float b) { return a + b; }
__device__ __forceinline__ float4 add(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// Adds up `count` values, from 1 to kMost, that lie `stride` apart. All loads may be under way
// together.
template <int kMost, typename Value>
__device__ __forceinline__ Value sum_in_order(const Value* from, int count, int stride) {
  Value sum = from[0];
#pragma unroll
  for (int i = 1; i < kMost; ++i) {
    if (i < count) sum = add(sum, from[i * stride]);
  }
  return sum;
}

}  // namespace kerascnn::cuda
