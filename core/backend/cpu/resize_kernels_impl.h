// Compiled once for each instruction set; see resize_kernels.h. Each product and each sum is
// rounded, and sums go from the first pixel to the last one: the results are those of a sum of
// weighted pictures, whatever the vectors' width.
#pragma once

#include <algorithm>
#include <cstring>

#include "core/backend/cpu/resize_kernels.h"
#include "core/backend/cpu/simd.h"

namespace kerascnn::cpu::KERASCNN_SIMD {
namespace {

template <typename T, int lanes>
struct Lanes {
  typedef T Type __attribute__((vector_size(lanes * sizeof(T))));
};

template <typename T, int lanes>
KERASCNN_INLINE typename Lanes<T, lanes>::Type load_lanes(const T* from) {
  typename Lanes<T, lanes>::Type value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <typename T, int lanes>
KERASCNN_INLINE void put_lanes(T* to, typename Lanes<T, lanes>::Type value) {
  std::memcpy(to, &value, sizeof(value));
}

// The sum of `terms` vectors, each `step` numbers after the one before, times their shares.
template <typename T, int lanes>
KERASCNN_INLINE typename Lanes<T, lanes>::Type weighted(const T* from, int64_t step,
                                                        const T* shares, int64_t terms) {
  auto sum = load_lanes<T, lanes>(from) * shares[0];
  for (int64_t t = 1; t < terms; ++t) sum += load_lanes<T, lanes>(from + t * step) * shares[t];
  return sum;
}

// to (4 * lanes) = four such sums.
template <typename T, int lanes>
KERASCNN_INLINE void weigh_four(const T* from, int64_t step, const T* shares, int64_t terms,
                                T* to) {
  auto a = load_lanes<T, lanes>(from) * shares[0];
  auto b = load_lanes<T, lanes>(from + lanes) * shares[0];
  auto c = load_lanes<T, lanes>(from + 2 * lanes) * shares[0];
  auto d = load_lanes<T, lanes>(from + 3 * lanes) * shares[0];
  for (int64_t t = 1; t < terms; ++t) {
    from += step;
    const T share = shares[t];
    a += load_lanes<T, lanes>(from) * share;
    b += load_lanes<T, lanes>(from + lanes) * share;
    c += load_lanes<T, lanes>(from + 2 * lanes) * share;
    d += load_lanes<T, lanes>(from + 3 * lanes) * share;
  }
  put_lanes<T, lanes>(to, a);
  put_lanes<T, lanes>(to + lanes, b);
  put_lanes<T, lanes>(to + 2 * lanes, c);
  put_lanes<T, lanes>(to + 3 * lanes, d);
}

// `terms` is given as a constant where it is known.
template <typename T>
KERASCNN_INLINE void weigh_row(const T* from, int64_t step, const T* shares, int64_t terms,
                               int64_t size, T* to) {
  constexpr int kLanes = kWidth * 4 / static_cast<int>(sizeof(T));
  int64_t i = 0;
  for (; i + 4 * kLanes <= size; i += 4 * kLanes) {
    weigh_four<T, kLanes>(from + i, step, shares, terms, to + i);
  }
  for (; i + kLanes <= size; i += kLanes) {
    put_lanes<T, kLanes>(to + i, weighted<T, kLanes>(from + i, step, shares, terms));
  }
  for (; i < size; ++i) to[i] = weighted<T, 1>(from + i, step, shares, terms)[0];
}

template <typename T>
void weigh_rows(const T* from, int64_t step, const T* shares, int64_t count, int64_t size, T* to) {
  if (count == 2) {
    weigh_row<T>(from, step, shares, 2, size, to);
  } else {
    weigh_row<T>(from, step, shares, count, size, to);
  }
}

// `terms` is given as a constant where it is known.
template <typename T, int lanes>
KERASCNN_INLINE void weigh_pixel(const T* from, int64_t channels, const T* shares, int64_t terms,
                                 int64_t room, T* to) {
  int64_t c = 0;
  for (; c + 4 * lanes <= channels; c += 4 * lanes) {
    weigh_four<T, lanes>(from + c, channels, shares, terms, to + c);
  }
  for (; c < channels; c += lanes) {
    const auto sum = weighted<T, lanes>(from + c, channels, shares, terms);
    if (c + lanes <= room) {
      put_lanes<T, lanes>(to + c, sum);
    } else {
      std::memcpy(to + c, &sum, static_cast<size_t>(channels - c) * sizeof(T));
    }
  }
}

template <typename T, int lanes>
KERASCNN_INLINE void weigh_with(const LinePixels<T> p, const T* line, T* to) {
  for (int64_t i = 0; i < p.pixels; ++i, to += p.step) {
    const T* from = line + p.firsts[i] * p.channels;
    const T* shares = p.shares + i * p.most;
    const int64_t room = p.step == p.channels ? p.room - i * p.step : p.channels;
    const int64_t terms = p.counts[i];
    if (terms == 2) {
      weigh_pixel<T, lanes>(from, p.channels, shares, 2, room, to);
    } else if (terms > 0) {
      weigh_pixel<T, lanes>(from, p.channels, shares, terms, room, to);
    } else {
      std::fill(to, to + p.channels, T(0));
    }
  }
}

// Pixels that are no larger than a vector and lie side by side. What is behind a pixel is written
// with it, and is the next one's, which comes later.
template <typename T, int lanes>
KERASCNN_INLINE void weigh_few(const LinePixels<T> p, const T* line, T* to) {
  // So many pixels have room for a vector.
  const int64_t whole = p.room < lanes ? 0 : (p.room - lanes) / p.channels + 1;
  for (int64_t i = 0; i < p.pixels; ++i) {
    const T* from = line + p.firsts[i] * p.channels;
    const T* shares = p.shares + i * p.most;
    const int64_t terms = p.counts[i];
    typename Lanes<T, lanes>::Type sum{};
    if (terms == 2) {
      sum = weighted<T, lanes>(from, p.channels, shares, 2);
    } else if (terms > 0) {
      sum = weighted<T, lanes>(from, p.channels, shares, terms);
    }
    if (i < whole) {
      put_lanes<T, lanes>(to + i * p.channels, sum);
    } else {
      std::memcpy(to + i * p.channels, &sum, static_cast<size_t>(p.channels) * sizeof(T));
    }
  }
}

template <typename T>
void weigh_pixels(const LinePixels<T>& p, const T* line, T* to) {
  constexpr int kFew = 16 / static_cast<int>(sizeof(T));
  constexpr int kLanes = kWidth * 4 / static_cast<int>(sizeof(T));
  if (p.step == 1) {
    weigh_few<T, 1>(p, line, to);
  } else if (p.step == p.channels && p.channels <= kFew) {
    weigh_few<T, kFew>(p, line, to);
  } else if (p.step == p.channels && p.channels <= kLanes) {
    weigh_few<T, kLanes>(p, line, to);
  } else {
    weigh_with<T, kLanes>(p, line, to);
  }
}

}  // namespace

const ResizeKernels kResizeKernels = {KERASCNN_STRING(KERASCNN_SIMD),
                                      {weigh_rows<float>, weigh_pixels<float>},
                                      {weigh_rows<double>, weigh_pixels<double>}};

}  // namespace kerascnn::cpu::KERASCNN_SIMD
