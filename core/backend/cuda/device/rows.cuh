// One row of a matrix for a warp, or for a whole block where rows are long.
#pragma once

#include <cstdint>

#include "core/backend/cuda/device/block.cuh"

namespace kerascnn::cuda {

// Rows up to this length go to warps.
constexpr int64_t kWarpRowLength = 1024;

// kLanes threads (32 or 256) share a row. All of a block's threads take part in every reduction of
// a block-wide row, and all of a warp's in a warp-wide one.
template <int kLanes>
struct RowThreads {
  static constexpr int kRowsPerBlock = kLanes == 32 ? 4 : 1;
  static constexpr int kBlock = kLanes * kRowsPerBlock;

  __device__ __forceinline__ static int lane() { return threadIdx.x % kLanes; }
  __device__ __forceinline__ static int64_t first_row() {
    return static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kLanes;
  }
  __device__ __forceinline__ static int64_t row_step() {
    return static_cast<int64_t>(gridDim.x) * kRowsPerBlock;
  }

  // Every thread of the row gets the same result.
  template <typename T, typename Combine>
  __device__ __forceinline__ static T reduce(T value, Combine combine) {
    value = warp_reduce(value, combine);
    if constexpr (kLanes > 32) {
      constexpr int kWarps = kLanes / 32;
      __shared__ T shared[kWarps];
      __syncthreads();  // the values of the reduction before have been read
      if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
      __syncthreads();
      value = shared[0];
      for (int warp = 1; warp < kWarps; ++warp) value = combine(value, shared[warp]);
    }
    return value;
  }
};

// Takes the larger one. It passes over NaN, so that a row's NaN shows in its sum of exponentials
// instead.
struct Largest {
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};

}  // namespace kerascnn::cuda
