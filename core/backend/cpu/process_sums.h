// The arithmetic of sums over processes, for messages of blocks: one from each process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/parallel.h"

namespace kerascnn::cpu {

// y = by * x, which may be the same memory; zeros where `by` is 0, whatever x holds.
template <typename T>
void multiply(const T* x, T* y, int64_t count, double by) {
  if (by == 0) {
    std::fill_n(y, count, T(0.0f));
  } else if (by == 1) {
    if (x != y && count > 0) std::memmove(y, x, count * sizeof(T));
  } else {
    const auto factor = static_cast<compute_t<T>>(by);
    parallel_for(count, kElementGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        y[i] = static_cast<T>(static_cast<compute_t<T>>(x[i]) * factor);
      }
    });
  }
}

// sums[i] = (((block 0)[i] + (block 1)[i]) + (block 2)[i] + ...) * by, for blocks of `count`.
template <typename T>
void add_blocks(const T* blocks, T* sums, int64_t count, int64_t processes, double by) {
  const auto factor = static_cast<compute_t<T>>(by);
  parallel_for(count, kElementGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      auto sum = static_cast<compute_t<T>>(blocks[i]);
      for (int64_t k = 1; k < processes; ++k) {
        sum += static_cast<compute_t<T>>(blocks[k * count + i]);
      }
      sums[i] = static_cast<T>(sum * factor);
    }
  });
}

}  // namespace kerascnn::cpu
