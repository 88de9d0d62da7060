#include "core/backend/cuda/products/bias_activation.h"

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/elementwise/activation.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/check.h"

namespace kerascnn::cuda {
namespace {

template <typename T>
__global__ void bias_activation_kernel(T* __restrict__ y, const T* __restrict__ bias, int64_t size,
                                       int64_t channels, Activation kind, compute_t<T> alpha) {
  begin_kernel();
  for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; i < size;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    compute_t<T> value = load(y[i]);
    if (bias != nullptr) value += load(bias[i % channels]);
    y[i] = store<T>(activate(kind, value, alpha));
  }
}

}  // namespace

void launch_bias_activation(DType dtype, void* y, const void* bias, int64_t rows, int64_t channels,
                            const ActivationCall& activation, cudaStream_t stream) {
  const int64_t size = rows * channels;
  if (size == 0) return;
  dispatch_floating("bias_activation", dtype, [&]<typename T>(Type<T>) {
    bias_activation_kernel<T><<<grid_for(size), kThreads, 0, stream>>>(
        static_cast<T*>(y), static_cast<const T*>(bias), size, channels, activation.kind,
        static_cast<compute_t<T>>(activation.alpha));
    check_launch("bias_activation");
  });
}

}  // namespace kerascnn::cuda
