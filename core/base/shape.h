// Shapes, sizes and the specification (dtype and shape) of a tensor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"

namespace kerascnn {

using Shape = std::vector<int64_t>;

struct TensorSpec {
  DType dtype = DType::Float32;
  Shape shape;

  bool operator==(const TensorSpec&) const = default;
};

std::string shape_string(const Shape& shape);     // "(64, 28, 28, 1)", "(3,)", "()"
std::string spec_string(const TensorSpec& spec);  // "float32 (64, 28, 28, 1)"

int64_t num_elements(const Shape& shape);  // throws ValueError where the product overflows 64 bits
int64_t num_bytes(const TensorSpec& spec);
Shape contiguous_strides(const Shape& shape);  // row-major, in elements

// NumPy broadcasting. Throws ValueError that starts with `op` where the shapes don't fit.
Shape broadcast_shapes(std::string_view op, const Shape& a, const Shape& b);

// Maps an axis in [-rank, rank) to [0, rank). Throws ValueError that starts with `op`.
int64_t normalize_axis(std::string_view op, int64_t axis, size_t rank);

}  // namespace kerascnn
