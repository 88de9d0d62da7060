// Sums, extremes and softmax of float_kernels.h, compiled once for each instruction set (see
// simd.h, which has to come first: it names the set that element_functions.h is compiled for).
#pragma once

// clang-format off
#include "core/backend/cpu/simd.h"
// clang-format on

#include "core/backend/cpu/float_kernels.h"
#include "core/ops/host_math.h"

namespace kerascnn::cpu::KERASCNN_SIMD {

namespace {

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

template <typename T>
KERASCNN_INLINE void add_to_partials(const float* x, int64_t count, T (&partials)[kPartials]) {
  int64_t i = 0;
  for (; i + kPartials <= count; i += kPartials) {
    for (int64_t k = 0; k < kPartials; ++k) partials[k] += static_cast<T>(x[i + k]);
  }
  for (int64_t k = 0; i < count; ++i, ++k) partials[k] += static_cast<T>(x[i]);
}

template <typename T>
KERASCNN_INLINE T sum_of_partials(T (&partials)[kPartials]) {
  return combine_partials(partials, [](T a, T b) { return a + b; });
}

double sum(const float* x, int64_t count) {
  double partials[kPartials] = {};
  add_to_partials(x, count, partials);
  return sum_of_partials(partials);
}

void sum_rows(const float* x, int64_t rows, int64_t length, double* sums) {
  for (int64_t row = 0; row < rows; ++row) sums[row] = sum(x + row * length, length);
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
    add_to_partials(terms, some, partials);  // blocks are multiples of their number
  }
  return sum_of_partials(partials);
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
        float partials[kPartials] = {};
        add_to_partials(of_row, length, partials);
        sum = sum_of_partials(partials);
      }
      float* to = y + (first + row) * length;
      for (int64_t j = 0; j < length; ++j) to[j] = of_row[j] / sum;
      sums[first + row] = sum;
    }
  }
}

}  // namespace

}  // namespace kerascnn::cpu::KERASCNN_SIMD
