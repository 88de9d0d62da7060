// Products of float32 numbers one by one in the clusters of recurrent_cluster.cuh: every thread
// holds some numbers of the recurrent kernel in registers.
//
// All arithmetic is float32, in an order that depends on the sizes alone.
#pragma once

#include "core/backend/cuda/recurrent/recurrent_cluster.cuh"

namespace kerascnn::cuda::recurrent_cluster {

// A thread holds so many numbers of the kernel for each of four columns.
constexpr int kDepth = 16;
constexpr int kFewRows = 2;
constexpr int kManyRows = 4;

// The sizes of a block that has `units` of the units and is one of `blocks`.
template <int units, int blocks>
struct Split {
  static constexpr int kUnits = units;
  static constexpr int kBlocks = blocks;
  static constexpr int kAllUnits = units * blocks;  // filled up
  static constexpr int kThreads = units * kAllUnits / kDepth;
};

// Adds up v over kLanes neighbouring lanes. Lane l keeps the sums number l / kRepeats * kHeld and
// following; kRepeats lanes have the same ones.
template <int kCount, int kLanes>
struct Reduction {
  static constexpr int kHeld = kCount > kLanes ? kCount / kLanes : 1;
  static constexpr int kRepeats = kLanes > kCount ? kLanes / kCount : 1;

  template <int count = kCount, int distance = kLanes / 2>
  static __device__ __forceinline__ void run(float (&v)[kCount], int lane) {
    if constexpr (distance > 0) {
      if constexpr (count > 1) {
        // A lane passes on the half that it won't keep.
        const bool upper = (lane & distance) != 0;
#pragma unroll
        for (int i = 0; i < count / 2; ++i) {
          const float kept = upper ? v[i + count / 2] : v[i];
          const float passed = upper ? v[i] : v[i + count / 2];
          v[i] = kept + __shfl_xor_sync(0xffffffffu, passed, distance);
        }
        run<count / 2, distance / 2>(v, lane);
      } else {
        v[0] += __shfl_xor_sync(0xffffffffu, v[0], distance);
        run<1, distance / 2>(v, lane);
      }
    }
  }
};

// sums[row * 4 + i] += values[row] . weights[i], for this lane's share of the summands: of each
// kLanes * 4 it has the four that begin at lane * 4.
template <int kRows, int kLanes, int kColumns>
__device__ __forceinline__ void multiply_rows(const float* values, int row_step, int lane,
                                              const float (&weights)[kColumns][kDepth],
                                              float (&sums)[4 * kRows]) {
#pragma unroll
  for (int chunk = 0; chunk < kDepth / 4; ++chunk) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const float4 x =
          *reinterpret_cast<const float4*>(values + row * row_step + (chunk * kLanes + lane) * 4);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        float& sum = sums[row * 4 + i];
        sum = fmaf(x.x, weights[i][chunk * 4], sum);
        sum = fmaf(x.y, weights[i][chunk * 4 + 1], sum);
        sum = fmaf(x.z, weights[i][chunk * 4 + 2], sum);
        sum = fmaf(x.w, weights[i][chunk * 4 + 3], sum);
      }
    }
  }
}

// Calls function(Split) with the split for so many units; null where there is none.
template <typename Function>
std::unique_ptr<Kernel> with_split(int64_t units, const Function& function) {
  if (units <= 32) return function(Split<32, 1>());
  if (units <= 64) return function(Split<64, 1>());
  if (units <= 128) return function(Split<32, 4>());
  if (units <= 256) return function(Split<32, 8>());
  return nullptr;
}

}  // namespace kerascnn::cuda::recurrent_cluster
