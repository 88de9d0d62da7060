// The loops of depthwise_kernels.h, compiled once for each instruction set (see simd.h).
#pragma once

#include "core/backend/cpu/depthwise_kernels.h"
#include "core/backend/cpu/simd.h"

namespace kerascnn::cpu::KERASCNN_SIMD {

namespace {

constexpr int kMostSums = kRegisters == 32 ? 24 : 10;

void pack(const float* from, int64_t pixels, int64_t step, int64_t count, float* out) {
  if (count >= kWidth) {
    for (int64_t i = 0; i < pixels; ++i) store(out + i * kWidth, load(from + i * step));
  } else {
    for (int64_t i = 0; i < pixels; ++i) store(out + i * kWidth, load_part(from + i * step, count));
  }
}

// A row's own sums are added to the others' at the end, so that long sums keep their digits. Where
// outputs and taps are neighbours, each pixel is loaded once for all of a block's.
template <int rows, int columns, bool are_neighbours>
void sum_row_of(const DepthwiseRow& row, const float* image, const float* gradients, float* sums) {
  constexpr int kPixels = static_cast<int>(kDepthwisePixels);
  Vec total[rows][columns] = {};
  for (int64_t pixel = 0; pixel < row.pixels; pixel += kPixels) {
    Vec gradient[kPixels];
#pragma GCC unroll 4
    for (int p = 0; p < kPixels; ++p) gradient[p] = load(gradients + (pixel + p) * kWidth);
    const float* from = image + pixel * row.step * kWidth;
#pragma GCC unroll 3
    for (int i = 0; i < rows; ++i, from += row.tap_row * kWidth) {
      if constexpr (are_neighbours) {
#pragma GCC unroll 11
        for (int at = 0; at < columns + kPixels - 1; ++at) {
          const Vec value = load(from + at * kWidth);
#pragma GCC unroll 4
          for (int p = 0; p < kPixels; ++p) {
            if (at - p < 0 || at - p >= columns) continue;
            total[i][at - p] = fma(gradient[p], value, total[i][at - p]);
          }
        }
      } else {
#pragma GCC unroll 4
        for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 8
          for (int j = 0; j < columns; ++j) {
            const Vec value = load(from + (p * row.step + j * row.tap_step) * kWidth);
            total[i][j] = fma(gradient[p], value, total[i][j]);
          }
        }
      }
    }
  }
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      float* sum = sums + (i * row.kernel_row + j) * kWidth;
      store(sum, load(sum) + total[i][j]);
    }
  }
}

// Finds the loop for the piece's columns, of at most `columns`.
template <int rows, int columns>
void sum_columns_of(const DepthwisePiece& piece, const DepthwiseRow& row, const float* image,
                    const float* gradients, float* sums) {
  if constexpr (columns > 1) {
    if (piece.columns < columns) {
      return sum_columns_of<rows, columns - 1>(piece, row, image, gradients, sums);
    }
  }
  if (row.step == 1 && row.tap_step == 1) {
    sum_row_of<rows, columns, true>(row, image, gradients, sums);
  } else {
    sum_row_of<rows, columns, false>(row, image, gradients, sums);
  }
}

constexpr int most_columns(int rows) {
  return kMostSums / rows < kMostDepthwiseColumns ? kMostSums / rows : kMostDepthwiseColumns;
}

void sum_row(const DepthwisePiece& piece, const DepthwiseRow& row, const float* image,
             const float* gradients, float* sums) {
  static_assert(kMostDepthwiseRows == 3);
  if (piece.rows == 1)
    return sum_columns_of<1, most_columns(1)>(piece, row, image, gradients, sums);
  if (piece.rows == 2)
    return sum_columns_of<2, most_columns(2)>(piece, row, image, gradients, sums);
  sum_columns_of<3, most_columns(3)>(piece, row, image, gradients, sums);
}

}  // namespace

const DepthwiseKernels kDepthwiseKernels = {
    .name = KERASCNN_STRING(KERASCNN_SIMD),
    .width = kWidth,
    .most_sums = kMostSums,
    .pack = pack,
    .sum_row = sum_row,
};

}  // namespace kerascnn::cpu::KERASCNN_SIMD
