// Chooses the kernels of convolutions with max pooling and of their gradients.
#include "core/backend/cuda/convolution/conv2d_max_pool2d.h"

#include <algorithm>

#include "core/backend/cuda/fusions/fusions.h"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/products/partial_sums.h"
#include "core/backend/cuda/runtime/autotune.h"

namespace kerascnn::cuda {
namespace {

ConvPoolCall make_call(const Match& match) {
  ConvPoolCall call;
  call.geometry = conv_pool_geometry(match);
  call.dtype = match.spec("convolution").dtype;
  call.has_bias = match.has("bias");
  call.allow_tf32 = match.allow_tf32();
  return call;
}

struct OwnKernel {
  const char* name;
  std::unique_ptr<Kernel> (*plan)(const ConvPoolCall&);
};

// Forward and both gradients together, against convolution and pooling one after another: the own
// kernels save trips to memory, but cuDNN's arithmetic is up to eight times as fast where there are
// many channels. Limits from an H200, docs/benchmarks.md has the times.
bool is_gain(const Conv2DGeometry& g) {
  const int64_t channels = g.input_channels * g.output_channels;
  if (channels <= 48 * 48) return true;
  if (channels <= 64 * 64) return g.num_products() <= int64_t{3} << 29;
  return channels <= 64 * 128 && g.num_products() <= int64_t{1} << 28;
}

// If several of the own kernels take a call, the first one runs, unless kernels are timed: then the
// nodes one after another are a choice too.
std::unique_ptr<Kernel> choose(const Match& match, const ConvPoolCall& call,
                               const std::vector<OwnKernel>& own) {
  const Conv2DGeometry& g = call.geometry.conv;
  if (!is_gain(g)) return nullptr;
  std::vector<KernelCandidate> candidates;
  for (const OwnKernel& each : own) {
    candidates.push_back({each.name, [&call, plan = each.plan] { return plan(call); }});
  }
  auto first = first_of(candidates);
  if (first == nullptr || !is_timed(match.request(), g.num_products())) return first;
  candidates.push_back(
      {"convolution and pooling one after another", [&match] { return match.plan_body(); }});
  return choose_fastest(match.request(), g.num_products(), candidates);
}

}  // namespace

ConvPool::ConvPool(const Conv2DMaxPool2DGeometry& g)
    : batch(static_cast<int>(g.conv.batch)),
      input_height(static_cast<int>(g.conv.input_height)),
      input_width(static_cast<int>(g.conv.input_width)),
      input_channels(static_cast<int>(g.conv.input_channels)),
      output_channels(static_cast<int>(g.conv.output_channels)),
      pad_top(static_cast<int>(g.conv.pad_top)),
      pad_left(static_cast<int>(g.conv.pad_left)),
      pooled_height(static_cast<int>(g.pool.output_height)),
      pooled_width(static_cast<int>(g.pool.output_width)),
      activation(g.activation.kind),
      alpha(static_cast<float>(g.activation.alpha)) {}

std::unique_ptr<Kernel> make_conv_pool_wgrad(
    std::string description, const ConvPoolCall& call, int64_t copies,
    std::function<void(const KernelArgs& args, const PartialSums& sums)> launch) {
  const int64_t size = num_elements(call.geometry.conv.kernel_shape());
  const int64_t channels = call.geometry.conv.output_channels;
  return make_summing_kernel(
      std::move(description),
      [=, has_bias = call.has_bias](const KernelArgs& args, bool adds_up) {
        auto* bias = has_bias ? output<float>(args, 1) : nullptr;
        if (!adds_up) return launch(args, {output<float>(args, 0), bias, size, channels});
        auto* partial = static_cast<float*>(args.workspace);
        launch(args, {partial, partial + size, size + channels, size + channels});
        launch_sum_partials(DType::Float32, partial, args.outputs[0], copies, size,
                            static_cast<cudaStream_t>(args.stream), bias, channels);
      },
      copies * (size + channels) * static_cast<int64_t>(sizeof(float)), copies);
}

bool is_plain_conv_pool(const ConvPoolCall& call) {
  const Conv2DGeometry& c = call.geometry.conv;
  const Pool2DGeometry& p = call.geometry.pool;
  const int64_t kernel = c.kernel_height;
  constexpr int64_t kMaxElements = int64_t{1} << 30;  // indices in 32 bits
  return call.dtype == DType::Float32 && c.kernel_width == kernel && (kernel == 3 || kernel == 5) &&
         c.stride_height == 1 && c.stride_width == 1 && c.dilation_height == 1 &&
         c.dilation_width == 1 && c.groups == 1 && p.window_height == 2 && p.window_width == 2 &&
         p.stride_height == 2 && p.stride_width == 2 && p.pad_top == 0 && p.pad_bottom == 0 &&
         p.pad_left == 0 && p.pad_right == 0 && std::max(c.pad_top, c.pad_bottom) < kernel &&
         std::max(c.pad_left, c.pad_right) < kernel && num_elements(p.output_shape()) > 0 &&
         num_elements(c.input_shape()) > 0 && num_elements(c.input_shape()) < kMaxElements &&
         num_elements(c.output_shape()) < kMaxElements &&
         num_elements(c.kernel_shape()) < kMaxElements;
}

std::unique_ptr<Kernel> plan_fused_conv2d_max_pool2d(const Match& match) {
  return choose(match, make_call(match),
                {{"kerascnn small, many", plan_conv_pool_small_many},
                 {"kerascnn small", plan_conv_pool_small},
                 {"kerascnn tf32, many", plan_conv_pool_many},
                 {"kerascnn tf32", plan_conv_pool_tf32}});
}

std::unique_ptr<Kernel> plan_fused_conv2d_max_pool2d_dgrad(const Match& match) {
  ConvPoolCall call = make_call(match);
  call.at = ConvPoolArguments(match);
  return choose(match, call, {{"kerascnn tf32", plan_conv_pool_dgrad_tf32}});
}

std::unique_ptr<Kernel> plan_fused_conv2d_max_pool2d_wgrad(const Match& match) {
  ConvPoolCall call = make_call(match);
  call.at = ConvPoolArguments(match);
  return choose(match, call,
                {{"kerascnn small", plan_conv_pool_wgrad_small},
                 {"kerascnn tf32", plan_conv_pool_wgrad_tf32}});
}

}  // namespace kerascnn::cuda
