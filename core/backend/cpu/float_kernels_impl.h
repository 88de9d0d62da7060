// The loops of float_kernels.h, compiled once for each instruction set (see simd.h, which has to
// come first: it names the set that element_functions.h is compiled for).
#pragma once

// clang-format off
#include "core/backend/cpu/simd.h"
// clang-format on

#include "core/backend/cpu/float_kernels.h"
#include "core/ops/element_functions.h"

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

// Reductions go through as many partial results as the widest vectors have lanes, whatever the
// instruction set, and then halve them, so that every machine gives the same bits.
constexpr int64_t kPartials = 16;

template <typename T, typename Combine>
KERASCNN_INLINE T combine_partials(T (&partials)[kPartials], const Combine& combine) {
  for (int64_t half = kPartials / 2; half > 0; half /= 2) {
    for (int64_t k = 0; k < half; ++k) partials[k] = combine(partials[k], partials[k + half]);
  }
  return partials[0];
}

double sum(const float* x, int64_t count) {
  double partials[kPartials] = {};
  int64_t i = 0;
  for (; i + kPartials <= count; i += kPartials) {
    for (int64_t k = 0; k < kPartials; ++k) partials[k] += static_cast<double>(x[i + k]);
  }
  for (int64_t k = 0; i < count; ++i, ++k) partials[k] += static_cast<double>(x[i]);
  return combine_partials(partials, [](double a, double b) { return a + b; });
}

// `combine` gives that element of two vectors which wins, or NaN where there is one.
template <typename Combine>
KERASCNN_INLINE float find_extreme(const float* x, int64_t count, float initial,
                                   const Combine& combine) {
  constexpr int kLanes = 4;  // as many at a time as hide the latency of one
  Vec extremes[kLanes];
  for (Vec& extreme : extremes) extreme = splat(initial);
  int64_t i = 0;
  for (; i + kLanes * kWidth <= count; i += kLanes * kWidth) {
    for (int k = 0; k < kLanes; ++k) extremes[k] = combine(extremes[k], load(x + i + k * kWidth));
  }
  for (; i + kWidth <= count; i += kWidth) extremes[0] = combine(extremes[0], load(x + i));
  for (; i < count; ++i) extremes[1] = combine(extremes[1], splat(x[i]));
  for (int k = 1; k < kLanes; ++k) extremes[0] = combine(extremes[0], extremes[k]);
  Vec result = splat(extremes[0][0]);
  for (int lane = 1; lane < kWidth; ++lane) result = combine(result, splat(extremes[0][lane]));
  return result[0];
}

float maximum(const float* x, int64_t count) {
  return find_extreme(x, count, -__builtin_inff(), [](Vec a, Vec b) {
    const Vec larger = a >= b ? a : b;
    return a == a ? larger : a;
  });
}

float minimum(const float* x, int64_t count) {
  return find_extreme(x, count, __builtin_inff(), [](Vec a, Vec b) {
    const Vec smaller = a <= b ? a : b;
    return a == a ? smaller : a;
  });
}

float sum_exp(const float* x, float shift, float* y, int64_t count) {
  constexpr int64_t kBlock = 16 * kPartials;
  float partials[kPartials] = {};
  for (int64_t done = 0; done < count; done += kBlock) {
    const int64_t some = count - done < kBlock ? count - done : kBlock;
    float terms[kBlock];
    for (int64_t i = 0; i < some; ++i) terms[i] = host_math::exp(x[done + i] - shift);
    if (y != nullptr) std::memcpy(y + done, terms, static_cast<size_t>(some) * sizeof(float));
    const int64_t whole = some / kPartials * kPartials;
    for (int64_t i = 0; i < whole; i += kPartials) {
      for (int64_t k = 0; k < kPartials; ++k) partials[k] += terms[i + k];
    }
    for (int64_t i = whole; i < some; ++i) partials[i - whole] += terms[i];
  }
  return combine_partials(partials, [](float a, float b) { return a + b; });
}

KERASCNN_INLINE float short_sum(const float* x, int64_t count) {
  float partials[kPartials] = {};
  int64_t i = 0;
  for (; i + kPartials <= count; i += kPartials) {
    for (int64_t k = 0; k < kPartials; ++k) partials[k] += x[i + k];
  }
  for (int64_t k = 0; i < count; ++i, ++k) partials[k] += x[i];
  return combine_partials(partials, [](float a, float b) { return a + b; });
}

// The exponentials of several rows are one loop, whose vectors are full.
void softmax_rows(const float* x, int64_t rows, int64_t length, float* y, float* largest,
                  float* sums) {
  constexpr int64_t kTerms = 4 * kMostSoftmaxColumns;
  float terms[kTerms];
  const int64_t most = kTerms / length;
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t some = rows - first < most ? rows - first : most;
    for (int64_t row = 0; row < some; ++row) {
      const float* from = x + (first + row) * length;
      float top = from[0];
      if (length < kPartials) {
        for (int64_t j = 1; j < length; ++j) top = from[j] > top ? from[j] : top;
      } else {
        top = maximum(from, length);
      }
      for (int64_t j = 0; j < length; ++j) terms[row * length + j] = from[j] - top;
      largest[first + row] = top;
    }
    for (int64_t i = 0; i < some * length; ++i) terms[i] = host_math::exp(terms[i]);
    for (int64_t row = 0; row < some; ++row) {
      const float* of_row = terms + row * length;
      float sum = 0;
      if (length < kPartials) {
        for (int64_t j = 0; j < length; ++j) sum += of_row[j];
      } else {
        sum = short_sum(of_row, length);
      }
      float* to = y + (first + row) * length;
      for (int64_t j = 0; j < length; ++j) to[j] = of_row[j] / sum;
      sums[first + row] = sum;
    }
  }
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

// Philox on kWidth / 2 blocks at a time, each word in a 64-bit lane; see core/ops/philox.h, whose
// bits these are.
constexpr int kBlocks = kWidth / 2;
typedef uint64_t WideVec __attribute__((vector_size(kWidth * 4)));

// The 64-bit products of the lanes' low halves.
KERASCNN_INLINE WideVec multiply_low(WideVec a, WideVec b) {
#if defined(__AVX512F__)
  // This is the masked form, because GCC 12 warns of an uninitialized operand inside the plain
  // one's header.
  return reinterpret_cast<WideVec>(
      _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<WideVec>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

struct WidePhilox {
  WideVec words[4];  // the low halves count, the high ones are noise
};

KERASCNN_INLINE WidePhilox wide_philox(uint32_t key0, uint32_t key1, WidePhilox counter) {
  const WideVec factor0 = uint64_t{0xD2511F53u} - WideVec{};
  const WideVec factor1 = uint64_t{0xCD9E8D57u} - WideVec{};
  for (int round = 0; round < 10; ++round) {
    const WideVec product0 = multiply_low(counter.words[0], factor0);
    const WideVec product1 = multiply_low(counter.words[2], factor1);
    counter = {{(product1 >> 32) ^ counter.words[1] ^ uint64_t{key0}, product1,
                (product0 >> 32) ^ counter.words[3] ^ uint64_t{key1}, product0}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// The words of kBlocks blocks in the order of the elements.
KERASCNN_INLINE void philox_words(const int64_t* state, uint32_t stream, uint64_t first_block,
                                  uint32_t* words) {
  const uint64_t seed = static_cast<uint64_t>(state[0]);
  WideVec block;
  for (int lane = 0; lane < kBlocks; ++lane)
    block[lane] = first_block + static_cast<uint64_t>(lane);
  const WideVec zero{};
  const WidePhilox random =
      wide_philox(static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                  {{block & uint64_t{0xffffffffu}, block >> 32,
                    zero + uint64_t{static_cast<uint32_t>(static_cast<uint64_t>(state[1]))},
                    zero + uint64_t{stream}}});
  const uint64_t low = 0xffffffffu;
  const WideVec first = (random.words[0] & low) | (random.words[1] << 32);
  const WideVec second = (random.words[2] & low) | (random.words[3] << 32);
  for (int lane = 0; lane < kBlocks; ++lane) {
    const uint64_t pair[2] = {first[lane], second[lane]};
    std::memcpy(words + 4 * lane, pair, sizeof(pair));
  }
}

void dropout(const float* x, float* out, const int64_t* state, uint32_t stream, uint32_t threshold,
             float scale, int64_t first_block, int64_t count) {
  constexpr int64_t kElements = 4 * kBlocks;
  for (int64_t at = 0; at < count; at += kElements) {
    uint32_t words[kElements];
    philox_words(state, stream, static_cast<uint64_t>(first_block + at / 4), words);
    const int64_t here = count - at < kElements ? count - at : kElements;
    if (here == kElements) {
      for (int64_t i = 0; i < kElements; ++i) {
        out[at + i] = (words[i] >> 8) < threshold ? x[at + i] * scale : 0.0f;
      }
    } else {
      for (int64_t i = 0; i < here; ++i) {
        out[at + i] = (words[i] >> 8) < threshold ? x[at + i] * scale : 0.0f;
      }
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
    .maximum = maximum,
    .minimum = minimum,
    .sum_exp = sum_exp,
    .softmax_rows = softmax_rows,
    .largest_magnitude = largest_magnitude,
    .scatter_convolution = scatter_convolution,
    .patch_dots = patch_dots,
    .dropout = dropout,
};

}  // namespace kerascnn::cpu::KERASCNN_SIMD
