// What the kernels of 2-D pooling and of its gradients share. Threads take some neighbouring
// channels of a position at once; large tensors with the usual windows have kernels of their own.
#pragma once

#include <algorithm>
#include <memory>
#include <type_traits>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/ops/pool2d.h"

namespace kerascnn::cuda {

// The geometry in 32 bits, because index arithmetic per element is most of these kernels' work.
// Positions inside one image always fit; whole tensors may not, so offsets are 64-bit.
struct Pool {
  int input_height, input_width, channels, output_height, output_width;
  int window_height, window_width, stride_height, stride_width, pad_top, pad_left;
  int64_t batch;

  explicit Pool(const Pool2DGeometry& g)
      : input_height(static_cast<int>(g.input_height)),
        input_width(static_cast<int>(g.input_width)),
        channels(static_cast<int>(g.channels)),
        output_height(static_cast<int>(g.output_height)),
        output_width(static_cast<int>(g.output_width)),
        window_height(static_cast<int>(g.window_height)),
        window_width(static_cast<int>(g.window_width)),
        stride_height(static_cast<int>(g.stride_height)),
        stride_width(static_cast<int>(g.stride_width)),
        pad_top(static_cast<int>(g.pad_top)),
        pad_left(static_cast<int>(g.pad_left)),
        batch(g.batch) {}

  __host__ __device__ int64_t input_image() const {
    return static_cast<int64_t>(input_height) * input_width * channels;
  }
  __host__ __device__ int64_t output_image() const {
    return static_cast<int64_t>(output_height) * output_width * channels;
  }
};

// A tensor's images as threads go through them: `groups` pieces of the channels at each column of
// each row.
struct Grid {
  Divisor groups, width, height;

  Grid(int64_t rows, int64_t columns, int64_t pieces)
      : groups(pieces), width(columns), height(rows) {}
};

// Where an element is: in image n, at row and column, with the channels from `channel` on.
struct Position {
  int64_t n;
  int row, column, channel;

  __device__ __forceinline__ Position(int64_t index, const Grid& grid, int group_size) {
    channel = static_cast<int>(grid.groups.divide(&index)) * group_size;
    column = static_cast<int>(grid.width.divide(&index));
    row = static_cast<int>(grid.height.divide(&index));
    n = index;
  }
};

// Whether a thread may touch this position of an image; the compiler sees one comparison.
__device__ __forceinline__ bool is_inside(int position, int extent) {
  return static_cast<unsigned>(position) < static_cast<unsigned>(extent);
}

__device__ __forceinline__ int64_t offset(const Position& at, int height, int width, int channels,
                                          int row, int column) {
  return ((at.n * height + row) * width + column) * channels + at.channel;
}

template <int N, typename T>
__device__ __forceinline__ Vector<T, N> load_pack(const T* from) {
  return *reinterpret_cast<const Vector<T, N>*>(from);
}
template <int N, typename T>
__device__ __forceinline__ void store_pack(T* to, const Vector<T, N>& pack) {
  *reinterpret_cast<Vector<T, N>*>(to) = pack;
}

// How many elements of the input are in the window that starts at `start`, along an axis.
__device__ __forceinline__ int count_inside(int start, int window, int extent) {
  return min(start + window, extent) - max(start, 0);
}

// Divides by the number of elements of the window at (row, column) of the output. Numbers of 16
// bits are multiplied by its reciprocal, which is off by less than they are rounded by.
template <typename T>
struct Mean {
  compute_t<T> factor;

  Mean() = default;
  __device__ __forceinline__ Mean(const Pool& p, int row, int column) {
    const auto count = static_cast<compute_t<T>>(
        count_inside(row * p.stride_height - p.pad_top, p.window_height, p.input_height) *
        count_inside(column * p.stride_width - p.pad_left, p.window_width, p.input_width));
    factor = sizeof(T) == 2 ? 1 / count : count;
  }
  __device__ __forceinline__ compute_t<T> operator()(compute_t<T> value) const {
    return sizeof(T) == 2 ? value * factor : value / factor;
  }
};

template <int kWindow, int kStride>
struct Window {};

// Calls function(Window<window, stride>()) for windows that have kernels of their own, else
// function(Window<0, 0>()). The forward kernels take any strides.
template <typename Function>
auto with_window(const Pool2DGeometry& g, bool any_strides, Function&& function) {
  const auto is = [&](int64_t window, int64_t stride) {
    return g.window_height == window && g.window_width == window &&
           (any_strides || (g.stride_height == stride && g.stride_width == stride));
  };
  if (is(2, 2)) return function(Window<2, 2>());
  if (is(3, 2)) return function(Window<3, 2>());
  return function(Window<0, 0>());
}

// Calls function(width, window) with the number of channels that a thread takes at once and, where
// that is a pack of 16 bytes, the window. Packs of 16 bytes, and several results for each thread,
// have to leave enough threads for a GPU. Tensors are aligned to that.
template <typename T, typename Function>
auto with_width(const Pool2DGeometry& g, bool is_gradient, Function&& function) {
  constexpr int64_t kManyThreads = int64_t{1} << 15;
  constexpr int64_t kLargeImage = int64_t{1} << 30;  // indices in 32 bits
  constexpr int kWidest = static_cast<int>(16 / sizeof(T));
  constexpr int kNarrow = kWidest < 4 ? kWidest : 4;
  const int64_t results = is_gradient
                              ? num_elements(g.input_shape()) / (g.stride_height * g.stride_width)
                              : num_elements(g.output_shape());
  const bool fits = std::max(Pool(g).input_image(), Pool(g).output_image()) < kLargeImage;
  if (g.channels % kWidest == 0 && results / kWidest >= kManyThreads && fits) {
    return with_window(g, !is_gradient, [&](auto window) {
      return function(std::integral_constant<int, kWidest>(), window);
    });
  }
  if (g.channels % kNarrow == 0) {
    return function(std::integral_constant<int, kNarrow>(), Window<0, 0>());
  }
  return function(std::integral_constant<int, 1>(), Window<0, 0>());
}

// The type of max_pool2d's positions.
template <int kWindow, typename Function>
auto with_index_type(const Pool2DGeometry& g, Function&& function) {
  if constexpr (kWindow == 0) {
    if (g.index_dtype() != DType::UInt8) return function(Type<int32_t>());
  }
  return function(Type<uint8_t>());
}

template <typename Launch>
std::unique_ptr<Kernel> make_pool(const char* op, int64_t size, Launch&& launch) {
  return make_early_kernel(message("kerascnn ", op), [=](const KernelArgs& args) {
    if (size == 0) return;
    launch(grid_for(size), args, static_cast<cudaStream_t>(args.stream));
    check_launch(op);
  });
}

inline Pool2DGeometry pool_geometry_of(const PlanRequest& request, bool is_gradient) {
  return pool2d_geometry(
      request.op.name, request.attributes,
      is_gradient ? request.attributes.get_ints("input_shape") : request.inputs[0].shape);
}

// Calls function(Type<T>(), width, window), which plans the kernel.
template <typename Function>
std::unique_ptr<Kernel> plan_pool(const PlanRequest& request, const Pool2DGeometry& g,
                                  bool is_gradient, Function&& function) {
  return dispatch_floating(request.op.name, request.inputs[0].dtype, [&]<typename T>(Type<T> type) {
    return with_width<T>(g, is_gradient,
                         [&](auto width, auto window) { return function(type, width, window); });
  });
}

}  // namespace kerascnn::cuda
