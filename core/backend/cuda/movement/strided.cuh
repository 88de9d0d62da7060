// Index arithmetic over a few axes: the geometries of core/ops/geometry.h as plain data for
// kernels.
#pragma once

#include <cstdint>

#include "core/base/error.h"
#include "core/base/shape.h"

namespace kerascnn::cuda {

constexpr int kMaxAxes = 8;

// Row-major position -> offset, over at most kMaxAxes axes.
struct StridedIndex {
  int axes = 0;
  int64_t extents[kMaxAxes] = {};
  int64_t strides[kMaxAxes] = {};
  int64_t offset = 0;

  StridedIndex() = default;
  StridedIndex(const char* op, const Shape& shape, const Shape& step, int64_t start = 0)
      : axes(static_cast<int>(shape.size())), offset(start) {
    if (shape.size() > kMaxAxes) {
      throw ValueError(message(op, ": more than ", kMaxAxes,
                               " axes that can't be merged are not supported on CUDA; got shape ",
                               shape_string(shape), "; reshape or transpose first"));
    }
    for (int i = 0; i < axes; ++i) {
      extents[i] = shape[i];
      strides[i] = step[i];
    }
  }

  __device__ __forceinline__ int64_t operator()(int64_t position) const {
    int64_t result = offset;
    for (int axis = axes - 1; axis > 0; --axis) {
      // A 32-bit division where the numbers fit, which is nearly always: it is several times
      // faster.
      int64_t quotient;
      if (((position | extents[axis]) >> 32) == 0) {
        quotient = static_cast<uint32_t>(position) / static_cast<uint32_t>(extents[axis]);
      } else {
        quotient = position / extents[axis];
      }
      result += (position - quotient * extents[axis]) * strides[axis];
      position = quotient;
    }
    return result + (axes > 0 ? position * strides[0] : 0);
  }
};

}  // namespace kerascnn::cuda
