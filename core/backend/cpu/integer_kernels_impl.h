// The kernels of integer_kernels.h, compiled once for each instruction set (see simd.h).
#pragma once

// clang-format off
#include "core/backend/cpu/simd.h"
// clang-format on

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <algorithm>

#include "core/backend/cpu/integer_kernels.h"

namespace kerascnn::cpu::KERASCNN_SIMD {

namespace {

// The words are unsigned, because sums may wrap around.
typedef uint32_t WordVec __attribute__((vector_size(kWidth * 4)));
typedef uint32_t LooseWordVec __attribute__((vector_size(kWidth * 4), aligned(4), may_alias));

constexpr int64_t kPanel = 2 * kWidth;
constexpr int64_t kRows = 6;  // with two vectors of each in registers

// Each word gets the sum of the products of its two halves.
KERASCNN_INLINE WordVec multiply_pairs(WordVec a, WordVec b) {
#if defined(__AVX512BW__)
  return reinterpret_cast<WordVec>(
      _mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<WordVec>(
      _mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__SSE2__)
  return reinterpret_cast<WordVec>(
      _mm_madd_epi16(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  const IntVec left = reinterpret_cast<IntVec>(a), right = reinterpret_cast<IntVec>(b);
  const IntVec low =
      (reinterpret_cast<IntVec>(a << 16) >> 16) * (reinterpret_cast<IntVec>(b << 16) >> 16);
  return reinterpret_cast<WordVec>(low + (left >> 16) * (right >> 16));
#endif
}

KERASCNN_INLINE uint32_t pair_of(int8_t first, int8_t second) {
  return static_cast<uint16_t>(first) | static_cast<uint32_t>(static_cast<uint16_t>(second)) << 16;
}

void pack_rows(MatrixView<int8_t> a, int64_t k, uint32_t* packed, int64_t first, int64_t last) {
  const int64_t pairs = (k + 1) / 2;
  for (int64_t i = first; i < last; ++i) {
    uint32_t* const row = packed + i * pairs;
    for (int64_t p = 0; p < k / 2; ++p) row[p] = pair_of(a.at(i, 2 * p), a.at(i, 2 * p + 1));
    if (k % 2 != 0) row[k / 2] = pair_of(a.at(i, k - 1), 0);
  }
}

void pack_panels(MatrixView<int8_t> b, int64_t k, int64_t n, uint32_t* packed, int64_t first,
                 int64_t last) {
  const int64_t pairs = (k + 1) / 2;
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t column = panel * kPanel;
    const int64_t width = std::min(kPanel, n - column);
    uint32_t* to = packed + column * pairs;
    for (int64_t p = 0; p < pairs; ++p, to += kPanel) {
      const bool is_pair = 2 * p + 1 < k;
      for (int64_t j = 0; j < width; ++j) {
        to[j] = pair_of(b.at(2 * p, column + j), is_pair ? b.at(2 * p + 1, column + j) : int8_t{0});
      }
      std::fill(to + width, to + kPanel, 0u);
    }
  }
}

template <int64_t rows>
void multiply_rows(const uint32_t* a, const uint32_t* b, int64_t columns, int64_t pairs, int32_t* c,
                   int64_t c_step) {
  WordVec sums[rows][2] = {};
  for (int64_t p = 0; p < pairs; ++p) {
    const WordVec right[2] = {*reinterpret_cast<const LooseWordVec*>(b + p * kPanel),
                              *reinterpret_cast<const LooseWordVec*>(b + p * kPanel + kWidth)};
    for (int64_t r = 0; r < rows; ++r) {
      const WordVec left = a[r * pairs + p] - WordVec{};
      for (int v = 0; v < 2; ++v) sums[r][v] += multiply_pairs(left, right[v]);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(c + r * c_step, sums[r], static_cast<size_t>(columns) * sizeof(int32_t));
  }
}

void multiply(const uint32_t* a, const uint32_t* b, int64_t rows, int64_t columns, int64_t pairs,
              int32_t* c, int64_t c_step) {
  int64_t row = 0;
  for (; row + kRows <= rows; row += kRows) {
    multiply_rows<kRows>(a + row * pairs, b, columns, pairs, c + row * c_step, c_step);
  }
  for (; row < rows; ++row) {
    multiply_rows<1>(a + row * pairs, b, columns, pairs, c + row * c_step, c_step);
  }
}

}  // namespace

const IntegerKernels kIntegerKernels = {KERASCNN_STRING(KERASCNN_SIMD), kPanel, pack_rows,
                                        pack_panels, multiply};

}  // namespace kerascnn::cpu::KERASCNN_SIMD
