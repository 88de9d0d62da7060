// Products of patches with a few filters (PatchDots of float_kernels.h), compiled once for each
// instruction set (see simd.h, which has to come first).
#pragma once

// clang-format off
#include "core/backend/cpu/simd.h"
// clang-format on

#include "core/backend/cpu/float_kernels.h"

namespace kerascnn::cpu::KERASCNN_SIMD {

namespace {

// So many pixels as, with the filters, have enough sums to hide the latency of one.
template <int filters>
constexpr int kDotPixels = filters == 1   ? 8
                           : filters == 2 ? 4
                           : filters == 3 ? 3
                                          : 2;

template <int filters, int pixels>
KERASCNN_INLINE void dot_block(const PatchDots& s, const float* x, const float* kernel, float* y) {
  Vec sums[pixels][filters] = {};
  for (int64_t row = 0; row < s.rows; ++row) {
    const float* from = x + row * s.row_step;
    const float* weights = kernel + row * filters * s.filter_step;
    const auto add = [&](int64_t at, const auto& load_vector) {
      Vec image[pixels];
      for (int p = 0; p < pixels; ++p) image[p] = load_vector(from + p * s.pixel_step + at);
      for (int f = 0; f < filters; ++f) {
        const Vec weight = load_vector(weights + f * s.filter_step + at);
        for (int p = 0; p < pixels; ++p) sums[p][f] = fma(image[p], weight, sums[p][f]);
      }
    };
    int64_t at = 0;
    for (; at + kWidth <= s.run; at += kWidth) add(at, load);
    if (at < s.run) add(at, [&](const float* part) { return load_part(part, s.run - at); });
  }
  for (int p = 0; p < pixels; ++p) {
    for (int f = 0; f < filters; ++f) y[p * s.result_step + f] = sum_lanes(sums[p][f]);
  }
}

template <int filters>
void dot_pixels(const PatchDots& s, const float* x, const float* kernel, float* y) {
  constexpr int kPixels = kDotPixels<filters>;
  int64_t p = 0;
  for (; p + kPixels <= s.pixels; p += kPixels) {
    dot_block<filters, kPixels>(s, x + p * s.pixel_step, kernel, y + p * s.result_step);
  }
  for (; p < s.pixels; ++p) {
    dot_block<filters, 1>(s, x + p * s.pixel_step, kernel, y + p * s.result_step);
  }
}

void patch_dots(const PatchDots& s, const float* x, const float* kernel, float* y) {
  static_assert(kMostDotFilters == 4);
  switch (s.filters) {
    case 1:
      return dot_pixels<1>(s, x, kernel, y);
    case 2:
      return dot_pixels<2>(s, x, kernel, y);
    case 3:
      return dot_pixels<3>(s, x, kernel, y);
    default:
      return dot_pixels<4>(s, x, kernel, y);
  }
}

}  // namespace

}  // namespace kerascnn::cpu::KERASCNN_SIMD
