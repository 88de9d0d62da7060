#include "core/base/shape.h"

#include <algorithm>

#include "core/base/error.h"

namespace kerascnn {

std::string shape_string(const Shape& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::string spec_string(const TensorSpec& spec) {
  return std::string(dtype_name(spec.dtype)) + " " + shape_string(spec.shape);
}

int64_t num_elements(const Shape& shape) {
  if (shape.size() > kMaxRank) {
    throw ValueError(message("a shape can have up to ", kMaxRank, " axes; this one has ",
                             shape.size(), ": join some of them"));
  }
  int64_t count = 1;
  bool is_empty = false;
  for (int64_t extent : shape) {
    is_empty = is_empty || extent == 0;
    if (extent < 0 || __builtin_mul_overflow(count, std::max<int64_t>(extent, 1), &count)) {
      throw ValueError(message("shape ", shape_string(shape),
                               " is not valid: extents must be non-negative and the product of "
                               "those that are not 0 must fit in 64 bits"));
    }
  }
  return is_empty ? 0 : count;
}

int64_t num_bytes(const TensorSpec& spec) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(num_elements(spec.shape), static_cast<int64_t>(itemsize(spec.dtype)),
                             &bytes)) {
    throw ValueError(message("a tensor of ", spec_string(spec), " has more than 2^63 bytes"));
  }
  return bytes;
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

Shape broadcast_shapes(std::string_view op, const Shape& a, const Shape& b) {
  const size_t rank = std::max(a.size(), b.size());
  Shape result(rank, 1);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t ea = i < rank - a.size() ? 1 : a[i - (rank - a.size())];
    const int64_t eb = i < rank - b.size() ? 1 : b[i - (rank - b.size())];
    if (ea != eb && ea != 1 && eb != 1) {
      throw ValueError(message(op, ": shapes ", shape_string(a), " and ", shape_string(b),
                               " can't be broadcast together: axis ", i, " has ", ea, " and ", eb,
                               " elements; extents must be equal or 1"));
    }
    result[i] = ea == 1 ? eb : ea;
  }
  return result;
}

int64_t normalize_axis(std::string_view op, int64_t axis, size_t num_axes) {
  const auto rank = static_cast<int64_t>(num_axes);
  if (axis < -rank || axis >= rank) {
    throw ValueError(message(op, ": axis ", axis, " is out of range for a tensor of rank ", rank,
                             "; expected ", -rank, " to ", rank - 1));
  }
  return axis < 0 ? axis + rank : axis;
}

}  // namespace kerascnn
