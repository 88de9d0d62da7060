// The rows of factors in shared memory are padded so that what the lanes of a warp read together
// falls into 32 different banks; the three rules are for the three ways to read.
#pragma once

#include "core/backend/cuda/tiles/async_copy.cuh"

namespace kerascnn::cuda {

// For rows of a multiple of 8 words that are read across: 4 neighbouring words of 8 rows at a time,
// or 8 of every second row. The distance between rows is an odd multiple of 4 words.
__host__ __device__ constexpr int padded_across(int words) { return words + 4; }

// For rows of a multiple of 8 words that are read down: 8 neighbouring words of 4 rows at a time.
// The distance between rows is an odd multiple of 8 words.
__host__ __device__ constexpr int padded_down(int words) {
  return words % 16 == 0 ? words + 8 : words;
}

// For rows of a multiple of 16 words that are read across in vectors of 4: 16 neighbouring words of
// 2 rows at a time. The distance between rows is an odd multiple of 16 words.
__host__ __device__ constexpr int padded_vectors(int words) {
  return words % 32 == 16 ? words : words + 16;
}

// This is a piece of one factor for a turn of a main loop: kLines of its lines (rows of the first
// factor, columns of the second) by kDepth of the summed axis, in the order that memory has. With
// kDeep the summed axis is the contiguous one.
template <int kLines, int kDepth, bool kDeep>
struct SharedTile {
  static constexpr int kRows = kDeep ? kLines : kDepth;
  static constexpr int kColumns = kDeep ? kDepth : kLines;

  float rows[kRows][kDeep ? padded_across(kColumns) : padded_down(kColumns)];

  __device__ __forceinline__ float at(int line, int k) const {
    return kDeep ? rows[line][k] : rows[k][line];
  }

  // Spreads the tile's vectors of 4 over kThreads threads, all of a block: calls function(number,
  // row, column) for each of a thread's.
  template <int kThreads, typename Function>
  __device__ __forceinline__ static void for_each_vector(Function function) {
    constexpr int kAcross = kColumns / 4, kOfThread = kRows * kAcross / kThreads;
    static_assert(kColumns % 4 == 0 && kRows * kAcross % kThreads == 0);
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      const int vector = static_cast<int>(threadIdx.x) + i * kThreads;
      function(i, vector / kAcross, vector % kAcross * 4);
    }
  }

  // Starts to copy a vector; zeros where it is not valid. `from` must be an address in any case.
  __device__ __forceinline__ void start_copy(int row, int column, const float* from, bool valid) {
    copy_async_16(&rows[row][column], from, valid);
  }
};

}  // namespace kerascnn::cuda
