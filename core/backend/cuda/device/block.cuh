// Sums and maxima across a warp or a block, always in the same order.
#pragma once

#include <cstdint>

namespace kerascnn::cuda {

constexpr unsigned kFullWarp = 0xffffffffu;

template <typename T, typename Combine>
__device__ __forceinline__ T warp_reduce(T value, Combine combine) {
  for (int lane = 16; lane > 0; lane /= 2) {
    value = combine(value, __shfl_xor_sync(kFullWarp, value, lane));
  }
  return value;
}

struct Sum {
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};

// Tells the last block of `count` to arrive that it is last. `ticket` is zero before the first
// launch and is zero again afterwards. Everything that the blocks wrote before is visible to the
// last one.
__device__ __forceinline__ bool is_last_block(unsigned* ticket, unsigned count) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc(ticket, count - 1) == count - 1;
  __syncthreads();
  if (last) __threadfence();
  return last;
}

}  // namespace kerascnn::cuda
