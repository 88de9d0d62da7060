// Sizes of 2-D pooling, the same for max_pool2d, avg_pool2d and their gradients.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/attributes.h"
#include "core/ops/geometry.h"
#include "core/ops/op.h"

namespace kerascnn {

struct Pool2DGeometry : Window2DGeometry {
  int64_t channels = 0;
  int64_t window_height = 1;
  int64_t window_width = 1;

  Shape input_shape() const { return {batch, input_height, input_width, channels}; }
  Shape output_shape() const { return {batch, output_height, output_width, channels}; }
  // If two windows share an input element, its gradient has several sources.
  bool windows_overlap() const {
    return stride_height < window_height || stride_width < window_width;
  }
  // The dtype of max_pool2d's second output: positions inside the window, row-major.
  DType index_dtype() const {
    return window_height * window_width <= 256 ? DType::UInt8 : DType::Int32;
  }
};

// For the forward ops `shape` is the input's shape; for the gradient ops the attribute
// "input_shape". Padding is smaller than the window, so every window holds at least one element of
// the input. Throws ValueError that starts with `op`.
Pool2DGeometry pool2d_geometry(std::string_view op, const Attributes& attributes,
                               const Shape& shape);

}  // namespace kerascnn
