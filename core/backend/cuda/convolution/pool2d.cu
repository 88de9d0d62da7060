// max_pool2d, avg_pool2d and their gradients. A gradient gathers from all windows that cover its
// element: no atomics, always the same order. Threads take some neighbouring channels of one
// position at once; large tensors with the usual windows have kernels of their own.
#include <limits>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/ops/pool2d.h"

namespace kerascnn::cuda {
namespace {

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
};

// Where an element is: in image n, at row and column, with the channels from `channel` on.
struct Position {
  int64_t n;
  int row, column, channel;

  __device__ __forceinline__ Position(int64_t index, int height, int width, int groups,
                                      int group_size) {
    // Within 32 bits the divisions are several times faster.
    if ((index >> 32) == 0) {
      unsigned rest = static_cast<unsigned>(index);
      channel = static_cast<int>(rest % groups) * group_size;
      rest /= groups;
      column = static_cast<int>(rest % width);
      rest /= width;
      row = static_cast<int>(rest % height);
      n = rest / height;
    } else {
      channel = static_cast<int>(index % groups) * group_size;
      index /= groups;
      column = static_cast<int>(index % width);
      index /= width;
      row = static_cast<int>(index % height);
      n = index / height;
    }
  }
};

// The windows that cover position p of an axis are first .. last - 1.
__device__ __forceinline__ void covering_windows(int p, int pad, int window, int stride,
                                                 int outputs, int* first, int* last) {
  const int shifted = p + pad;
  *first = shifted < window ? 0 : (shifted - window) / stride + 1;
  *last = min(shifted / stride + 1, outputs);
}

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

// The greatest values of a window so far. The first of equal ones wins, and the first NaN.
template <typename T, typename Index, int N>
struct Maxima {
  compute_t<T> values[N];
  Index positions[N];

  // `first` is the window's first position inside the image: where all values are -inf it wins.
  __device__ __forceinline__ explicit Maxima(int first) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      values[k] = -std::numeric_limits<compute_t<T>>::infinity();
      positions[k] = static_cast<Index>(first);
    }
  }
  __device__ __forceinline__ void take(const Vector<T, N>& pack, int position) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const compute_t<T> value = load(pack.values[k]);
      if (!(value <= values[k]) && values[k] == values[k]) {
        values[k] = value;
        positions[k] = static_cast<Index>(position);
      }
    }
  }
};

// Calls take(pack, row, column) for the window's elements inside the image, in their order. Where
// kWindow is not 0 the window is kWindow x kWindow, and all of its loads are under way at once.
template <int kWindow, int N, typename T, typename Take>
__device__ __forceinline__ void for_window(const T* __restrict__ x, const Pool& p,
                                           const Position& at, int top, int left, Take&& take) {
  const auto source = [&](int i, int j) {
    return x + offset(at, p.input_height, p.input_width, p.channels, top + i, left + j);
  };
  if constexpr (kWindow > 0) {
    Vector<T, N> packs[kWindow][kWindow];
#pragma unroll
    for (int i = 0; i < kWindow; ++i) {
#pragma unroll
      for (int j = 0; j < kWindow; ++j) {
        if (is_inside(top + i, p.input_height) && is_inside(left + j, p.input_width)) {
          packs[i][j] = load_pack<N>(source(i, j));
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kWindow; ++i) {
#pragma unroll
      for (int j = 0; j < kWindow; ++j) {
        if (is_inside(top + i, p.input_height) && is_inside(left + j, p.input_width)) {
          take(packs[i][j], i, j);
        }
      }
    }
  } else {
    const int last_row = min(p.window_height, p.input_height - top);
    const int last_column = min(p.window_width, p.input_width - left);
    for (int i = max(0, -top); i < last_row; ++i) {
      for (int j = max(0, -left); j < last_column; ++j) {
        take(load_pack<N>(source(i, j)), i, j);
      }
    }
  }
}

template <typename T, typename Index, int N, int kWindow>
__global__ void max_pool_kernel(const T* __restrict__ x, T* __restrict__ y,
                                Index* __restrict__ index, Pool p, int64_t size) {
  begin_kernel();
  const int window_width = kWindow > 0 ? kWindow : p.window_width;
  for (int64_t i = first_item(); i < size; i += item_step()) {
    const Position at(i, p.output_height, p.output_width, p.channels / N, N);
    const int top = at.row * p.stride_height - p.pad_top;
    const int left = at.column * p.stride_width - p.pad_left;
    Maxima<T, Index, N> maxima(max(0, -top) * window_width + max(0, -left));
    for_window<kWindow, N>(x, p, at, top, left, [&](const Vector<T, N>& pack, int row, int column) {
      maxima.take(pack, row * window_width + column);
    });
    Vector<T, N> result;
    Vector<Index, N> positions;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      result.values[k] = store<T>(maxima.values[k]);
      positions.values[k] = maxima.positions[k];
    }
    store_pack<N>(y + i * N, result);
    if (index != nullptr) store_pack<N>(index + i * N, positions);
  }
}

// How many elements of the input are inside the window that starts at `start`.
__device__ __forceinline__ int inside(int start, int window, int extent) {
  return min(start + window, extent) - max(start, 0);
}

template <typename T, int N, int kWindow>
__global__ void avg_pool_kernel(const T* __restrict__ x, T* __restrict__ y, Pool p, int64_t size) {
  begin_kernel();
  using C = compute_t<T>;
  for (int64_t i = first_item(); i < size; i += item_step()) {
    const Position at(i, p.output_height, p.output_width, p.channels / N, N);
    const int top = at.row * p.stride_height - p.pad_top;
    const int left = at.column * p.stride_width - p.pad_left;
    C sum[N] = {};
    for_window<kWindow, N>(x, p, at, top, left, [&](const Vector<T, N>& pack, int, int) {
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += load(pack.values[k]);
    });
    const C count = static_cast<C>(inside(top, p.window_height, p.input_height) *
                                   inside(left, p.window_width, p.input_width));
    Vector<T, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) result.values[k] = store<T>(sum[k] / count);
    store_pack<N>(y + i * N, result);
  }
}

// The gradients of the windows at one place of the output, for N channels: what a position of
// the window gets of them.
template <typename T, typename Index, int N>
struct MaxGradient {
  struct Source {
    const T* gy;
    const Index* index;
  };
  Vector<T, N> gradients;
  Vector<Index, N> positions;

  __device__ __forceinline__ void read(const Source& source, const Pool&, int64_t at, int, int) {
    gradients = load_pack<N>(source.gy + at);
    positions = load_pack<N>(source.index + at);
  }
  __device__ __forceinline__ void add(compute_t<T> (&sum)[N], int position) const {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (positions.values[k] == static_cast<Index>(position)) sum[k] += load(gradients.values[k]);
    }
  }
};

template <typename T, int N>
struct AvgGradient {
  struct Source {
    const T* gy;
  };
  Vector<T, N> gradients;
  compute_t<T> count;

  __device__ __forceinline__ void read(const Source& source, const Pool& p, int64_t at, int row,
                                       int column) {
    gradients = load_pack<N>(source.gy + at);
    count = static_cast<compute_t<T>>(
        inside(row * p.stride_height - p.pad_top, p.window_height, p.input_height) *
        inside(column * p.stride_width - p.pad_left, p.window_width, p.input_width));
  }
  __device__ __forceinline__ void add(compute_t<T> (&sum)[N], int) const {
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += load(gradients.values[k]) / count;
  }
};

template <typename T, int N>
__device__ __forceinline__ void store_sums(T* to, const compute_t<T> (&sum)[N]) {
  Vector<T, N> result;
#pragma unroll
  for (int k = 0; k < N; ++k) result.values[k] = store<T>(sum[k]);
  store_pack<N>(to, result);
}

// One item is one position of the input, which gathers from all windows that cover it.
template <typename T, int N, typename Gradient>
__global__ void pool_grad_kernel(typename Gradient::Source source, T* __restrict__ gx, Pool p,
                                 int64_t size) {
  begin_kernel();
  for (int64_t i = first_item(); i < size; i += item_step()) {
    const Position at(i, p.input_height, p.input_width, p.channels / N, N);
    int first_row, last_row, first_column, last_column;
    covering_windows(at.row, p.pad_top, p.window_height, p.stride_height, p.output_height,
                     &first_row, &last_row);
    covering_windows(at.column, p.pad_left, p.window_width, p.stride_width, p.output_width,
                     &first_column, &last_column);
    compute_t<T> sum[N] = {};
    for (int row = first_row; row < last_row; ++row) {
      for (int column = first_column; column < last_column; ++column) {
        Gradient gradient;
        gradient.read(source, p,
                      offset(at, p.output_height, p.output_width, p.channels, row, column), row,
                      column);
        gradient.add(sum, (at.row + p.pad_top - row * p.stride_height) * p.window_width +
                              (at.column + p.pad_left - column * p.stride_width));
      }
    }
    store_sums<T, N>(gx + i * N, sum);
  }
}

// The same for windows of kWindow x kWindow elements with one stride. One item is kStride x kStride
// positions of the input, those that begin the same windows: each of these is read once for all of
// them. An axis has ceil((extent + padding before) / stride) such blocks; what is in no window gets
// zeros. Sums have the same order as above.
template <typename T, int N, typename Gradient, int kWindow, int kStride>
__global__ void __launch_bounds__(kThreads)
    pool_grad_blocks_kernel(typename Gradient::Source source, T* __restrict__ gx, Pool p,
                            int block_rows, int block_columns, int64_t size) {
  begin_kernel();
  constexpr int kCovering = (kWindow + kStride - 1) / kStride;  // windows of an axis
  for (int64_t i = first_item(); i < size; i += item_step()) {
    const Position at(i, block_rows, block_columns, p.channels / N, N);
    const int first_row = at.row - (kCovering - 1), first_column = at.column - (kCovering - 1);
    Gradient gradients[kCovering][kCovering];
#pragma unroll
    for (int r = 0; r < kCovering; ++r) {
#pragma unroll
      for (int c = 0; c < kCovering; ++c) {
        const int row = first_row + r, column = first_column + c;
        if (is_inside(row, p.output_height) && is_inside(column, p.output_width)) {
          gradients[r][c].read(source, p,
                               offset(at, p.output_height, p.output_width, p.channels, row, column),
                               row, column);
        }
      }
    }
#pragma unroll
    for (int a = 0; a < kStride; ++a) {
#pragma unroll
      for (int b = 0; b < kStride; ++b) {
        const int row = at.row * kStride + a - p.pad_top;
        const int column = at.column * kStride + b - p.pad_left;
        if (!is_inside(row, p.input_height) || !is_inside(column, p.input_width)) continue;
        compute_t<T> sum[N] = {};
#pragma unroll
        for (int r = 0; r < kCovering; ++r) {
#pragma unroll
          for (int c = 0; c < kCovering; ++c) {
            // Where in this window the position is.
            const int i_window = (kCovering - 1 - r) * kStride + a;
            const int j_window = (kCovering - 1 - c) * kStride + b;
            if (i_window < kWindow && j_window < kWindow &&
                is_inside(first_row + r, p.output_height) &&
                is_inside(first_column + c, p.output_width)) {
              gradients[r][c].add(sum, i_window * kWindow + j_window);
            }
          }
        }
        store_sums<T, N>(gx + offset(at, p.input_height, p.input_width, p.channels, row, column),
                         sum);
      }
    }
  }
}

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
  constexpr int kWidest = static_cast<int>(16 / sizeof(T));
  constexpr int kNarrow = kWidest < 4 ? kWidest : 4;
  const int64_t results = is_gradient
                              ? num_elements(g.input_shape()) / (g.stride_height * g.stride_width)
                              : num_elements(g.output_shape());
  if (g.channels % kWidest == 0 && results / kWidest >= kManyThreads) {
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

// source(args) are the pointers to what the gradient reads.
template <typename T, int N, typename Gradient, int kWindow, int kStride, typename MakeSource>
std::unique_ptr<Kernel> make_pool_grad(const char* op, const Pool2DGeometry& g,
                                       Window<kWindow, kStride>, MakeSource&& source) {
  const Pool pool(g);
  if constexpr (kWindow > 0) {
    const int rows = static_cast<int>(ceil_div(g.input_height + g.pad_top, kStride));
    const int columns = static_cast<int>(ceil_div(g.input_width + g.pad_left, kStride));
    const int64_t size = g.batch * rows * columns * (g.channels / N);
    return make_pool(op, size, [=](unsigned grid, const KernelArgs& args, cudaStream_t stream) {
      pool_grad_blocks_kernel<T, N, Gradient, kWindow, kStride><<<grid, kThreads, 0, stream>>>(
          source(args), output<T>(args, 0), pool, rows, columns, size);
    });
  } else {
    const int64_t size = num_elements(g.input_shape()) / N;
    return make_pool(op, size, [=](unsigned grid, const KernelArgs& args, cudaStream_t stream) {
      pool_grad_kernel<T, N, Gradient>
          <<<grid, kThreads, 0, stream>>>(source(args), output<T>(args, 0), pool, size);
    });
  }
}

}  // namespace

std::unique_ptr<Kernel> plan_max_pool2d(const PlanRequest& request) {
  constexpr const char* kOp = "max_pool2d";
  const Pool2DGeometry g = pool2d_geometry(kOp, request.attributes, request.inputs[0].shape);
  return dispatch_floating(kOp, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return with_width<T>(
        g, false,
        [&]<int N, int kWindow, int kStride>(std::integral_constant<int, N>,
                                             Window<kWindow, kStride>) {
          return with_index_type<kWindow>(g, [&]<typename Index>(Type<Index>) {
            const int64_t size = num_elements(g.output_shape()) / N;
            return make_pool(
                kOp, size,
                [pool = Pool(g), size](unsigned grid, const KernelArgs& args, cudaStream_t stream) {
                  max_pool_kernel<T, Index, N, kWindow><<<grid, kThreads, 0, stream>>>(
                      input<T>(args, 0), output<T>(args, 0), output<Index>(args, 1), pool, size);
                });
          });
        });
  });
}

std::unique_ptr<Kernel> plan_avg_pool2d(const PlanRequest& request) {
  constexpr const char* kOp = "avg_pool2d";
  const Pool2DGeometry g = pool2d_geometry(kOp, request.attributes, request.inputs[0].shape);
  return dispatch_floating(kOp, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return with_width<T>(
        g, false,
        [&]<int N, int kWindow, int kStride>(std::integral_constant<int, N>,
                                             Window<kWindow, kStride>) {
          const int64_t size = num_elements(g.output_shape()) / N;
          return make_pool(
              kOp, size,
              [pool = Pool(g), size](unsigned grid, const KernelArgs& args, cudaStream_t stream) {
                avg_pool_kernel<T, N, kWindow><<<grid, kThreads, 0, stream>>>(
                    input<T>(args, 0), output<T>(args, 0), pool, size);
              });
        });
  });
}

std::unique_ptr<Kernel> plan_max_pool2d_grad(const PlanRequest& request) {
  constexpr const char* kOp = "max_pool2d_grad";
  const Pool2DGeometry g =
      pool2d_geometry(kOp, request.attributes, request.attributes.get_ints("input_shape"));
  return dispatch_floating(kOp, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return with_width<T>(
        g, true,
        [&]<int N, int kWindow, int kStride>(std::integral_constant<int, N>,
                                             Window<kWindow, kStride> window) {
          return with_index_type<kWindow>(g, [&]<typename Index>(Type<Index>) {
            using Gradient = MaxGradient<T, Index, N>;
            return make_pool_grad<T, N, Gradient>(kOp, g, window, [](const KernelArgs& args) {
              return typename Gradient::Source{input<T>(args, 0), input<Index>(args, 1)};
            });
          });
        });
  });
}

std::unique_ptr<Kernel> plan_avg_pool2d_grad(const PlanRequest& request) {
  constexpr const char* kOp = "avg_pool2d_grad";
  const Pool2DGeometry g =
      pool2d_geometry(kOp, request.attributes, request.attributes.get_ints("input_shape"));
  return dispatch_floating(kOp, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return with_width<T>(g, true,
                         [&]<int N, int kWindow, int kStride>(std::integral_constant<int, N>,
                                                              Window<kWindow, kStride> window) {
                           using Gradient = AvgGradient<T, N>;
                           return make_pool_grad<T, N, Gradient>(
                               kOp, g, window, [](const KernelArgs& args) {
                                 return typename Gradient::Source{input<T>(args, 0)};
                               });
                         });
  });
}

}  // namespace kerascnn::cuda
