// Which own kernel takes a depthwise convolution.
#include "core/backend/cuda/convolution/conv2d.h"
#include "core/backend/cuda/convolution/depthwise_any.cuh"
#include "core/backend/cuda/convolution/depthwise_kernel.cuh"
#include "core/backend/cuda/runtime/context.h"

namespace kerascnn::cuda {
namespace {

using namespace depthwise;

template <typename T, int N, bool kGradient>
std::unique_ptr<Kernel> plan_any(const Conv2DCall& call) {
  const Conv c(call.geometry);
  const int64_t height = kGradient ? c.input_height : c.output_height;
  const int64_t width = kGradient ? c.input_width : c.output_width;
  const int64_t items = c.batch * height * ceil_div(width, kAnyColumns) * (c.input_channels / N);
  return make_early_kernel(description(call), [=](const KernelArgs& args) {
    depthwise_any_kernel<T, N, kGradient>
        <<<grid_for(items), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
            input<T>(args, 0), input<T>(args, 1), output<T>(args, 0), ends_of<T>(call, args), c,
            items);
    check_launch("depthwise convolution");
  });
}

template <typename T, int N>
std::unique_ptr<Kernel> plan_any_wgrad(const Conv2DCall& call) {
  const Conv c(call.geometry);
  const int64_t packs = ceil_div(c.input_channels, 32 * N);
  // About four blocks for each multiprocessor, each with at least one row for every warp.
  const int64_t wanted =
      ceil_div(4 * Context::current().multiprocessors(), packs * c.kernel_height);
  const int64_t splits =
      std::clamp<int64_t>(std::min(wanted, c.batch * c.output_height / kAnyWarps), 1, 1024);
  const dim3 grid(static_cast<unsigned>(packs), c.kernel_height, static_cast<unsigned>(splits));
  return make_wgrad<T>(
      call, splits, [=](const T* x, const T* gy, float* partial, cudaStream_t stream) {
        depthwise_any_wgrad_kernel<T, N><<<grid, 32 * kAnyWarps, 0, stream>>>(x, gy, partial, c);
      });
}

template <typename T, int N>
std::unique_ptr<Kernel> plan_any_op(const Conv2DCall& call) {
  if (call.op == &op_conv2d) return plan_any<T, N, false>(call);
  if (call.op == &op_conv2d_dgrad) return plan_any<T, N, true>(call);
  return plan_any_wgrad<T, N>(call);
}

template <typename T>
std::unique_ptr<Kernel> plan_any_width(const Conv2DCall& call) {
  return call.geometry.input_channels % 2 == 0 ? plan_any_op<T, 2>(call) : plan_any_op<T, 1>(call);
}

bool fits(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  const auto is_small = [](int64_t extent) { return extent <= kMostExtent; };
  const auto is_stride = [](int64_t stride) { return stride == 1 || stride == 2; };
  // Inside a row, and a window beside it, kernels count in 32 bits.
  const int64_t row = (std::max(g.input_width, g.output_width) + 256) * g.input_channels;
  return row < int64_t{1} << 31 && g.groups > 1 && g.groups == g.input_channels &&
         g.groups == g.output_channels && is_small(g.kernel_height) && is_small(g.kernel_width) &&
         is_stride(g.stride_height) && is_stride(g.stride_width) && g.dilation_height == 1 &&
         g.dilation_width == 1;
}

}  // namespace

std::unique_ptr<Kernel> plan_conv2d_depthwise(const Conv2DCall& call) {
  if (!fits(call)) return nullptr;
  for (const auto plan : {plan_square<3>, plan_square<5>, plan_square<7>}) {
    if (auto kernel = plan(call)) return kernel;
  }
  switch (call.dtype) {
    case DType::Float32:
      return plan_any_width<float>(call);
    case DType::Float16:
      return plan_any_width<__half>(call);
    case DType::BFloat16:
      return plan_any_width<__nv_bfloat16>(call);
    default:
      return nullptr;
  }
}

}  // namespace kerascnn::cuda
