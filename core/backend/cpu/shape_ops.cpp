// transpose, broadcast_to, concatenate, slice and its adjoint, which only move elements, whatever
// their dtype.
#include <cstring>

#include "core/backend/cpu/broadcast.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/ops/geometry.h"

namespace kerascnn::cpu {

namespace {

BroadcastGeometry one_operand(const StridedGeometry& geometry) {
  return {geometry.extents, {geometry.strides}, geometry.size};
}

template <typename T>
void copy_strided(const T* from, int64_t step, T* to, int64_t count) {
  if (step == 1) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
  } else if (step == 0) {
    std::fill(to, to + count, *from);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * step];
  }
}

// out[i] = x[offset + i through the strides].
std::unique_ptr<Kernel> make_gathering_kernel(DType dtype, const BroadcastGeometry& geometry,
                                              int64_t offset) {
  return dispatch_size(dtype, [&]<typename T>(Type<T>) {
    return make_kernel("kerascnn strided copy", [geometry, offset](const KernelArgs& args) {
      const T* x = input<T>(args, 0) + offset;
      T* out = output<T>(args, 0);
      const int64_t step = geometry.strides[0].back();
      parallel_for(geometry.size, kElementGrain, [&](int64_t begin, int64_t end) {
        for_each_run<1>(geometry, begin, end, [&](int64_t at, const auto& offsets, int64_t count) {
          copy_strided(x + offsets[0], step, out + at, count);
        });
      });
    });
  });
}

// The axis of the output along which neighbours of the input are neighbours, where it is not the
// last. -1 where there is none, or where one of the two axes is too short to gain from tiles.
int crossing_axis(const StridedGeometry& geometry) {
  constexpr int64_t kLeast = 4;
  const int last = static_cast<int>(geometry.extents.size()) - 1;
  if (geometry.strides[last] <= 1 || geometry.extents[last] < kLeast) return -1;
  for (int d = 0; d < last; ++d) {
    if (geometry.strides[d] == 1 && geometry.extents[d] >= kLeast) return d;
  }
  return -1;
}

// A transposition whose output's last axis is not the input's, in square tiles: the parts of the
// input's cache lines that are read are used before they are gone.
std::unique_ptr<Kernel> make_tiled_transpose(DType dtype, const StridedGeometry& geometry,
                                             int axis) {
  constexpr int64_t kTile = 16;
  const int last = static_cast<int>(geometry.extents.size()) - 1;
  const int64_t rows = geometry.extents[axis], columns = geometry.extents[last];
  const int64_t column_step = geometry.strides[last];
  int64_t row_step = 1;  // of the output
  for (int d = axis + 1; d <= last; ++d) row_step *= geometry.extents[d];
  // Walks the first element of each (axis, last) matrix, in input and output.
  BroadcastGeometry matrices{geometry.extents, {geometry.strides, geometry.strides}, 1};
  int64_t step = 1;
  for (int d = last; d >= 0; --d) {
    matrices.strides[1][d] = step;
    step *= geometry.extents[d];
  }
  matrices.extents[axis] = matrices.extents[last] = 1;
  for (const int64_t extent : matrices.extents) matrices.size *= extent;
  const int64_t bands = (rows + kTile - 1) / kTile;  // of rows, in a matrix
  return dispatch_size(dtype, [&]<typename T>(Type<T>) {
    return make_kernel(
        "kerascnn tiled transpose", [=, offset = geometry.offset](const KernelArgs& args) {
          const T* x = input<T>(args, 0) + offset;
          T* out = output<T>(args, 0);
          parallel_each(matrices.size * bands, kTile * columns, [&](int64_t task) {
            for_each_run<2>(matrices, task / bands, task / bands + 1,
                            [&](int64_t, const auto& at, int64_t) {
                              const int64_t first = task % bands * kTile;
                              const int64_t some_rows = std::min(kTile, rows - first);
                              const T* from = x + at[0] + first;
                              T* to = out + at[1] + first * row_step;
                              for (int64_t column = 0; column < columns; column += kTile) {
                                const int64_t some_columns = std::min(kTile, columns - column);
                                for (int64_t i = 0; i < some_rows; ++i) {
                                  const T* element = from + i + column * column_step;
                                  for (int64_t j = 0; j < some_columns; ++j) {
                                    to[i * row_step + column + j] = element[j * column_step];
                                  }
                                }
                              }
                            });
          });
        });
  });
}

StridedGeometry slice_geometry_of(const PlanRequest& request, const Shape& shape) {
  return slice_geometry(shape, request.attributes.get_ints("starts"),
                        request.attributes.get_ints("sizes"),
                        request.attributes.get_ints("strides"));
}

}  // namespace

std::unique_ptr<Kernel> plan_transpose(const PlanRequest& request) {
  const StridedGeometry geometry =
      transpose_geometry(request.inputs[0].shape, request.attributes.get_ints("permutation"));
  const int axis = crossing_axis(geometry);
  if (axis >= 0) return make_tiled_transpose(request.inputs[0].dtype, geometry, axis);
  return make_gathering_kernel(request.inputs[0].dtype, one_operand(geometry), geometry.offset);
}

std::unique_ptr<Kernel> plan_broadcast_to(const PlanRequest& request) {
  return make_gathering_kernel(request.inputs[0].dtype,
                               broadcast_geometry(request.outputs[0].shape, request.inputs), 0);
}

std::unique_ptr<Kernel> plan_slice(const PlanRequest& request) {
  const StridedGeometry geometry = slice_geometry_of(request, request.inputs[0].shape);
  return make_gathering_kernel(request.inputs[0].dtype, one_operand(geometry), geometry.offset);
}

std::unique_ptr<Kernel> plan_slice_grad(const PlanRequest& request) {
  const StridedGeometry strided = slice_geometry_of(request, request.outputs[0].shape);
  const BroadcastGeometry geometry = one_operand(strided);
  const int64_t bytes = num_bytes(request.outputs[0]);
  return dispatch_size(request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_kernel("kerascnn strided copy", [geometry, bytes,
                                                 offset = strided.offset](const KernelArgs& args) {
      T* out = output<T>(args, 0);
      const T* gy = input<T>(args, 0);
      if (bytes > 0) std::memset(out, 0, static_cast<size_t>(bytes));
      const int64_t step = geometry.strides[0].back();
      parallel_for(geometry.size, kElementGrain, [&](int64_t begin, int64_t end) {
        for_each_run<1>(geometry, begin, end, [&](int64_t at, const auto& offsets, int64_t count) {
          T* to = out + offset + offsets[0];
          for (int64_t i = 0; i < count; ++i) to[i * step] = gy[at + i];
        });
      });
    });
  });
}

std::unique_ptr<Kernel> plan_concatenate(const PlanRequest& request) {
  const int64_t axis = request.attributes.get_int("axis");
  const int64_t item = static_cast<int64_t>(itemsize(request.outputs[0].dtype));
  // For each input: its contiguous bytes for each index of the axes before `axis`.
  std::vector<int64_t> widths;
  int64_t outer = 1;
  for (const TensorSpec& spec : request.inputs) {
    const AxisGeometry geometry = axis_geometry(spec.shape, axis);
    outer = geometry.outer;
    widths.push_back(geometry.length * geometry.inner * item);
  }
  return make_kernel("kerascnn concatenate", [widths, outer](const KernelArgs& args) {
    int64_t row_bytes = 0;
    for (int64_t width : widths) row_bytes += width;
    const int64_t grain = std::max<int64_t>(1, 65536 / std::max<int64_t>(1, row_bytes));
    parallel_for(outer, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        char* to = output<char>(args, 0) + row * row_bytes;
        for (size_t k = 0; k < widths.size(); ++k) {
          if (widths[k] == 0) continue;
          std::memcpy(to, input<char>(args, k) + row * widths[k], static_cast<size_t>(widths[k]));
          to += widths[k];
        }
      }
    });
  });
}

}  // namespace kerascnn::cpu
