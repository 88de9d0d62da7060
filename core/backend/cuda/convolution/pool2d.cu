// max_pool2d, avg_pool2d and their gradients. A gradient gathers from all windows that cover its
// element: no atomics, always the same order. Threads take some neighbouring channels of one
// position at once; large tensors with the usual windows have kernels of their own.
#include <algorithm>
#include <limits>
#include <type_traits>

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
  Vector<Index, N> positions;

  // `first` is the window's first position inside the image: where all values are -inf it wins.
  __device__ __forceinline__ explicit Maxima(int first) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      values[k] = -std::numeric_limits<compute_t<T>>::infinity();
      positions.values[k] = static_cast<Index>(first);
    }
  }
  __device__ __forceinline__ void take(const Vector<T, N>& pack, int position) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const compute_t<T> value = load(pack.values[k]);
      if (!(value <= values[k]) && values[k] == values[k]) {
        values[k] = value;
        positions.values[k] = static_cast<Index>(position);
      }
    }
  }
  __device__ __forceinline__ Vector<T, N> result() const {
    Vector<T, N> rounded;
#pragma unroll
    for (int k = 0; k < N; ++k) rounded.values[k] = store<T>(values[k]);
    return rounded;
  }
};

template <typename Index, int N, typename T>
__device__ __forceinline__ Maxima<T, Index, N> maxima_of(const T* __restrict__ x, const Pool& p,
                                                         const Position& at, int top, int left) {
  const int last_row = min(p.window_height, p.input_height - top);
  const int last_column = min(p.window_width, p.input_width - left);
  Maxima<T, Index, N> maxima(max(0, -top) * p.window_width + max(0, -left));
  for (int row = max(0, -top); row < last_row; ++row) {
    for (int column = max(0, -left); column < last_column; ++column) {
      maxima.take(load_pack<N>(x + offset(at, p.input_height, p.input_width, p.channels, top + row,
                                          left + column)),
                  row * p.window_width + column);
    }
  }
  return maxima;
}

template <typename T, typename Index, int N>
__global__ void max_pool_kernel(const T* __restrict__ x, T* __restrict__ y,
                                Index* __restrict__ index, Pool p, Grid grid, int64_t size) {
  begin_kernel();
  for (int64_t i = first_item(); i < size; i += item_step()) {
    const Position at(i, grid, N);
    const int top = at.row * p.stride_height - p.pad_top;
    const int left = at.column * p.stride_width - p.pad_left;
    const auto maxima = maxima_of<Index, N>(x, p, at, top, left);
    store_pack<N>(y + i * N, maxima.result());
    if (index != nullptr) store_pack<N>(index + i * N, maxima.positions);
  }
}

// What a thread reads of a window of kWindow x kWindow elements: all loads are under way at once.
template <typename T, int N, int kWindow>
struct WindowPacks {
  static constexpr int kCount = kWindow * kWindow;
  Vector<T, N> packs[kCount];  // -inf outside the image
  bool inside[kCount];

  __device__ __forceinline__ WindowPacks(const T* __restrict__ x, const Pool& p, const Position& at,
                                         int top, int left) {
    const T* const image = x + (at.n * p.input_image() + at.channel);
    const int first = (top * p.input_width + left) * p.channels;
#pragma unroll
    for (int i = 0; i < kWindow; ++i) {
#pragma unroll
      for (int j = 0; j < kWindow; ++j) {
        const int t = i * kWindow + j;
        inside[t] = is_inside(top + i, p.input_height) && is_inside(left + j, p.input_width);
        if (inside[t]) {
          packs[t] = load_pack<N>(image + (first + (i * p.input_width + j) * p.channels));
        } else {
#pragma unroll
          for (int k = 0; k < N; ++k) {
            packs[t].values[k] = store<T>(-std::numeric_limits<compute_t<T>>::infinity());
          }
        }
      }
    }
  }
};

// The greatest values of a window and their positions, by instructions for two numbers of 16 bits.
// False where there is a NaN among them: then they are not the first ones.
template <typename T, int N, int kWindow>
__device__ __forceinline__ bool take_pairs(const WindowPacks<T, N, kWindow>& window,
                                           Vector<T, N>* result, Vector<uint8_t, N>* positions) {
  using Two = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
  constexpr int kCount = kWindow * kWindow;
  const auto pair = [&](int t, int k) {
    Two two;
    two.x = window.packs[t].values[2 * k];
    two.y = window.packs[t].values[2 * k + 1];
    return two;
  };
  unsigned not_numbers = 0;
#pragma unroll
  for (int k = 0; k < N / 2; ++k) {
    Two greatest = pair(0, k);
#pragma unroll
    for (int t = 1; t < kCount; ++t) greatest = __hmax2_nan(greatest, pair(t, k));
    not_numbers |= __hneu2_mask(greatest, greatest);
    unsigned found = 0;  // the first positions with these values
#pragma unroll
    for (int t = kCount - 1; t >= 0; --t) {
      const unsigned equal = window.inside[t] ? __heq2_mask(pair(t, k), greatest) : 0;
      found = (found & ~equal) | (0x00010001u * t & equal);
    }
    result->values[2 * k] = greatest.x;
    result->values[2 * k + 1] = greatest.y;
    positions->values[2 * k] = static_cast<uint8_t>(found);
    positions->values[2 * k + 1] = static_cast<uint8_t>(found >> 16);
  }
  return not_numbers == 0;
}

template <typename T, int N, int kWindow>
__global__ void __launch_bounds__(kThreads)
    max_pool_window_kernel(const T* __restrict__ x, T* __restrict__ y, uint8_t* __restrict__ index,
                           Pool p, Grid grid, int64_t size) {
  begin_kernel();
  for (int64_t i = first_item(); i < size; i += item_step()) {
    const Position at(i, grid, N);
    const int top = at.row * p.stride_height - p.pad_top;
    const int left = at.column * p.stride_width - p.pad_left;
    const WindowPacks<T, N, kWindow> window(x, p, at, top, left);
    Vector<T, N> result;
    Vector<uint8_t, N> positions;
    if constexpr (sizeof(T) == 2) {
      if (!take_pairs(window, &result, &positions)) {
        const auto maxima = maxima_of<uint8_t, N>(x, p, at, top, left);
        result = maxima.result();
        positions = maxima.positions;
      }
    } else {
      Maxima<T, uint8_t, N> maxima(max(0, -top) * kWindow + max(0, -left));
#pragma unroll
      for (int t = 0; t < kWindow * kWindow; ++t) {
        if (window.inside[t]) maxima.take(window.packs[t], t);
      }
      result = maxima.result();
      positions = maxima.positions;
    }
    store_pack<N>(y + i * N, result);
    if (index != nullptr) store_pack<N>(index + i * N, positions);
  }
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

// Where kWindow is 0 the window has any extents.
template <typename T, int N, int kWindow>
__global__ void avg_pool_kernel(const T* __restrict__ x, T* __restrict__ y, Pool p, Grid grid,
                                int64_t size) {
  begin_kernel();
  for (int64_t i = first_item(); i < size; i += item_step()) {
    const Position at(i, grid, N);
    const int top = at.row * p.stride_height - p.pad_top;
    const int left = at.column * p.stride_width - p.pad_left;
    compute_t<T> sum[N] = {};
    const auto take = [&](const Vector<T, N>& pack) {
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += load(pack.values[k]);
    };
    if constexpr (kWindow > 0) {
      const WindowPacks<T, N, kWindow> window(x, p, at, top, left);
#pragma unroll
      for (int t = 0; t < kWindow * kWindow; ++t) {
        if (window.inside[t]) take(window.packs[t]);
      }
    } else {
      const int last_row = min(top + p.window_height, p.input_height);
      const int last_column = min(left + p.window_width, p.input_width);
      for (int row = max(top, 0); row < last_row; ++row) {
        for (int column = max(left, 0); column < last_column; ++column) {
          take(
              load_pack<N>(x + offset(at, p.input_height, p.input_width, p.channels, row, column)));
        }
      }
    }
    const Mean<T> mean(p, at.row, at.column);
    Vector<T, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) result.values[k] = store<T>(mean(sum[k]));
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

    __device__ __forceinline__ Source operator+(int64_t elements) const {
      return {gy + elements, index + elements};
    }
  };
  Vector<T, N> gradients;
  Vector<Index, N> positions;

  __device__ __forceinline__ void read(const Source& source, const Pool&, int, int) {
    gradients = load_pack<N>(source.gy);
    positions = load_pack<N>(source.index);
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

    __device__ __forceinline__ Source operator+(int64_t elements) const { return {gy + elements}; }
  };
  Vector<T, N> gradients;
  Mean<T> mean;

  __device__ __forceinline__ void read(const Source& source, const Pool& p, int row, int column) {
    gradients = load_pack<N>(source.gy);
    mean = Mean<T>(p, row, column);
  }
  __device__ __forceinline__ void add(compute_t<T> (&sum)[N], int) const {
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += mean(load(gradients.values[k]));
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
                                 Grid grid, int64_t size) {
  begin_kernel();
  for (int64_t i = first_item(); i < size; i += item_step()) {
    const Position at(i, grid, N);
    int first_row, last_row, first_column, last_column;
    covering_windows(at.row, p.pad_top, p.window_height, p.stride_height, p.output_height,
                     &first_row, &last_row);
    covering_windows(at.column, p.pad_left, p.window_width, p.stride_width, p.output_width,
                     &first_column, &last_column);
    compute_t<T> sum[N] = {};
    for (int row = first_row; row < last_row; ++row) {
      for (int column = first_column; column < last_column; ++column) {
        Gradient gradient;
        gradient.read(source + offset(at, p.output_height, p.output_width, p.channels, row, column),
                      p, row, column);
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
                            Grid blocks, int64_t size) {
  begin_kernel();
  constexpr int kCovering = (kWindow + kStride - 1) / kStride;  // windows of an axis
  for (int64_t i = first_item(); i < size; i += item_step()) {
    const Position at(i, blocks, N);
    const int first_row = at.row - (kCovering - 1), first_column = at.column - (kCovering - 1);
    const auto image = source + (at.n * p.output_image() + at.channel);
    const int first = (first_row * p.output_width + first_column) * p.channels;
    Gradient gradients[kCovering][kCovering];
    bool exists[kCovering][kCovering];
#pragma unroll
    for (int r = 0; r < kCovering; ++r) {
#pragma unroll
      for (int c = 0; c < kCovering; ++c) {
        const int row = first_row + r, column = first_column + c;
        exists[r][c] = is_inside(row, p.output_height) && is_inside(column, p.output_width);
        if (exists[r][c]) {
          gradients[r][c].read(image + (first + (r * p.output_width + c) * p.channels), p, row,
                               column);
        }
      }
    }
    const int top = at.row * kStride - p.pad_top, left = at.column * kStride - p.pad_left;
    T* const block = gx + (at.n * p.input_image() + at.channel);
    const int corner = (top * p.input_width + left) * p.channels;
#pragma unroll
    for (int a = 0; a < kStride; ++a) {
#pragma unroll
      for (int b = 0; b < kStride; ++b) {
        if (!is_inside(top + a, p.input_height) || !is_inside(left + b, p.input_width)) continue;
        compute_t<T> sum[N] = {};
#pragma unroll
        for (int r = 0; r < kCovering; ++r) {
#pragma unroll
          for (int c = 0; c < kCovering; ++c) {
            // Where in this window the position is.
            const int row = (kCovering - 1 - r) * kStride + a;
            const int column = (kCovering - 1 - c) * kStride + b;
            if (row < kWindow && column < kWindow && exists[r][c]) {
              gradients[r][c].add(sum, row * kWindow + column);
            }
          }
        }
        store_sums<T, N>(block + (corner + (a * p.input_width + b) * p.channels), sum);
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

// The launch of a forward kernel: max pooling's where `Index` is no void.
template <typename T, int N, int kWindow, typename Index>
std::unique_ptr<Kernel> make_forward(const char* op, const Pool2DGeometry& g) {
  const int64_t size = num_elements(g.output_shape()) / N;
  const Grid positions(g.output_height, g.output_width, g.channels / N);
  return make_pool(op, size,
                   [=, pool = Pool(g)](unsigned grid, const KernelArgs& args, cudaStream_t stream) {
                     const auto launch = [&](auto* kernel, auto*... index) {
                       kernel<<<grid, kThreads, 0, stream>>>(input<T>(args, 0), output<T>(args, 0),
                                                             index..., pool, positions, size);
                     };
                     if constexpr (std::is_void_v<Index>) {
                       launch(avg_pool_kernel<T, N, kWindow>);
                     } else if constexpr (kWindow > 0) {
                       launch(max_pool_window_kernel<T, N, kWindow>, output<Index>(args, 1));
                     } else {
                       launch(max_pool_kernel<T, Index, N>, output<Index>(args, 1));
                     }
                   });
}

// source(args) are the pointers to what the gradient reads.
template <typename T, int N, typename Gradient, int kWindow, int kStride, typename MakeSource>
std::unique_ptr<Kernel> make_gradient(const char* op, const Pool2DGeometry& g,
                                      Window<kWindow, kStride>, MakeSource&& source) {
  if constexpr (kWindow > 0) {
    const int64_t rows = ceil_div(g.input_height + g.pad_top, kStride);
    const int64_t columns = ceil_div(g.input_width + g.pad_left, kStride);
    const int64_t size = g.batch * rows * columns * (g.channels / N);
    const Grid blocks(rows, columns, g.channels / N);
    return make_pool(
        op, size, [=, pool = Pool(g)](unsigned grid, const KernelArgs& args, cudaStream_t stream) {
          pool_grad_blocks_kernel<T, N, Gradient, kWindow, kStride>
              <<<grid, kThreads, 0, stream>>>(source(args), output<T>(args, 0), pool, blocks, size);
        });
  } else {
    const int64_t size = num_elements(g.input_shape()) / N;
    const Grid positions(g.input_height, g.input_width, g.channels / N);
    return make_pool(
        op, size, [=, pool = Pool(g)](unsigned grid, const KernelArgs& args, cudaStream_t stream) {
          pool_grad_kernel<T, N, Gradient><<<grid, kThreads, 0, stream>>>(
              source(args), output<T>(args, 0), pool, positions, size);
        });
  }
}

Pool2DGeometry geometry_of(const PlanRequest& request, bool is_gradient) {
  return pool2d_geometry(
      request.op.name, request.attributes,
      is_gradient ? request.attributes.get_ints("input_shape") : request.inputs[0].shape);
}

// Calls function(Type<T>(), width, window).
template <typename Function>
std::unique_ptr<Kernel> plan(const PlanRequest& request, const Pool2DGeometry& g, bool is_gradient,
                             Function&& function) {
  return dispatch_floating(request.op.name, request.inputs[0].dtype, [&]<typename T>(Type<T> type) {
    return with_width<T>(g, is_gradient,
                         [&](auto width, auto window) { return function(type, width, window); });
  });
}

}  // namespace

std::unique_ptr<Kernel> plan_max_pool2d(const PlanRequest& request) {
  const Pool2DGeometry g = geometry_of(request, false);
  return plan(request, g, false,
              [&]<typename T, int N, int kWindow, int kStride>(
                  Type<T>, std::integral_constant<int, N>, Window<kWindow, kStride>) {
                return with_index_type<kWindow>(g, [&]<typename Index>(Type<Index>) {
                  return make_forward<T, N, kWindow, Index>("max_pool2d", g);
                });
              });
}

std::unique_ptr<Kernel> plan_avg_pool2d(const PlanRequest& request) {
  const Pool2DGeometry g = geometry_of(request, false);
  return plan(request, g, false,
              [&]<typename T, int N, int kWindow, int kStride>(
                  Type<T>, std::integral_constant<int, N>, Window<kWindow, kStride>) {
                return make_forward<T, N, kWindow, void>("avg_pool2d", g);
              });
}

std::unique_ptr<Kernel> plan_max_pool2d_grad(const PlanRequest& request) {
  const Pool2DGeometry g = geometry_of(request, true);
  return plan(request, g, true,
              [&]<typename T, int N, int kWindow, int kStride>(
                  Type<T>, std::integral_constant<int, N>, Window<kWindow, kStride> window) {
                return with_index_type<kWindow>(g, [&]<typename Index>(Type<Index>) {
                  using Gradient = MaxGradient<T, Index, N>;
                  return make_gradient<T, N, Gradient>(
                      "max_pool2d_grad", g, window, [](const KernelArgs& args) {
                        return typename Gradient::Source{input<T>(args, 0), input<Index>(args, 1)};
                      });
                });
              });
}

std::unique_ptr<Kernel> plan_avg_pool2d_grad(const PlanRequest& request) {
  const Pool2DGeometry g = geometry_of(request, true);
  return plan(request, g, true,
              [&]<typename T, int N, int kWindow, int kStride>(
                  Type<T>, std::integral_constant<int, N>, Window<kWindow, kStride> window) {
                using Gradient = AvgGradient<T, N>;
                return make_gradient<T, N, Gradient>(
                    "avg_pool2d_grad", g, window, [](const KernelArgs& args) {
                      return typename Gradient::Source{input<T>(args, 0)};
                    });
              });
}

}  // namespace kerascnn::cuda
