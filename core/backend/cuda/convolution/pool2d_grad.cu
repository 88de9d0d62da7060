// The gradients of max_pool2d and avg_pool2d. They gather from all windows that cover an element:
// no atomics, always the same order.
#include "core/backend/cuda/convolution/pool2d.cuh"

namespace kerascnn::cuda {
namespace {

// The windows that cover position p of an axis are first .. last - 1.
__device__ __forceinline__ void covering_windows(int p, int pad, int window, int stride,
                                                 int outputs, int* first, int* last) {
  const int shifted = p + pad;
  *first = shifted < window ? 0 : (shifted - window) / stride + 1;
  *last = min(shifted / stride + 1, outputs);
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

}  // namespace

std::unique_ptr<Kernel> plan_max_pool2d_grad(const PlanRequest& request) {
  const Pool2DGeometry g = pool_geometry_of(request, true);
  return plan_pool(request, g, true,
                   [&]<typename T, int N, int kWindow, int kStride>(
                       Type<T>, std::integral_constant<int, N>, Window<kWindow, kStride> window) {
                     return with_index_type<kWindow>(g, [&]<typename Index>(Type<Index>) {
                       using Gradient = MaxGradient<T, Index, N>;
                       return make_gradient<T, N, Gradient>(
                           "max_pool2d_grad", g, window, [](const KernelArgs& args) {
                             return typename Gradient::Source{input<T>(args, 0),
                                                              input<Index>(args, 1)};
                           });
                     });
                   });
}

std::unique_ptr<Kernel> plan_avg_pool2d_grad(const PlanRequest& request) {
  const Pool2DGeometry g = pool_geometry_of(request, true);
  return plan_pool(request, g, true,
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
