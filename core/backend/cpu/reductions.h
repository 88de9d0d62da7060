// What reductions on a CPU have in common: how elements are taken together, in which type, and how
// a result is made of that. Sums of floating numbers are accumulated in double.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/ops/element_functions.h"

namespace kerascnn::cpu {

template <typename T>
struct Sum {
  using Accumulator = std::conditional_t<is_floating_storage<T>, double, uint64_t>;
  static constexpr Accumulator initial() { return 0; }
  static Accumulator load(T x) { return static_cast<Accumulator>(static_cast<compute_t<T>>(x)); }
  static Accumulator combine(Accumulator a, Accumulator b) { return a + b; }
};

template <typename T>
struct Max {
  using Accumulator = compute_t<T>;
  static constexpr Accumulator initial() {
    if constexpr (is_floating_storage<T>) return -std::numeric_limits<Accumulator>::infinity();
    return std::numeric_limits<Accumulator>::lowest();
  }
  static Accumulator load(T x) { return static_cast<Accumulator>(x); }
  static Accumulator combine(Accumulator a, Accumulator b) { return element::maximum(a, b); }
};

template <typename T>
struct Min {
  using Accumulator = compute_t<T>;
  static constexpr Accumulator initial() {
    if constexpr (is_floating_storage<T>) return std::numeric_limits<Accumulator>::infinity();
    return std::numeric_limits<Accumulator>::max();
  }
  static Accumulator load(T x) { return static_cast<Accumulator>(x); }
  static Accumulator combine(Accumulator a, Accumulator b) { return element::minimum(a, b); }
};

// The result in storage type T; sums are divided by `divisor` (1 for a plain sum).
template <typename T, typename Accumulator>
T finish(Accumulator value, double divisor) {
  if constexpr (is_floating_storage<T>) {
    return static_cast<T>(static_cast<compute_t<T>>(
        divisor == 1 ? value : static_cast<Accumulator>(value / divisor)));
  } else {
    return static_cast<T>(value);
  }
}

// Independent lanes let the compiler vectorize without reordering what was written.
template <typename T, typename Op>
typename Op::Accumulator reduce_contiguous(const T* x, int64_t count) {
  constexpr int64_t kLanes = 16;
  typename Op::Accumulator lanes[kLanes];
  for (auto& lane : lanes) lane = Op::initial();
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = Op::combine(lanes[lane], Op::load(x[i + lane]));
    }
  }
  for (int64_t lane = 0; i < count; ++i, ++lane) {
    lanes[lane] = Op::combine(lanes[lane], Op::load(x[i]));
  }
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) {
      lanes[lane] = Op::combine(lanes[lane], lanes[lane + half]);
    }
  }
  return lanes[0];
}

template <typename T, typename Op>
typename Op::Accumulator reduce_row(const FloatKernels& kernels, const T* x, int64_t count) {
  if constexpr (std::is_same_v<Op, Sum<float>>) return kernels.sum(x, count);
  if constexpr (std::is_same_v<Op, Max<float>>) return kernels.maximum(x, count);
  if constexpr (std::is_same_v<Op, Min<float>>) return kernels.minimum(x, count);
  return reduce_contiguous<T, Op>(x, count);
}

// out (inner) is combined with the columns of x (rows, inner).
template <typename T, typename Op>
void combine_columns(const T* x, int64_t rows, int64_t inner, typename Op::Accumulator* out) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* from = x + row * inner;
    for (int64_t j = 0; j < inner; ++j) out[j] = Op::combine(out[j], Op::load(from[j]));
  }
}

// A matrix of narrow rows as one of fewer, wider rows, so that vectors are full: so many of its
// rows are one of the other's.
constexpr int64_t kNarrowRow = 64;
constexpr int64_t kWidestVector = 16;
inline int64_t rows_folded(int64_t rows, int64_t columns) {
  if (columns >= kNarrowRow) return 1;
  const int64_t power_of_two = std::min(kWidestVector, columns & -columns);  // that divides both
  return std::max<int64_t>(1, std::min(rows, kWidestVector / power_of_two));
}

// out (inner) += the sums of the columns.
inline void add_float_columns(const FloatKernels& kernels, const float* x, int64_t rows,
                              int64_t inner, double* out) {
  const int64_t fold = rows_folded(rows, inner);
  if (fold == 1) return kernels.sum_columns(x, rows, inner, out);
  double wide[kNarrowRow * kWidestVector];
  std::fill(wide, wide + fold * inner, 0.0);
  const int64_t whole = rows / fold;
  kernels.sum_columns(x, whole, fold * inner, wide);
  for (int64_t i = 0; i < fold; ++i) {
    for (int64_t j = 0; j < inner; ++j) out[j] += wide[i * inner + j];
  }
  kernels.sum_columns(x + whole * fold * inner, rows - whole * fold, inner, out);
}

inline void sum_float_columns(const FloatKernels& kernels, const float* x, int64_t rows,
                              int64_t inner, double* out) {
  std::fill(out, out + inner, 0.0);
  add_float_columns(kernels, x, rows, inner, out);
}

// A row that is so short is not worth a call.
constexpr int64_t kShortRow = 16;

// out (columns) is combined with the columns of x (rows, columns).
template <typename T, typename Op>
void combine_block(const FloatKernels& kernels, const T* x, int64_t rows, int64_t columns,
                   typename Op::Accumulator* out) {
  if (columns > 1) {
    if constexpr (std::is_same_v<Op, Sum<float>>) {
      add_float_columns(kernels, x, rows, columns, out);
    } else {
      combine_columns<T, Op>(x, rows, columns, out);
    }
  } else if (rows >= kShortRow) {
    out[0] = Op::combine(out[0], reduce_row<T, Op>(kernels, x, rows));
  } else {
    for (int64_t i = 0; i < rows; ++i) out[0] = Op::combine(out[0], Op::load(x[i]));
  }
}

// values[i] is row i of x (rows, length), reduced.
template <typename T, typename Op>
void reduce_rows(const FloatKernels& kernels, const T* x, int64_t rows, int64_t length,
                 typename Op::Accumulator* values) {
  if constexpr (std::is_same_v<Op, Sum<float>>) {
    if (length >= kShortRow) return kernels.sum_rows(x, rows, length, values);
  }
  std::fill(values, values + rows, Op::initial());
  for (int64_t row = 0; row < rows; ++row) {
    combine_block<T, Op>(kernels, x + row * length, length, 1, values + row);
  }
}

}  // namespace kerascnn::cpu
