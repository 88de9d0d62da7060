// Plans the gradient of a 3x3 convolution's kernel by warpgroups, for Hopper alone.
#include "core/backend/cuda/convolution/conv2d.h"
#include "core/backend/cuda/convolution/wgrad_plan.cuh"
#include "core/backend/cuda/products/partial_sums.h"
#include "core/backend/cuda/runtime/shared_memory.h"
#include "core/base/error.h"

namespace kerascnn::cuda {
namespace {

// Whole blocks of channels and filters, all taps of a 3x3 kernel, and offsets within a turn in 32
// bits.
bool fits(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  constexpr int64_t kMostPixels = int64_t{1} << 31;
  constexpr int64_t kMostOffset = (int64_t{1} << 31) / kWgradMostImages;
  return call.op == &op_conv2d_wgrad && call.dtype == DType::Float32 && call.allow_tf32 &&
         g.groups == 1 && g.kernel_height == kWgradTaps && g.kernel_width == kWgradTaps &&
         g.dilation_height == 1 && g.dilation_width == 1 && g.stride_height <= 2 &&
         g.stride_width <= 2 && g.input_channels % kWgradChannels == 0 &&
         g.output_channels % kWgradFilters == 0 &&
         g.output_channels / kWgradFilters <= kMaxBlocks &&
         g.input_height * g.input_width * g.input_channels < kMostOffset &&
         g.output_height * g.output_width * g.output_channels < kMostOffset &&
         g.batch * g.input_height * g.input_width < kMostPixels &&
         g.batch * g.output_height * g.output_width < kMostPixels &&
         Context::current().compute_capability() == 90;
}

}  // namespace

std::unique_ptr<Kernel> plan_conv2d_wgrad_warpgroups(const Conv2DCall& call) {
  if (!fits(call)) return nullptr;
  const Context& context = Context::current();
  const WgradLayout l =
      plan_wgrad_layout(sizes_of_wgrad(call.geometry), context.multiprocessors(),
                        static_cast<int>(context.properties().sharedMemPerBlockOptin));
  if (l.turns == 0 || !can_describe_boxes()) return nullptr;
  const auto kernel = l.stride_width == 1 ? wgrad_warpgroups_kernel<1> : wgrad_warpgroups_kernel<2>;
  allow_most_shared_memory(kernel);
  const int64_t size = num_elements(call.geometry.kernel_shape());
  const int64_t sums = l.splits > 1 ? l.splits : 0;
  return make_summing_kernel(
      "kerascnn conv2d_wgrad_warpgroups",
      [=](const KernelArgs& args, bool adds_up) {
        const auto stream = static_cast<cudaStream_t>(args.stream);
        adds_up = adds_up && sums > 0;
        float* partial = adds_up ? static_cast<float*>(args.workspace) : output<float>(args, 0);
        kernel<<<grid_of_wgrad(l), kWgradThreads, WgradMemory(l).bytes, stream>>>(
            describe_input(l, input<float>(args, 0)), input<float>(args, 1), partial, l);
        check_launch("conv2d_wgrad_warpgroups");
        if (adds_up) {
          launch_sum_partials(DType::Float32, partial, args.outputs[0], l.splits, size, stream);
        }
      },
      sums * size * static_cast<int64_t>(sizeof(float)), sums);
}

}  // namespace kerascnn::cuda
