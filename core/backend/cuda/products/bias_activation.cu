// Reads and writes y once, 16 bytes at a time. Blocks take tiles of y, the last one first: what the
// product or convolution before this wrote last may still be in the L2 cache, and what is written
// last here is what the next kernel begins with.
#include "core/backend/cuda/products/bias_activation.h"

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/elementwise/activation.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/movement/copy.cuh"
#include "core/backend/cuda/runtime/check.h"

namespace kerascnn::cuda {
namespace {

// Adds the bias of a pack that begins in this column. Where kWhole says so a row is a whole number
// of packs; else a pack may go on in the next row.
template <bool kWhole, int N, typename T>
__device__ __forceinline__ void add_bias(compute_t<T>* values, const T* __restrict__ bias,
                                         int64_t column, int64_t channels) {
  if constexpr (kWhole) {
    const auto pack = *reinterpret_cast<const Vector<T, N>*>(bias + column);
#pragma unroll
    for (int k = 0; k < N; ++k) values[k] += load(pack.values[k]);
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      values[k] += load(bias[column]);
      if (++column == channels) column = 0;
    }
  }
}

// Packs that a thread has under way: their loads overlap, and the division that finds the column
// and the choice of the activation are made once for all of them.
constexpr int packs_of_thread(bool simple) { return simple ? 4 : 2; }

// kSimple: the activation is linear or relu, and has little code.
template <typename T, int N, bool kWhole, bool kSimple>
__global__ void __launch_bounds__(kThreads)
    bias_activation_kernel(T* __restrict__ y, const T* __restrict__ bias, int64_t size,
                           int64_t channels, Activation kind, compute_t<T> alpha) {
  using C = compute_t<T>;
  using Pack = Vector<T, N>;
  constexpr int kPacks = packs_of_thread(kSimple);
  constexpr int kStep = kThreads * N;  // from one pack of a thread to its next
  begin_kernel();
  const auto apply = [&]<int M>(C(&values)[M]) {
    if constexpr (kSimple) {
      if (kind == Activation::Relu) {
#pragma unroll
        for (int k = 0; k < M; ++k) values[k] = activate(Activation::Relu, values[k], alpha);
      }
    } else {
      activate_all(kind, values, alpha);
    }
  };
  const int64_t end = size - size % N, tiles = (size + kPacks * kStep - 1) / (kPacks * kStep);
  const int64_t step_columns = kStep % channels;
  for (int64_t tile = tiles - 1 - blockIdx.x; tile >= 0; tile -= gridDim.x) {
    const int64_t first = tile * kPacks * kStep + threadIdx.x * N;
    int64_t column = bias != nullptr ? divide(first, channels).remainder : 0;
    Pack packs[kPacks] = {};
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
      const int64_t i = first + u * kStep;
      if (i < end) packs[u] = *reinterpret_cast<const Pack*>(y + i);
    }
    C values[kPacks * N];
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
#pragma unroll
      for (int k = 0; k < N; ++k) values[u * N + k] = load(packs[u].values[k]);
      if (bias != nullptr) add_bias<kWhole, N>(values + u * N, bias, column, channels);
      column += step_columns;
      if (column >= channels) column -= channels;
    }
    apply(values);
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
#pragma unroll
      for (int k = 0; k < N; ++k) packs[u].values[k] = store<T>(values[u * N + k]);
      const int64_t i = first + u * kStep;
      if (i < end) *reinterpret_cast<Pack*>(y + i) = packs[u];
    }
  }
  if constexpr (!kWhole) {  // what is no pack
    const int64_t i = end + threadIdx.x;
    if (blockIdx.x == 0 && i < size) {
      C values[1] = {load(y[i])};
      if (bias != nullptr) values[0] += load(bias[divide(i, channels).remainder]);
      apply(values);
      y[i] = store<T>(values[0]);
    }
  }
}

}  // namespace

void launch_bias_activation(DType dtype, void* y, const void* bias, int64_t rows, int64_t channels,
                            const ActivationCall& activation, cudaStream_t stream) {
  const int64_t size = rows * channels;
  if (size == 0) return;
  const bool simple = activation.kind == Activation::Linear || activation.kind == Activation::Relu;
  dispatch_floating("bias_activation", dtype, [&]<typename T>(Type<T>) {
    // Every tensor that a kernel gets is aligned to this.
    constexpr int kWidest = static_cast<int>(kWidestWord / sizeof(T));
    const auto launch = [&](auto* kernel, int64_t packs) {
      kernel<<<grid_for(size, packs * kThreads * kWidest), kThreads, 0, stream>>>(
          static_cast<T*>(y), static_cast<const T*>(bias), size, channels, activation.kind,
          static_cast<compute_t<T>>(activation.alpha));
    };
    const auto launch_form = [&]<bool kWhole>(std::bool_constant<kWhole>) {
      if (simple) {
        launch(bias_activation_kernel<T, kWidest, kWhole, true>, packs_of_thread(true));
      } else {
        launch(bias_activation_kernel<T, kWidest, kWhole, false>, packs_of_thread(false));
      }
    };
    if (channels % kWidest == 0) {
      launch_form(std::true_type());
    } else {
      launch_form(std::false_type());
    }
    check_launch("bias_activation");
  });
}

}  // namespace kerascnn::cuda
