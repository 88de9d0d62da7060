// max_pool2d, avg_pool2d and their gradients. One thread makes one element of the result, so a
// gradient gathers from all windows that cover its element: no atomics, always the same order.
#include "core/backend/cuda/device/begin.cuh"
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

template <typename T, typename Index, int N>
__global__ void max_pool_kernel(const T* __restrict__ x, T* __restrict__ y,
                                Index* __restrict__ index, Pool p, int64_t size) {
  begin_kernel();
  using C = compute_t<T>;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; i < size;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const Position at(i, p.output_height, p.output_width, p.channels / N, N);
    const int top = at.row * p.stride_height - p.pad_top;
    const int left = at.column * p.stride_width - p.pad_left;
    C best[N];
    Index best_index[N];
    bool any = false;
    for (int wi = max(0, -top); wi < p.window_height && top + wi < p.input_height; ++wi) {
      for (int wj = max(0, -left); wj < p.window_width && left + wj < p.input_width; ++wj) {
        const int64_t source =
            ((at.n * p.input_height + top + wi) * p.input_width + left + wj) * p.channels +
            at.channel;
        const auto values = *reinterpret_cast<const Vector<T, N>*>(x + source);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const C value = load(values.values[k]);
          if (!any || value > best[k] || (value != value && best[k] == best[k])) {
            best[k] = value;
            best_index[k] = static_cast<Index>(wi * p.window_width + wj);
          }
        }
        any = true;
      }
    }
    Vector<T, N> result;
    Vector<Index, N> positions;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      result.values[k] = store<T>(best[k]);
      positions.values[k] = best_index[k];
    }
    *reinterpret_cast<Vector<T, N>*>(y + i * N) = result;
    if (index != nullptr) *reinterpret_cast<Vector<Index, N>*>(index + i * N) = positions;
  }
}

template <typename T, typename Index, int N>
__global__ void max_pool_grad_kernel(const T* __restrict__ gy, const Index* __restrict__ index,
                                     T* __restrict__ gx, Pool p, int64_t size) {
  begin_kernel();
  using C = compute_t<T>;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; i < size;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const Position at(i, p.input_height, p.input_width, p.channels / N, N);
    int first_row, last_row, first_column, last_column;
    covering_windows(at.row, p.pad_top, p.window_height, p.stride_height, p.output_height,
                     &first_row, &last_row);
    covering_windows(at.column, p.pad_left, p.window_width, p.stride_width, p.output_width,
                     &first_column, &last_column);
    C sum[N] = {};
    for (int row = first_row; row < last_row; ++row) {
      for (int column = first_column; column < last_column; ++column) {
        const int position = (at.row + p.pad_top - row * p.stride_height) * p.window_width +
                             (at.column + p.pad_left - column * p.stride_width);
        const int64_t source =
            ((at.n * p.output_height + row) * p.output_width + column) * p.channels + at.channel;
        const auto positions = *reinterpret_cast<const Vector<Index, N>*>(index + source);
        const auto gradients = *reinterpret_cast<const Vector<T, N>*>(gy + source);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          if (positions.values[k] == static_cast<Index>(position))
            sum[k] += load(gradients.values[k]);
        }
      }
    }
    Vector<T, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) result.values[k] = store<T>(sum[k]);
    *reinterpret_cast<Vector<T, N>*>(gx + i * N) = result;
  }
}

// How many elements of the input are inside the window that starts at `start`.
__device__ __forceinline__ int inside(int start, int window, int extent) {
  return min(start + window, extent) - max(start, 0);
}

template <typename T>
__global__ void avg_pool_kernel(const T* __restrict__ x, T* __restrict__ y, Pool p, int64_t size) {
  begin_kernel();
  using C = compute_t<T>;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; i < size;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const Position at(i, p.output_height, p.output_width, p.channels, 1);
    const int top = at.row * p.stride_height - p.pad_top;
    const int left = at.column * p.stride_width - p.pad_left;
    C sum = 0;
    for (int row = max(top, 0); row < min(top + p.window_height, p.input_height); ++row) {
      for (int column = max(left, 0); column < min(left + p.window_width, p.input_width);
           ++column) {
        sum += load(
            x[((at.n * p.input_height + row) * p.input_width + column) * p.channels + at.channel]);
      }
    }
    const int count =
        inside(top, p.window_height, p.input_height) * inside(left, p.window_width, p.input_width);
    y[i] = store<T>(sum / static_cast<C>(count));
  }
}

template <typename T>
__global__ void avg_pool_grad_kernel(const T* __restrict__ gy, T* __restrict__ gx, Pool p,
                                     int64_t size) {
  begin_kernel();
  using C = compute_t<T>;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; i < size;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const Position at(i, p.input_height, p.input_width, p.channels, 1);
    int first_row, last_row, first_column, last_column;
    covering_windows(at.row, p.pad_top, p.window_height, p.stride_height, p.output_height,
                     &first_row, &last_row);
    covering_windows(at.column, p.pad_left, p.window_width, p.stride_width, p.output_width,
                     &first_column, &last_column);
    C sum = 0;
    for (int row = first_row; row < last_row; ++row) {
      const int rows = inside(row * p.stride_height - p.pad_top, p.window_height, p.input_height);
      for (int column = first_column; column < last_column; ++column) {
        const int columns =
            inside(column * p.stride_width - p.pad_left, p.window_width, p.input_width);
        sum += load(gy[((at.n * p.output_height + row) * p.output_width + column) * p.channels +
                       at.channel]) /
               static_cast<C>(rows * columns);
      }
    }
    gx[i] = store<T>(sum);
  }
}

// Channels are taken four at a time where their number divides by four; every buffer is aligned to
// 256 bytes.
template <typename T, typename Function>
auto with_vector_width(const Pool2DGeometry& g, Function&& function) {
  if (g.channels % 4 == 0) return function(std::integral_constant<int, 4>());
  return function(std::integral_constant<int, 1>());
}

template <typename Function>
auto with_index_type(const Pool2DGeometry& g, Function&& function) {
  if (g.index_dtype() == DType::UInt8) return function(Type<uint8_t>());
  return function(Type<int32_t>());
}

}  // namespace

std::unique_ptr<Kernel> plan_max_pool2d(const PlanRequest& request) {
  const Pool2DGeometry g =
      pool2d_geometry("max_pool2d", request.attributes, request.inputs[0].shape);
  return dispatch_floating("max_pool2d", request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return with_index_type(g, [&]<typename Index>(Type<Index>) {
      return with_vector_width<T>(g, [&]<int N>(std::integral_constant<int, N>) {
        const Pool pool(g);
        const int64_t size = num_elements(g.output_shape()) / N;
        return make_early_kernel("kerascnn max_pool2d", [=](const KernelArgs& args) {
          if (size == 0) return;
          max_pool_kernel<T, Index, N>
              <<<grid_for(size), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
                  input<T>(args, 0), output<T>(args, 0), output<Index>(args, 1), pool, size);
          check_launch("max_pool2d");
        });
      });
    });
  });
}

std::unique_ptr<Kernel> plan_max_pool2d_grad(const PlanRequest& request) {
  const Pool2DGeometry g = pool2d_geometry("max_pool2d_grad", request.attributes,
                                           request.attributes.get_ints("input_shape"));
  return dispatch_floating("max_pool2d_grad", request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return with_index_type(g, [&]<typename Index>(Type<Index>) {
      return with_vector_width<T>(g, [&]<int N>(std::integral_constant<int, N>) {
        const Pool pool(g);
        const int64_t size = num_elements(g.input_shape()) / N;
        return make_early_kernel("kerascnn max_pool2d_grad", [=](const KernelArgs& args) {
          if (size == 0) return;
          max_pool_grad_kernel<T, Index, N>
              <<<grid_for(size), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
                  input<T>(args, 0), input<Index>(args, 1), output<T>(args, 0), pool, size);
          check_launch("max_pool2d_grad");
        });
      });
    });
  });
}

std::unique_ptr<Kernel> plan_avg_pool2d(const PlanRequest& request) {
  const Pool2DGeometry g =
      pool2d_geometry("avg_pool2d", request.attributes, request.inputs[0].shape);
  return dispatch_floating("avg_pool2d", request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    const Pool pool(g);
    const int64_t size = num_elements(g.output_shape());
    return make_early_kernel("kerascnn avg_pool2d", [=](const KernelArgs& args) {
      if (size == 0) return;
      avg_pool_kernel<T><<<grid_for(size), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
          input<T>(args, 0), output<T>(args, 0), pool, size);
      check_launch("avg_pool2d");
    });
  });
}

std::unique_ptr<Kernel> plan_avg_pool2d_grad(const PlanRequest& request) {
  const Pool2DGeometry g = pool2d_geometry("avg_pool2d_grad", request.attributes,
                                           request.attributes.get_ints("input_shape"));
  return dispatch_floating("avg_pool2d_grad", request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    const Pool pool(g);
    const int64_t size = num_elements(g.input_shape());
    return make_early_kernel("kerascnn avg_pool2d_grad", [=](const KernelArgs& args) {
      if (size == 0) return;
      avg_pool_grad_kernel<T>
          <<<grid_for(size), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
              input<T>(args, 0), output<T>(args, 0), pool, size);
      check_launch("avg_pool2d_grad");
    });
  });
}

}  // namespace kerascnn::cuda
