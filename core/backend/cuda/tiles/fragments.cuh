// A warp makes tiles of 16 rows and 8 columns of a product, from wherever a kernel has the factors.
// Kernels say how a word is found; how words are spread over the lanes is written here.
#pragma once

#include "core/backend/cuda/tiles/numbers.cuh"

namespace kerascnn::cuda {

// Adds left(i) @ right(j), over 8 words of the summed axis, to sums[i][j].
template <typename Numbers = Tf32Numbers, int kDown, int kAcross, typename Left, typename Right>
__device__ __forceinline__ void multiply_tiles(float (&sums)[kDown][kAcross][4], Left left,
                                               Right right) {
  RightFragment b[kAcross];
#pragma unroll
  for (int j = 0; j < kAcross; ++j) b[j] = right(j);
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
    const LeftFragment a = left(i);
#pragma unroll
    for (int j = 0; j < kAcross; ++j) Numbers::multiply(sums[i][j], a, b[j]);
  }
}

// Does the same over kDepth words, a multiple of 8: left(i, row, k) gives a word of a tile of 16
// rows, right(j, k, column) one of a tile of 8 columns.
template <int kDepth, typename Numbers = Tf32Numbers, int kDown, int kAcross, typename Left,
          typename Right>
__device__ __forceinline__ void multiply_depth(float (&sums)[kDown][kAcross][4], Left left,
                                               Right right) {
  static_assert(kDepth % 8 == 0);
  const int group = threadIdx.x % 32 / 4, member = threadIdx.x % 4;
#pragma unroll
  for (int k = 0; k < kDepth; k += 8) {
    multiply_tiles<Numbers>(
        sums,
        [&](int i) {
          return LeftFragment{{left(i, group, k + member), left(i, group + 8, k + member),
                               left(i, group, k + member + 4), left(i, group + 8, k + member + 4)}};
        },
        [&](int j) {
          return RightFragment{{right(j, k + member, group), right(j, k + member + 4, group)}};
        });
  }
}

// Calls function(row, column, sums) for all that the lane has of the warp's tiles: the sums are
// those of a row in `column` and the next.
template <int kDown, int kAcross, typename Function>
__device__ __forceinline__ void for_each_pair(const float (&sums)[kDown][kAcross][4],
                                              Function function) {
  const int group = threadIdx.x % 32 / 4, member = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        function(i * 16 + half * 8 + group, j * 8 + 2 * member,
                 float2{sums[i][j][half * 2], sums[i][j][half * 2 + 1]});
      }
    }
  }
}

}  // namespace kerascnn::cuda
