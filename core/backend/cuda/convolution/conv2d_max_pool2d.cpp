#include "core/backend/cuda/convolution/conv2d_max_pool2d.h"

#include <algorithm>

#include "core/backend/composite_conv2d_max_pool2d.h"
#include "core/backend/cuda/kernel_table.h"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/products/partial_sums.h"
#include "core/backend/cuda/runtime/autotune.h"
#include "core/backend/stacked_kernel.h"
#include "core/ops/partial_sums.h"

namespace kerascnn::cuda {
namespace {

ConvPoolCall make_call(const PlanRequest& request) {
  ConvPoolCall call;
  call.op = request.op.name;
  call.geometry = conv2d_max_pool2d_geometry(call.op, request.attributes, request.inputs);
  call.dtype = request.outputs[0].dtype;
  call.has_bias = call.op == "conv2d_max_pool2d" && request.inputs.size() == 3;
  call.allow_tf32 = request.allow_tf32;
  call.copies = num_copies(call.op, request.attributes);
  return call;
}

struct OwnKernel {
  const char* name;
  std::unique_ptr<Kernel> (*plan)(const ConvPoolCall&);
};

// If several kernels take a call, the first one runs.
std::vector<OwnKernel> own_kernels(std::string_view op) {
  if (op == "conv2d_max_pool2d_dgrad") return {{"kerascnn tf32", plan_conv_pool_dgrad_tf32}};
  if (op == "conv2d_max_pool2d_wgrad") {
    return {{"kerascnn small", plan_conv_pool_wgrad_small},
            {"kerascnn tf32", plan_conv_pool_wgrad_tf32}};
  }
  return {{"kerascnn small, many", plan_conv_pool_small_many},
          {"kerascnn small", plan_conv_pool_small},
          {"kerascnn tf32, many", plan_conv_pool_many},
          {"kerascnn tf32", plan_conv_pool_tf32}};
}

// Forward and both gradients together, against convolution and pooling one after another: the own
// kernels save trips to memory, but cuDNN's arithmetic is up to eight times as fast where there are
// many channels. Limits from an H200, docs/benchmarks.md has the times.
bool is_gain(const Conv2DGeometry& g) {
  const int64_t channels = g.input_channels * g.output_channels;
  if (channels <= 48 * 48) return true;
  if (channels <= 64 * 64) return g.num_products() <= int64_t{3} << 29;
  return channels <= 64 * 128 && g.num_products() <= int64_t{1} << 28;
}

bool has_own_kernel(const ConvPoolCall& call) {
  const std::vector<OwnKernel> kernels = own_kernels(call.op);
  return std::any_of(kernels.begin(), kernels.end(),
                     [&](const OwnKernel& own) { return own.plan(call) != nullptr; });
}

std::unique_ptr<Kernel> choose(const PlanRequest& request) {
  const ConvPoolCall call = make_call(request);
  std::vector<KernelCandidate> candidates;
  for (const OwnKernel& own : own_kernels(call.op)) {
    candidates.push_back({own.name, [&call, plan = own.plan] { return plan(call); }});
  }
  candidates.push_back({"convolution and pooling one after another", [&request] {
                          return plan_composite_conv2d_max_pool2d(kernel_table(), request);
                        }});
  return choose_fastest(request, call.geometry.conv.num_products(), candidates);
}

// The stack of partial sums is asked for where the own kernel that makes so many was chosen.
std::unique_ptr<Kernel> plan_stack(const PlanRequest& request) {
  const ConvPoolCall call = make_call(request);
  for (const OwnKernel& own : own_kernels(call.op)) {
    auto kernel = own.plan(call);
    if (kernel != nullptr && kernel->num_partial_sums() == call.copies) return kernel;
  }
  return plan_stacked(request, plan_conv2d_max_pool2d_wgrad, zero_memory);
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
  if (call.copies == copies) {
    return make_summing_kernel(
        std::move(description),
        [=](const KernelArgs& args) {
          launch(args, {output<float>(args, 0), output<float>(args, 1), size, channels});
        },
        0, copies);
  }
  return make_summing_kernel(
      std::move(description),
      [=](const KernelArgs& args) {
        auto* partial = static_cast<float*>(args.workspace);
        launch(args, {partial, partial + size, size + channels, size + channels});
        launch_sum_partials(DType::Float32, partial, args.outputs[0], copies, size,
                            static_cast<cudaStream_t>(args.stream), args.outputs[1], channels);
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

bool fuses_conv2d_max_pool2d(const PlanRequest& request) {
  const std::string_view op = request.op.name;
  if (op != "conv2d_max_pool2d" && op != "conv2d_max_pool2d_dgrad" &&
      op != "conv2d_max_pool2d_wgrad") {
    return false;
  }
  const ConvPoolCall call = make_call(request);
  return is_gain(call.geometry.conv) && has_own_kernel(call);
}

int64_t conv2d_max_pool2d_wgrad_partial_sums(const PlanRequest& request) {
  return choose(request)->num_partial_sums();
}

std::unique_ptr<Kernel> plan_conv2d_max_pool2d(const PlanRequest& request) {
  return choose(request);
}

std::unique_ptr<Kernel> plan_conv2d_max_pool2d_dgrad(const PlanRequest& request) {
  return choose(request);
}

std::unique_ptr<Kernel> plan_conv2d_max_pool2d_wgrad(const PlanRequest& request) {
  const bool is_stack = num_copies(request.op.name, request.attributes) > 0;
  return is_stack ? plan_stack(request) : choose(request);
}

}  // namespace kerascnn::cuda
