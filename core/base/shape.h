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

// As many axes as NumPy's arrays may have. Loops over axes keep their state in memory of their own,
// so a bound also makes an absurd rank an error rather than an exhausted stack.
constexpr size_t kMaxRank = 64;

// Throws ValueError where there are more than kMaxRank axes, an extent is negative, or the product
// of the extents that are not 0 overflows 64 bits: strides are such products.
int64_t num_elements(const Shape& shape);
int64_t num_bytes(const TensorSpec& spec);
Shape contiguous_strides(const Shape& shape);  // row-major, in elements

// NumPy broadcasting. Throws ValueError that starts with `op` where the shapes don't fit.
Shape broadcast_shapes(std::string_view op, const Shape& a, const Shape& b);

// Maps an axis in [-rank, rank) to [0, rank). Throws ValueError that starts with `op`.
int64_t normalize_axis(std::string_view op, int64_t axis, size_t rank);

}  // namespace kerascnn
