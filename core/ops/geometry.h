// Shapes in the form that kernels need: few, long axes with strides. They don't depend on a device;
// both backends plan with them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/shape.h"
#include "core/ops/op.h"

namespace kerascnn {

// One axis singled out: element (o, i, r) of a row-major array is at (o * length + i) * inner + r.
// Softmax, argmax, gather and concatenate use it (each input of the last has its own length).
struct AxisGeometry {
  int64_t outer = 1;
  int64_t length = 1;
  int64_t inner = 1;
};
AxisGeometry axis_geometry(const Shape& shape, int64_t axis);  // axis in [-rank, rank)

// What 2-D convolution and pooling have in common: windows that move over images, (batch, height,
// width, channels), with padding.
struct Window2DGeometry {
  int64_t batch = 0;
  int64_t input_height = 0;
  int64_t input_width = 0;
  int64_t output_height = 0;
  int64_t output_width = 0;
  int64_t stride_height = 1;
  int64_t stride_width = 1;
  int64_t pad_top = 0;
  int64_t pad_bottom = 0;
  int64_t pad_left = 0;
  int64_t pad_right = 0;

  // Takes the image's sizes, and the attributes "strides" and "padding". Throws ValueError that
  // starts with `op`.
  void set(std::string_view op, const Attributes& attributes, const Shape& image);
};

// Walks `extents` in row-major order (the order of a contiguous output); operand k's element is at
// sum(index[d] * strides[k][d]). Neighbouring axes that every operand steps through alike are
// merged, axes of extent 1 are dropped; at least one axis is left. A stride of 0 is a broadcast
// axis.
struct BroadcastGeometry {
  Shape extents;
  std::vector<Shape> strides;
  int64_t size = 0;

  bool is_contiguous(
      size_t operand) const;  // the operand is read in order from the first element to the last
  bool is_scalar(size_t operand) const;  // the operand is one element
};
// Each input's shape broadcasts to `output`.
BroadcastGeometry broadcast_geometry(const Shape& output, Specs inputs);

// A strided reading of one contiguous array: output element `index` is at offset + sum(index[d] *
// strides[d]). Axes are merged as in BroadcastGeometry. transpose and slice read through it,
// slice_grad writes through it.
struct StridedGeometry {
  Shape extents;
  Shape strides;
  int64_t offset = 0;
  int64_t size = 0;
};
StridedGeometry transpose_geometry(const Shape& shape, const std::vector<int64_t>& permutation);
StridedGeometry slice_geometry(const Shape& shape, const std::vector<int64_t>& starts,
                               const std::vector<int64_t>& sizes,
                               const std::vector<int64_t>& strides);

// A reduction of a row-major array. Where the reduced axes are neighbours (is_simple) it is (outer,
// reduce, inner) -> (outer, inner). In any case output element o (row-major over kept_extents)
// starts at sum(o[d] * kept_strides[d]) and reads reduce elements from there, at + sum(r[d] *
// reduced_strides[d]).
struct ReduceGeometry {
  bool is_simple = true;
  int64_t outer = 1;
  int64_t reduce = 1;  // elements for each output element, also where not simple
  int64_t inner = 1;
  int64_t outputs = 1;
  Shape kept_extents, kept_strides;        // merged, at least one axis
  Shape reduced_extents, reduced_strides;  // merged, at least one axis
};
// `axes` in [-rank, rank); an empty list stands for all axes.
ReduceGeometry reduce_geometry(const Shape& shape, const std::vector<int64_t>& axes);

}  // namespace kerascnn
