// The loops of channel_kernels.h, compiled once for each instruction set (see simd.h).
#pragma once

#include "core/backend/cpu/channel_kernels.h"
#include "core/backend/cpu/simd.h"

namespace kerascnn::cpu::KERASCNN_SIMD {

namespace {

// Sums of up to so many rows are kept in float, longer ones in double.
constexpr int64_t kChannelSumRows = 64;

void normalize(const NormalizedColumns& columns, const float* x, int64_t rows, int64_t width,
               float* y) {
  const auto [mean, rest, scale, shift] = columns;
  for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
    for (int64_t c = 0; c < width; c += kWidth) {
      const int64_t count = width - c;
      const Vec centered =
          load_some(x + c, count) - load_some(mean + c, count) - load_some(rest + c, count);
      store_some(y + c, fma(centered, load_some(scale + c, count), load_some(shift + c, count)),
                 count);
    }
  }
}

// What is added up for each element: of x by itself, or of a gradient and x.
struct Moments {
  const float* x;
  const float* middle;

  KERASCNN_INLINE void add(int64_t at, int64_t count, Vec center, Vec& sum, Vec& product) const {
    const Vec off = load_some(x + at, count) - center;
    sum += off;
    product = fma(off, off, product);
  }
};

struct GradientSums {
  const float* gy;
  const float* x;
  const float* middle;

  KERASCNN_INLINE void add(int64_t at, int64_t count, Vec center, Vec& sum, Vec& product) const {
    const Vec gradient = load_some(gy + at, count);
    sum += gradient;
    product = fma(gradient, load_some(x + at, count) - center, product);
  }
};

// Adds up `count` columns from `column` on, which are at most `vectors` vectors.
template <int vectors, typename Terms>
KERASCNN_INLINE void sum_terms_of(const Terms& terms, int64_t column, int64_t count, int64_t rows,
                                  int64_t width, double* sums, double* products) {
  Vec middle[vectors];
  for (int v = 0; v < vectors; ++v) {
    middle[v] = load_some(terms.middle + column + v * kWidth, count - v * kWidth);
  }
  for (int64_t first = 0; first < rows; first += kChannelSumRows) {
    const int64_t last = first + kChannelSumRows < rows ? first + kChannelSumRows : rows;
    Vec sum[vectors] = {}, product[vectors] = {};
    for (int64_t row = first; row < last; ++row) {
      for (int v = 0; v < vectors; ++v) {
        terms.add(row * width + column + v * kWidth, count - v * kWidth, middle[v], sum[v],
                  product[v]);
      }
    }
    for (int v = 0; v < vectors; ++v) {
      const int64_t lanes = count - v * kWidth < kWidth ? count - v * kWidth : kWidth;
      for (int64_t lane = 0; lane < lanes; ++lane) {
        sums[column + v * kWidth + lane] += sum[v][lane];
        products[column + v * kWidth + lane] += product[v][lane];
      }
    }
  }
}

template <typename Terms>
void sum_terms(const Terms& terms, int64_t rows, int64_t width, double* sums, double* products) {
  constexpr int64_t kColumns = 4 * kWidth;
  int64_t column = 0;
  for (; column + kColumns <= width; column += kColumns) {
    sum_terms_of<4>(terms, column, kColumns, rows, width, sums, products);
  }
  for (; column < width; column += kWidth) {
    sum_terms_of<1>(terms, column, width - column, rows, width, sums, products);
  }
}

void sum_moments(const float* x, const float* shift, int64_t rows, int64_t width, double* sums,
                 double* squares) {
  sum_terms(Moments{x, shift}, rows, width, sums, squares);
}

void sum_gradients(const float* gy, const float* x, const float* mean, int64_t rows, int64_t width,
                   double* sums, double* products) {
  sum_terms(GradientSums{gy, x, mean}, rows, width, sums, products);
}

void normalize_grad(const NormalizedGradients& columns, const float* gy, const float* x,
                    int64_t rows, int64_t width, float* gx) {
  const auto [mean, scale, level, slope] = columns;
  for (int64_t row = 0; row < rows; ++row, gy += width, x += width, gx += width) {
    for (int64_t c = 0; c < width; c += kWidth) {
      const int64_t count = width - c;
      const Vec centered = load_some(x + c, count) - load_some(mean + c, count);
      const Vec gradient = load_some(gy + c, count) - load_some(level + c, count);
      store_some(gx + c,
                 load_some(scale + c, count) * (gradient - centered * load_some(slope + c, count)),
                 count);
    }
  }
}

}  // namespace

const ChannelKernels kChannelKernels = {
    .name = KERASCNN_STRING(KERASCNN_SIMD),
    .normalize = normalize,
    .sum_moments = sum_moments,
    .sum_gradients = sum_gradients,
    .normalize_grad = normalize_grad,
};

}  // namespace kerascnn::cpu::KERASCNN_SIMD
