// Plans of depthwise convolution for kernels of K x K.
#pragma once

#include "core/backend/cuda/convolution/depthwise_kernel.cuh"
#include "core/backend/cuda/convolution/depthwise_plan.cuh"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/shared_memory.h"

namespace kerascnn::cuda::depthwise {

inline int64_t most_shared_of_block() {
  return static_cast<int64_t>(Context::current().properties().sharedMemPerBlockOptin);
}

template <typename T, typename Taps>
std::unique_ptr<Kernel> plan_tiles(const Conv2DCall& call) {
  const TilePlan<T, Taps> plan(call.geometry);
  if (!plan.fits(most_shared_of_block())) return nullptr;
  allow_most_shared_memory(plan.kernel);
  return make_early_kernel(description(call), [=](const KernelArgs& args) {
    plan.launch(input<T>(args, 0), input<T>(args, 1), output<T>(args, 0), ends_of<T>(call, args),
                static_cast<cudaStream_t>(args.stream));
    check_launch("depthwise convolution");
  });
}

template <typename T, typename Taps>
std::unique_ptr<Kernel> plan_wgrad(const Conv2DCall& call) {
  const Context& context = Context::current();
  const WgradPlan<T, Taps> plan(
      call.geometry, context.multiprocessors(),
      static_cast<int64_t>(context.properties().sharedMemPerMultiprocessor));
  if (!plan.fits(most_shared_of_block())) return nullptr;
  allow_most_shared_memory(plan.kernel);
  return make_wgrad<T>(call, plan.splits,
                       [plan](const T* x, const T* gy, float* partial, cudaStream_t stream) {
                         plan.launch(x, gy, partial, stream);
                       });
}

template <typename T, int K>
std::unique_ptr<Kernel> plan_square_of(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  const bool one = g.stride_height == 1;
  if (call.op == &op_conv2d) {
    return one ? plan_tiles<T, Taps<K, 1, false>>(call) : plan_tiles<T, Taps<K, 2, false>>(call);
  }
  if (call.op == &op_conv2d_wgrad) {
    return one ? plan_wgrad<T, Taps<K, 1, false>>(call) : plan_wgrad<T, Taps<K, 2, false>>(call);
  }
  if (one) return plan_tiles<T, Taps<K, 1, true>>(call);
  const bool shifts = (g.pad_top + K - 1) % 2 != 0;
  if (shifts != ((g.pad_left + K - 1) % 2 != 0)) return nullptr;
  return shifts ? plan_tiles<T, Taps<K, 2, true, 1>>(call)
                : plan_tiles<T, Taps<K, 2, true, 0>>(call);
}

template <int K>
std::unique_ptr<Kernel> plan_square(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  if (g.kernel_height != K || g.kernel_width != K || g.stride_height != g.stride_width ||
      g.input_channels % kPair != 0) {
    return nullptr;
  }
  switch (call.dtype) {
    case DType::Float32:
      return plan_square_of<float, K>(call);
    case DType::Float16:
      return plan_square_of<__half, K>(call);
    case DType::BFloat16:
      return plan_square_of<__nv_bfloat16, K>(call);
    default:
      return nullptr;
  }
}

}  // namespace kerascnn::cuda::depthwise
