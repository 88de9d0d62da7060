#include "core/ops/geometry.h"

#include <algorithm>

namespace kerascnn {
namespace {

bool merges(int64_t outer_stride, int64_t inner_stride, int64_t inner_extent) {
  return outer_stride == inner_stride * inner_extent;
}

// Appends one axis, or merges it with the last one where every operand steps through both alike.
void append_axis(Shape& extents, std::vector<Shape>& strides, int64_t extent,
                 const std::vector<int64_t>& axis_strides) {
  if (extent == 1) return;
  bool merge = !extents.empty();
  for (size_t k = 0; merge && k < strides.size(); ++k) {
    merge = merges(strides[k].back(), axis_strides[k], extent);
  }
  if (merge) {
    extents.back() *= extent;
    for (size_t k = 0; k < strides.size(); ++k) strides[k].back() = axis_strides[k];
    return;
  }
  extents.push_back(extent);
  for (size_t k = 0; k < strides.size(); ++k) strides[k].push_back(axis_strides[k]);
}

void keep_one_axis(Shape& extents, std::vector<Shape>& strides) {
  if (!extents.empty()) return;
  extents.push_back(1);
  for (Shape& operand : strides) operand.push_back(0);
}

StridedGeometry strided_geometry(const Shape& extents, const Shape& strides, int64_t offset) {
  StridedGeometry geometry;
  geometry.offset = offset;
  geometry.size = num_elements(extents);
  std::vector<Shape> merged(1);
  for (size_t i = 0; i < extents.size(); ++i) {
    append_axis(geometry.extents, merged, extents[i], {strides[i]});
  }
  keep_one_axis(geometry.extents, merged);
  geometry.strides = merged.front();
  return geometry;
}

}  // namespace

AxisGeometry axis_geometry(const Shape& shape, int64_t axis) {
  AxisGeometry geometry;
  axis = normalize_axis("axis_geometry", axis, shape.size());
  for (int64_t i = 0; i < axis; ++i) geometry.outer *= shape[i];
  geometry.length = shape[axis];
  for (size_t i = axis + 1; i < shape.size(); ++i) geometry.inner *= shape[i];
  return geometry;
}

void Window2DGeometry::set(std::string_view op, const Attributes& attributes, const Shape& image) {
  const auto& strides = check_ints(op, attributes, "strides", 2, 1);
  const auto& padding = check_ints(op, attributes, "padding", 4, 0);
  batch = image[0];
  input_height = image[1];
  input_width = image[2];
  stride_height = strides[0];
  stride_width = strides[1];
  pad_top = padding[0];
  pad_bottom = padding[1];
  pad_left = padding[2];
  pad_right = padding[3];
}

bool BroadcastGeometry::is_contiguous(size_t operand) const {
  return extents.size() == 1 && (strides[operand][0] == 1 || extents[0] == 1);
}

bool BroadcastGeometry::is_scalar(size_t operand) const {
  return std::all_of(strides[operand].begin(), strides[operand].end(),
                     [](int64_t stride) { return stride == 0; });
}

BroadcastGeometry broadcast_geometry(const Shape& output, Specs inputs) {
  BroadcastGeometry geometry;
  geometry.size = num_elements(output);
  geometry.strides.resize(inputs.size());
  std::vector<Shape> input_strides;
  for (const TensorSpec& input : inputs) input_strides.push_back(contiguous_strides(input.shape));
  for (size_t axis = 0; axis < output.size(); ++axis) {
    std::vector<int64_t> axis_strides(inputs.size(), 0);
    for (size_t k = 0; k < inputs.size(); ++k) {
      const size_t added = output.size() - inputs[k].shape.size();
      const bool steps = axis >= added && inputs[k].shape[axis - added] != 1;
      if (steps) axis_strides[k] = input_strides[k][axis - added];
    }
    append_axis(geometry.extents, geometry.strides, output[axis], axis_strides);
  }
  keep_one_axis(geometry.extents, geometry.strides);
  return geometry;
}

StridedGeometry transpose_geometry(const Shape& shape, const std::vector<int64_t>& permutation) {
  const Shape strides = contiguous_strides(shape);
  Shape extents, permuted;
  for (int64_t axis : permutation) {
    extents.push_back(shape[axis]);
    permuted.push_back(strides[axis]);
  }
  return strided_geometry(extents, permuted, 0);
}

StridedGeometry slice_geometry(const Shape& shape, const std::vector<int64_t>& starts,
                               const std::vector<int64_t>& sizes,
                               const std::vector<int64_t>& strides) {
  Shape steps = contiguous_strides(shape);
  int64_t offset = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    offset += starts[i] * steps[i];
    steps[i] *= strides[i];
  }
  return strided_geometry(sizes, steps, offset);
}

ReduceGeometry reduce_geometry(const Shape& shape, const std::vector<int64_t>& axes) {
  ReduceGeometry geometry;
  const Shape strides = contiguous_strides(shape);
  std::vector<Shape> kept(1), reduced(1);
  // This counts the changes between kept and reduced axes: at most one stretch of reduced axes is
  // simple.
  int stretches = 0;
  bool inside = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool is_reduced =
        axes.empty() || std::any_of(axes.begin(), axes.end(), [&](int64_t axis) {
          return (axis < 0 ? axis + shape.size() : static_cast<size_t>(axis)) == i;
        });
    if (is_reduced) {
      geometry.reduce *= shape[i];
      append_axis(geometry.reduced_extents, reduced, shape[i], {strides[i]});
    } else {
      geometry.outputs *= shape[i];
      append_axis(geometry.kept_extents, kept, shape[i], {strides[i]});
    }
    if (shape[i] == 1) continue;
    if (is_reduced && !inside) ++stretches;
    inside = is_reduced;
    if (!is_reduced) (stretches == 0 ? geometry.outer : geometry.inner) *= shape[i];
  }
  geometry.is_simple = stretches <= 1;
  if (stretches == 0) std::swap(geometry.outer, geometry.inner);
  keep_one_axis(geometry.kept_extents, kept);
  keep_one_axis(geometry.reduced_extents, reduced);
  geometry.kept_strides = kept.front();
  geometry.reduced_strides = reduced.front();
  return geometry;
}

}  // namespace kerascnn
