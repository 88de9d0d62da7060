// Walks the output of a broadcasting op in runs along its last (merged) axis.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/ops/geometry.h"

namespace kerascnn::cpu {

constexpr int kMaxRank = 32;

// Calls run(begin, offsets, count) for elements [begin, begin + count) of the output, which is
// contiguous; operand k (there may be fewer than num_operands) reads its elements from offsets[k]
// on, geometry.strides[k].back() apart.
template <size_t num_operands, typename Run>
void for_each_run(const BroadcastGeometry& geometry, int64_t begin, int64_t end, const Run& run) {
  const int last = static_cast<int>(geometry.extents.size()) - 1;
  const int64_t length = geometry.extents[last];
  const size_t operands = std::min(num_operands, geometry.strides.size());
  std::array<int64_t, num_operands> offsets{};
  std::array<int64_t, kMaxRank> index{};
  int64_t rest = begin;
  for (int d = last; d >= 0; --d) {
    index[d] = rest % geometry.extents[d];
    rest /= geometry.extents[d];
    for (size_t k = 0; k < operands; ++k) offsets[k] += index[d] * geometry.strides[k][d];
  }
  while (begin < end) {
    const int64_t count = std::min(length - index[last], end - begin);
    run(begin, offsets, count);
    begin += count;
    for (size_t k = 0; k < operands; ++k) {
      offsets[k] -= index[last] * geometry.strides[k][last];
    }
    index[last] = 0;
    for (int d = last - 1; d >= 0; --d) {
      for (size_t k = 0; k < operands; ++k) offsets[k] += geometry.strides[k][d];
      if (++index[d] < geometry.extents[d]) break;
      for (size_t k = 0; k < operands; ++k) {
        offsets[k] -= index[d] * geometry.strides[k][d];
      }
      index[d] = 0;
    }
  }
}

}  // namespace kerascnn::cpu
