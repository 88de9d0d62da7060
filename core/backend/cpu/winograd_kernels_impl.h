// The kernels of winograd_kernels.h, compiled once for each instruction set (see simd.h).
#pragma once

// clang-format off
#include "core/backend/cpu/simd.h"
// clang-format on

#include "core/backend/cpu/winograd_kernels.h"

namespace kerascnn::cpu::KERASCNN_SIMD {

namespace {

constexpr int kInputs = kWinogradInputs;
constexpr int kOutputs = kWinogradTile;
constexpr int kTaps = 3;

// The points at which the polynomials are evaluated are 0, +-sqrt(1/2), +-sqrt(2) and infinity.
// With the paper's 0, +-1, +-2 and infinity, errors of sums over 512 channels are five times as
// large; with these they are those of a direct convolution.
constexpr float kNear = 0.70710678118654752440f;
constexpr float kFar = 1.41421356237309504880f;

// B^T of the paper, for six values that are `step` apart.
KERASCNN_INLINE void transform_six(Vec* d, int step) {
  const Vec d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step],
            d5 = d[5 * step];
  const Vec even_near = fma(splat(-2.0f), d2, d4);
  const Vec odd_near = splat(kNear) * fma(splat(-2.0f), d1, d3);
  const Vec even_far = fma(splat(-0.5f), d2, d4);
  const Vec odd_far = splat(kFar) * fma(splat(-0.5f), d1, d3);
  d[0] = fma(splat(-2.5f), d2, d0 + d4);
  d[step] = even_near + odd_near;
  d[2 * step] = even_near - odd_near;
  d[3 * step] = even_far + odd_far;
  d[4 * step] = even_far - odd_far;
  d[5 * step] = fma(splat(-2.5f), d3, d1 + d5);
}

// A^T: four sums of six values.
KERASCNN_INLINE void sum_six(const Vec* m, int step, Vec* out, int out_step) {
  const Vec even_near = m[step] + m[2 * step];
  const Vec odd_near = splat(kNear) * (m[step] - m[2 * step]);
  const Vec even_far = m[3 * step] + m[4 * step];
  const Vec odd_far = splat(kFar) * (m[3 * step] - m[4 * step]);
  out[0] = m[0] + even_near + even_far;
  out[out_step] = odd_near + odd_far;
  out[2 * out_step] = fma(splat(2.0f), even_far, splat(0.5f) * even_near);
  out[3 * out_step] = fma(splat(2.0f), odd_far, fma(splat(0.5f), odd_near, m[5 * step]));
}

// G: six values of three.
KERASCNN_INLINE void expand_three(const Vec* g, int step, Vec* out, int out_step) {
  const Vec g0 = g[0], g1 = g[step], g2 = g[2 * step];
  const Vec even_near = fma(splat(-2.0f / 3.0f), g0, splat(-1.0f / 3.0f) * g2);
  const Vec odd_near = splat(-2.0f / 3.0f * kNear) * g1;
  const Vec even_far = fma(splat(1.0f / 6.0f), g0, splat(1.0f / 3.0f) * g2);
  const Vec odd_far = splat(1.0f / 6.0f * kFar) * g1;
  out[0] = g0;
  out[out_step] = even_near + odd_near;
  out[2 * out_step] = even_near - odd_near;
  out[3 * out_step] = even_far + odd_far;
  out[4 * out_step] = even_far - odd_far;
  out[5 * out_step] = g2;
}

// A: six values of four, the transpose of sum_six.
KERASCNN_INLINE void expand_four(const Vec* g, int step, Vec* out, int out_step) {
  const Vec g0 = g[0], g1 = g[step], g2 = g[2 * step], g3 = g[3 * step];
  const Vec even_near = fma(splat(0.5f), g2, g0);
  const Vec odd_near = splat(kNear) * fma(splat(0.5f), g3, g1);
  const Vec even_far = fma(splat(2.0f), g2, g0);
  const Vec odd_far = splat(kFar) * fma(splat(2.0f), g3, g1);
  out[0] = g0;
  out[out_step] = even_near + odd_near;
  out[2 * out_step] = even_near - odd_near;
  out[3 * out_step] = even_far + odd_far;
  out[4 * out_step] = even_far - odd_far;
  out[5 * out_step] = g3;
}

// G^T: three sums of six values, the transpose of expand_three.
KERASCNN_INLINE void sum_to_three(const Vec* s, int step, Vec* out, int out_step) {
  const Vec even_near = splat(-1.0f / 3.0f) * (s[step] + s[2 * step]);
  const Vec odd_near = s[step] - s[2 * step];
  const Vec even_far = splat(1.0f / 6.0f) * (s[3 * step] + s[4 * step]);
  const Vec odd_far = s[3 * step] - s[4 * step];
  out[0] = fma(splat(2.0f), even_near, s[0] + even_far);
  out[out_step] = fma(splat(1.0f / 6.0f * kFar), odd_far, splat(-2.0f / 3.0f * kNear) * odd_near);
  out[2 * out_step] = fma(splat(2.0f), even_far, s[5 * step] + even_near);
}

// Loads `side` x `side` pixels, 0 outside of the image.
template <int side>
KERASCNN_INLINE void load_tile(const WinogradTile& tile, const float* image, Vec* d) {
  for (int i = 0; i < side; ++i) {
    const bool has_row = i >= tile.first_row && i < tile.last_row;
    const float* row = image + i * tile.row_step;
    for (int j = 0; j < side; ++j) {
      const bool is_inside = has_row && j >= tile.first_column && j < tile.last_column;
      d[i * side + j] = is_inside ? load(row + j * tile.channels) : Vec{};
    }
  }
}

bool is_zero(Vec check) {
  float sum = 0;
  for (int lane = 0; lane < kWidth; ++lane) sum += check[lane];
  return sum == 0;
}

void transform_inputs(const WinogradTile& tile, const float* image, float* out,
                      int64_t position_step) {
  for (int64_t c = 0; c < tile.channels; c += kWidth) {
    Vec d[kInputs * kInputs];
    load_tile<kInputs>(tile, image + c, d);
    for (int j = 0; j < kInputs; ++j) transform_six(d + j, kInputs);
    for (int i = 0; i < kInputs; ++i) transform_six(d + i * kInputs, 1);
    for (int p = 0; p < kInputs * kInputs; ++p) store(out + p * position_step + c, d[p]);
  }
}

bool transform_outputs(const WinogradTile& tile, const float* products, int64_t position_step,
                       float* image) {
  Vec check{};  // becomes NaN by infinity and NaN
  for (int64_t c = 0; c < tile.channels; c += kWidth) {
    Vec m[kInputs * kInputs];
    for (int p = 0; p < kInputs * kInputs; ++p) m[p] = load(products + p * position_step + c);
    Vec half[kOutputs * kInputs];
    for (int j = 0; j < kInputs; ++j) sum_six(m + j, kInputs, half + j, kInputs);
    for (int i = 0; i < kOutputs; ++i) {
      Vec out[kOutputs];
      sum_six(half + i * kInputs, 1, out, 1);
      if (i < tile.first_row || i >= tile.last_row) continue;
      float* row = image + i * tile.row_step + c;
      for (int j = 0; j < kOutputs; ++j) {
        if (j < tile.first_column || j >= tile.last_column) continue;
        check += out[j] * splat(0.0f);
        store(row + j * tile.channels, out[j]);
      }
    }
  }
  return is_zero(check);
}

void transform_kernel(const float* kernel, int64_t tap_step, int64_t filters, bool turned,
                      float* out, int64_t position_step) {
  constexpr int kAll = kTaps * kTaps;
  for (int64_t k = 0; k < filters; k += kWidth) {
    Vec g[kAll];
    for (int t = 0; t < kAll; ++t) g[t] = load(kernel + (turned ? kAll - 1 - t : t) * tap_step + k);
    Vec half[kInputs * kTaps];
    for (int j = 0; j < kTaps; ++j) expand_three(g + j, kTaps, half + j, kTaps);
    for (int i = 0; i < kInputs; ++i) {
      Vec row[kInputs];
      expand_three(half + i * kTaps, 1, row, 1);
      for (int j = 0; j < kInputs; ++j) {
        store(out + (i * kInputs + j) * position_step + k, row[j]);
      }
    }
  }
}

void transform_gradients(const WinogradTile& tile, const float* image, float* out,
                         int64_t position_step) {
  for (int64_t c = 0; c < tile.channels; c += kWidth) {
    Vec g[kOutputs * kOutputs];
    load_tile<kOutputs>(tile, image + c, g);
    Vec half[kInputs * kOutputs];
    for (int j = 0; j < kOutputs; ++j) expand_four(g + j, kOutputs, half + j, kOutputs);
    for (int i = 0; i < kInputs; ++i) {
      Vec row[kInputs];
      expand_four(half + i * kOutputs, 1, row, 1);
      for (int j = 0; j < kInputs; ++j) {
        store(out + (i * kInputs + j) * position_step + c, row[j]);
      }
    }
  }
}

bool transform_sums(const float* sums, int64_t position_step, int64_t filters, float* kernel,
                    int64_t tap_step) {
  Vec check{};
  for (int64_t k = 0; k < filters; k += kWidth) {
    Vec s[kInputs * kInputs];
    for (int p = 0; p < kInputs * kInputs; ++p) s[p] = load(sums + p * position_step + k);
    Vec half[kTaps * kInputs];
    for (int j = 0; j < kInputs; ++j) sum_to_three(s + j, kInputs, half + j, kInputs);
    for (int i = 0; i < kTaps; ++i) {
      Vec row[kTaps];
      sum_to_three(half + i * kInputs, 1, row, 1);
      for (int j = 0; j < kTaps; ++j) {
        check += row[j] * splat(0.0f);
        store(kernel + (i * kTaps + j) * tap_step + k, row[j]);
      }
    }
  }
  return is_zero(check);
}

}  // namespace

const WinogradKernels kWinogradKernels = {transform_inputs, transform_outputs, transform_kernel,
                                          transform_gradients, transform_sums};

}  // namespace kerascnn::cpu::KERASCNN_SIMD
