// The loops of float_kernels.h, compiled once for each instruction set (see simd.h, which has to
// come first: it names the set that element_functions.h is compiled for).
#pragma once

// clang-format off
#include "core/backend/cpu/simd.h"
// clang-format on

#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/float_random_impl.h"
#include "core/backend/cpu/float_softmax_impl.h"
#include "core/backend/cpu/patch_dots_impl.h"

namespace kerascnn::cpu::KERASCNN_SIMD {

namespace {

// `rows` and `columns` are given as constants where they are known, so that the loops unroll.
template <int known_rows, int known_columns>
KERASCNN_INLINE void max_pool_row(const PoolRow& row, const float* x, float* y, uint8_t* index) {
  const int64_t rows = known_rows > 0 ? known_rows : row.rows;
  const int64_t columns = known_columns > 0 ? known_columns : row.columns;
  for (int64_t pixel = 0; pixel < row.pixels; ++pixel) {
    for (int64_t c = 0; c < row.channels; c += kWidth) {
      const int64_t count = row.channels - c;
      const float* from = x + c;
      Vec largest = load_some(from, count);
      IntVec position = static_cast<int32_t>(row.first_index) - IntVec{};
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          if (i == 0 && j == 0) continue;
          take_larger(load_some(from + i * row.row_step + j * row.channels, count),
                      static_cast<int32_t>(row.first_index + i * row.index_step + j) - IntVec{},
                      largest, position);
        }
      }
      store_some(y + c, largest, count);
      if (index != nullptr) {
        store_bytes(index + c, __builtin_convertvector(position, ByteVec), count);
      }
    }
    x += row.pixel_step;
    y += row.channels;
    if (index != nullptr) index += row.channels;
  }
}

void max_pool(const PoolRow& row, const float* x, float* y, uint8_t* index) {
  if (row.rows == 2 && row.columns == 2) {
    max_pool_row<2, 2>(row, x, y, index);
  } else {
    max_pool_row<0, 0>(row, x, y, index);
  }
}

template <int known_rows, int known_columns>
KERASCNN_INLINE void max_pool_grad_row(const PoolRow& row, const float* gy, const uint8_t* index,
                                       float* gx) {
  const int64_t rows = known_rows > 0 ? known_rows : row.rows;
  const int64_t columns = known_columns > 0 ? known_columns : row.columns;
  for (int64_t pixel = 0; pixel < row.pixels; ++pixel) {
    for (int64_t c = 0; c < row.channels; c += kWidth) {
      const int64_t count = row.channels - c;
      const Vec gradient = load_some(gy + c, count);
      const IntVec position = __builtin_convertvector(load_bytes(index + c, count), IntVec);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          const auto here = static_cast<int32_t>(row.first_index + i * row.index_step + j);
          const Vec value = (position == here - IntVec{}) ? gradient : Vec{};
          store_some(gx + c + i * row.row_step + j * row.channels, value, count);
        }
      }
    }
    gx += row.pixel_step;
    gy += row.channels;
    index += row.channels;
  }
}

void max_pool_grad(const PoolRow& row, const float* gy, const uint8_t* index, float* gx) {
  if (row.rows == 2 && row.columns == 2) {
    max_pool_grad_row<2, 2>(row, gy, index, gx);
  } else {
    max_pool_grad_row<0, 0>(row, gy, index, gx);
  }
}

// Sums of up to kSumRows rows are kept in float, longer ones in double, so that a bias gradient
// over hundreds of thousands of pixels keeps its digits.
constexpr int64_t kSumRows = 64;

template <int vectors>
KERASCNN_INLINE void sum_column_block(const float* x, int64_t rows, int64_t width, double* totals) {
  for (int64_t first = 0; first < rows; first += kSumRows) {
    const int64_t last = first + kSumRows < rows ? first + kSumRows : rows;
    Vec sums[vectors] = {};
    for (int64_t row = first; row < last; ++row) {
      for (int v = 0; v < vectors; ++v) sums[v] += load(x + row * width + v * kWidth);
    }
    for (int v = 0; v < vectors; ++v) {
      for (int lane = 0; lane < kWidth; ++lane) totals[v * kWidth + lane] += sums[v][lane];
    }
  }
}

KERASCNN_INLINE void sum_last_columns(const float* x, int64_t rows, int64_t width, int64_t count,
                                      double* totals) {
  for (int64_t first = 0; first < rows; first += kSumRows) {
    const int64_t last = first + kSumRows < rows ? first + kSumRows : rows;
    Vec sums{};
    for (int64_t row = first; row < last; ++row) sums += load_part(x + row * width, count);
    for (int64_t lane = 0; lane < count; ++lane) totals[lane] += sums[lane];
  }
}

void sum_columns(const float* x, int64_t rows, int64_t width, double* totals) {
  int64_t column = 0;
  for (; column + 4 * kWidth <= width; column += 4 * kWidth) {
    sum_column_block<4>(x + column, rows, width, totals + column);
  }
  for (; column + kWidth <= width; column += kWidth) {
    sum_column_block<1>(x + column, rows, width, totals + column);
  }
  if (column < width) sum_last_columns(x + column, rows, width, width - column, totals + column);
}

void sum_moments(const float* x, int64_t rows, int64_t width, const double* shift, double* sums,
                 double* squares) {
  constexpr int64_t kColumns = 16;  // whose sums are in registers
  int64_t column = 0;
  for (; column + kColumns <= width; column += kColumns) {
    double from[kColumns], total[kColumns] = {}, square[kColumns] = {};
    std::memcpy(from, shift + column, sizeof(from));
    for (int64_t row = 0; row < rows; ++row) {
      const float* values = x + row * width + column;
      for (int64_t c = 0; c < kColumns; ++c) {
        const double off = static_cast<double>(values[c]) - from[c];
        total[c] += off;
        square[c] += off * off;
      }
    }
    for (int64_t c = 0; c < kColumns; ++c) {
      sums[column + c] += total[c];
      squares[column + c] += square[c];
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = column; c < width; ++c) {
      const double off = static_cast<double>(x[row * width + c]) - shift[c];
      sums[c] += off;
      squares[c] += off * off;
    }
  }
}

// New and old may be the same memory: each element is read before it is written, which ivdep
// promises.
void adam(const float* p, const float* g, const float* m, const float* v, float* new_p,
          float* new_m, float* new_v, int64_t count, const AdamStep& step) {
  const AdamStep s = step;
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float first = m[i] + (g[i] - m[i]) * s.one_minus_beta_1;
    const float second = v[i] + (g[i] * g[i] - v[i]) * s.one_minus_beta_2;
    new_p[i] = p[i] - first * s.alpha / (__builtin_sqrtf(second) + s.epsilon);
    new_m[i] = first;
    new_v[i] = second;
  }
}

void sgd(const float* p, const float* g, float* new_p, int64_t count, float rate) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) new_p[i] = p[i] - rate * g[i];
}

void momentum(const float* p, const float* g, const float* m, float* new_p, float* new_m,
              int64_t count, const MomentumStep& step) {
  const MomentumStep s = step;
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float change = s.rate * g[i];
    const float velocity = s.momentum * m[i] - change;
    new_p[i] = p[i] + (s.nesterov ? s.momentum * velocity - change : velocity);
    new_m[i] = velocity;
  }
}

// 16 elements, the last ones of a tensor padded: the conversions of half.h belong to another
// instruction set.
constexpr int64_t kConversion = 16;

KERASCNN_INLINE void widen_block(const Half* from, float* to) {
#if defined(__F16C__)
  for (int64_t i = 0; i < kConversion; i += 8) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(bits));
  }
#else
  for (int64_t i = 0; i < kConversion; ++i) to[i] = float_from_half_bits(from[i].bits);
#endif
}

KERASCNN_INLINE void narrow_block(const float* from, Half* to) {
#if defined(__F16C__)
  for (int64_t i = 0; i < kConversion; i += 8) {
    const __m128i bits = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), bits);
  }
#else
  for (int64_t i = 0; i < kConversion; ++i) to[i].bits = half_bits_from_float(from[i]);
#endif
}

KERASCNN_INLINE void widen_block(const BFloat16* from, float* to) {
  uint16_t bits[kConversion];
  std::memcpy(bits, from, sizeof(bits));
  uint32_t wide[kConversion];
  for (int64_t i = 0; i < kConversion; ++i) wide[i] = static_cast<uint32_t>(bits[i]) << 16;
  std::memcpy(to, wide, sizeof(wide));
}

KERASCNN_INLINE void narrow_block(const float* from, BFloat16* to) {
  typedef uint32_t Words __attribute__((vector_size(4 * kWidth)));
  typedef uint16_t Halves __attribute__((vector_size(2 * kWidth)));
  for (int64_t i = 0; i < kConversion; i += kWidth) {
    const Words bits = reinterpret_cast<Words>(load(from + i));
    // As signed integers, because AVX2 compares no others.
    const Words is_nan =
        reinterpret_cast<Words>(reinterpret_cast<IntVec>(bits & 0x7fffffffu) > 0x7f800000);
    const Words rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    const Words narrow = ((is_nan & (bits | 0x00400000u)) | (~is_nan & rounded)) >> 16;
    const Halves halves = __builtin_convertvector(narrow, Halves);
    std::memcpy(static_cast<void*>(to + i), &halves, sizeof(halves));
  }
}

template <typename From, typename To, typename Block>
KERASCNN_INLINE void convert(const From* from, To* to, int64_t count, const Block& block) {
  int64_t i = 0;
  for (; i + kConversion <= count; i += kConversion) block(from + i, to + i);
  if (i == count) return;
  From last[kConversion] = {};
  To converted[kConversion];
  std::memcpy(last, from + i, static_cast<size_t>(count - i) * sizeof(From));
  block(last, converted);
  std::memcpy(to + i, converted, static_cast<size_t>(count - i) * sizeof(To));
}

void widen_half(const Half* from, float* to, int64_t count) {
  convert(from, to, count, [](const Half* x, float* y) { widen_block(x, y); });
}

void widen_bfloat16(const BFloat16* from, float* to, int64_t count) {
  convert(from, to, count, [](const BFloat16* x, float* y) { widen_block(x, y); });
}

void narrow_half(const float* from, Half* to, int64_t count) {
  convert(from, to, count, [](const float* x, Half* y) { narrow_block(x, y); });
}

void narrow_bfloat16(const float* from, BFloat16* to, int64_t count) {
  convert(from, to, count, [](const float* x, BFloat16* y) { narrow_block(x, y); });
}

// Without the sign bit, the bits of floats are integers in the same order.
uint32_t largest_magnitude(const float* x, int64_t count) {
  constexpr int kLanes = 4;  // as many maxima at a time as hide the latency of one
  const IntVec magnitude = 0x7fffffff - IntVec{};
  IntVec largest[kLanes] = {};
  const auto take = [&](Vec value, int lane) {
    const IntVec bits = reinterpret_cast<IntVec>(value) & magnitude;
    largest[lane] = bits > largest[lane] ? bits : largest[lane];
  };
  int64_t i = 0;
  for (; i + kLanes * kWidth <= count; i += kLanes * kWidth) {
    for (int lane = 0; lane < kLanes; ++lane) take(load(x + i + lane * kWidth), lane);
  }
  for (; i < count; i += kWidth) take(load_some(x + i, count - i), 0);
  int32_t result = 0;
  for (const IntVec& lane : largest) {
    for (int k = 0; k < kWidth; ++k) result = lane[k] > result ? lane[k] : result;
  }
  return static_cast<uint32_t>(result);
}

// `pixels` neighbouring pixels of gy times `vectors` vectors of a kernel row, summed over the
// filters in registers, then added where the patches overlap.
template <int pixels, int vectors>
KERASCNN_INLINE void scatter_block(const ScatterConvolution& s, const float* gy,
                                   const float* kernel, float* gx) {
  Vec sums[pixels][vectors] = {};
  for (int64_t filter = 0; filter < s.filters; ++filter) {
    Vec weights[vectors];
    for (int v = 0; v < vectors; ++v) weights[v] = load(kernel + filter * s.run + v * kWidth);
    for (int p = 0; p < pixels; ++p) {
      const Vec gradient = splat(gy[p * s.filters + filter]);
      for (int v = 0; v < vectors; ++v) sums[p][v] = fma(gradient, weights[v], sums[p][v]);
    }
  }
  for (int p = 0; p < pixels; ++p) {
    float* to = gx + p * s.pixel_step;
    for (int v = 0; v < vectors; ++v) store(to + v * kWidth, load(to + v * kWidth) + sums[p][v]);
  }
}

constexpr int kMostPixels = kRegisters == 32 ? 12 : 6;

template <int vectors, int pixels = kMostPixels>
KERASCNN_INLINE void scatter_some(int64_t count, const ScatterConvolution& s, const float* gy,
                                  const float* kernel, float* gx) {
  if constexpr (pixels > 1) {
    if (count < pixels) return scatter_some<vectors, pixels - 1>(count, s, gy, kernel, gx);
  }
  scatter_block<pixels, vectors>(s, gy, kernel, gx);
}

template <int vectors>
KERASCNN_INLINE void scatter_row(const ScatterConvolution& s, const float* gy, const float* kernel,
                                 float* gx) {
  // Blocks have nearly equal sizes: a last one of a single pixel would leave most registers idle.
  const int64_t blocks = (s.columns + kMostPixels - 1) / kMostPixels;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = s.columns * block / blocks;
    const int64_t count = s.columns * (block + 1) / blocks - first;
    scatter_some<vectors>(count, s, gy + first * s.filters, kernel, gx + first * s.pixel_step);
  }
}

void scatter_convolution(const ScatterConvolution& s, const float* gy, const float* kernel,
                         float* gx) {
  for (int64_t row = 0; row < s.rows; ++row) {
    for (int64_t i = 0; i < s.kernel_rows; ++i) {
      const float* gradients = gy + row * s.columns * s.filters;
      const float* weights = kernel + i * s.filters * s.run;
      float* to = gx + row * s.output_row_step + i * s.row_step;
      int64_t at = 0;
      for (; at + 2 * kWidth <= s.run; at += 2 * kWidth) {
        scatter_row<2>(s, gradients, weights + at, to + at);
      }
      for (; at < s.run; at += kWidth) scatter_row<1>(s, gradients, weights + at, to + at);
    }
  }
}

}  // namespace

const FloatKernels kFloatKernels = {
    .name = KERASCNN_STRING(KERASCNN_SIMD),
    .max_pool = max_pool,
    .max_pool_grad = max_pool_grad,
    .sum_columns = sum_columns,
    .sum_moments = sum_moments,
    .adam = adam,
    .sgd = sgd,
    .momentum = momentum,
    .widen_half = widen_half,
    .widen_bfloat16 = widen_bfloat16,
    .narrow_half = narrow_half,
    .narrow_bfloat16 = narrow_bfloat16,
    .sum = sum,
    .sum_rows = sum_rows,
    .maximum = maximum,
    .minimum = minimum,
    .sum_exp = sum_exp,
    .softmax_rows = softmax_rows,
    .largest_magnitude = largest_magnitude,
    .scatter_convolution = scatter_convolution,
    .patch_dots = patch_dots,
    .random_words = random_words,
    .uniform = uniform,
    .dropout = dropout,
};

}  // namespace kerascnn::cpu::KERASCNN_SIMD
