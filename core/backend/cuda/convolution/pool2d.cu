// max_pool2d and avg_pool2d.
#include <limits>

#include "core/backend/cuda/convolution/pool2d.cuh"

namespace kerascnn::cuda {
namespace {

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

}  // namespace

std::unique_ptr<Kernel> plan_max_pool2d(const PlanRequest& request) {
  const Pool2DGeometry g = pool_geometry_of(request, false);
  return plan_pool(request, g, false,
                   [&]<typename T, int N, int kWindow, int kStride>(
                       Type<T>, std::integral_constant<int, N>, Window<kWindow, kStride>) {
                     return with_index_type<kWindow>(g, [&]<typename Index>(Type<Index>) {
                       return make_forward<T, N, kWindow, Index>("max_pool2d", g);
                     });
                   });
}

std::unique_ptr<Kernel> plan_avg_pool2d(const PlanRequest& request) {
  const Pool2DGeometry g = pool_geometry_of(request, false);
  return plan_pool(request, g, false,
                   [&]<typename T, int N, int kWindow, int kStride>(
                       Type<T>, std::integral_constant<int, N>, Window<kWindow, kStride>) {
                     return make_forward<T, N, kWindow, void>("avg_pool2d", g);
                   });
}

}  // namespace kerascnn::cuda
