// What the plans of depthwise convolution share.
#pragma once

#include <memory>
#include <string>

#include "core/backend/cuda/convolution/conv2d.h"
#include "core/backend/cuda/convolution/depthwise.cuh"
#include "core/backend/cuda/products/partial_sums.h"

namespace kerascnn::cuda::depthwise {

// Square kernels of K x K with one stride of 1 or 2 both ways, for even numbers of channels. Null
// where the call has anything else, or its tiles are larger than shared memory. Each size is
// compiled by itself (depthwise_3.cu and so on).
template <int K>
std::unique_ptr<Kernel> plan_square(const Conv2DCall& call);

inline std::string description(const Conv2DCall& call) {
  return "kerascnn depthwise " + std::string(call.op->name);
}

template <typename T>
Ends<T> ends_of(const Conv2DCall& call, const KernelArgs& args) {
  return {call.has_bias ? input<T>(args, 2) : nullptr, call.activation.kind,
          static_cast<float>(call.activation.alpha)};
}

// A kernel that makes the kernel's gradient as `splits` partial sums, which launch(x, gy, partial,
// stream) writes.
template <typename T, typename Launch>
std::unique_ptr<Kernel> make_wgrad(const Conv2DCall& call, int64_t splits, Launch launch) {
  const int64_t size = num_elements(call.geometry.kernel_shape());
  // Those of float16 and bfloat16 are float32 too: no stack of the result's dtype, nor the result.
  constexpr bool is_float = std::is_same_v<T, float>;
  const bool is_whole = is_float && splits == 1;
  return make_summing_kernel(
      description(call),
      [=, dtype = call.dtype](const KernelArgs& args, bool adds_up) {
        const auto stream = static_cast<cudaStream_t>(args.stream);
        adds_up = adds_up && !is_whole;
        void* partial = adds_up ? args.workspace : args.outputs[0];
        launch(input<T>(args, 0), input<T>(args, 1), static_cast<float*>(partial), stream);
        check_launch("depthwise kernel gradient");
        if (adds_up) launch_sum_partials(dtype, partial, args.outputs[0], splits, size, stream);
      },
      is_whole ? 0 : splits * size * static_cast<int64_t>(sizeof(float)),
      is_float && splits > 1 ? splits : 0);
}

}  // namespace kerascnn::cuda::depthwise
