#include "core/backend/cuda/conv2d.h"

#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/stacked_kernel.h"
#include "core/base/error.h"
#include "core/ops/partial_sums.h"

namespace kerascnn::cuda {
namespace {

Conv2DCall make_call(const PlanRequest& request) {
  Conv2DCall call;
  call.op = request.op.name;
  call.geometry = conv2d_geometry(request.op.name, request.attributes, request.inputs);
  call.dtype = request.inputs[0].dtype;
  call.allow_tf32 = request.allow_tf32;
  if (!is_floating(call.dtype)) {
    throw TypeError(message(call.op, ": dtype ", dtype_name(call.dtype),
                            " is not supported on CUDA; cast to a floating dtype first"));
  }
  return call;
}

// With so little arithmetic a convolution is bound by memory and launches: plain cores keep up, and
// one launch beats cuDNN's, which first pads channels to the width of tensor cores.
bool is_small(const Conv2DGeometry& g) {
  const int64_t taps = g.kernel_height * g.kernel_width * g.group_input_channels();
  const int64_t products = num_elements(g.output_shape()) * taps;
  constexpr int64_t kFewProducts = int64_t{1} << 24;
  return (g.input_channels <= 4 && taps <= 64) || products <= kFewProducts;
}

// Up to here one launch with the bias in it beats cuDNN's engines, which need two or three; beyond,
// arithmetic counts and theirs is better.
bool has_few_channels(const Conv2DGeometry& g) {
  return g.input_channels <= 128 && g.output_channels <= 128;
}

bool is_empty(const Conv2DGeometry& g) {
  return num_elements(g.input_shape()) == 0 || num_elements(g.output_shape()) == 0 ||
         num_elements(g.kernel_shape()) == 0;
}

using PlanCall = std::unique_ptr<Kernel> (*)(const Conv2DCall&);

// The first of these that takes the call; null where cuDNN comes first.
std::unique_ptr<Kernel> choose_own(const Conv2DCall& call, PlanCall small, PlanCall tensor_core,
                                   PlanCall direct) {
  const Conv2DGeometry& g = call.geometry;
  if (call.dtype == DType::Float64 || is_empty(g)) return direct(call);
  if (is_small(g)) {
    if (auto kernel = small(call)) return kernel;
  }
  if (has_few_channels(g)) {
    if (auto kernel = tensor_core(call)) return kernel;
  }
  return nullptr;
}

std::unique_ptr<Kernel> choose(const Conv2DCall& call, PlanCall small, PlanCall tensor_core,
                               PlanCall direct) {
  if (auto kernel = choose_own(call, small, tensor_core, direct)) return kernel;
  if (auto kernel = plan_conv2d_cudnn(call)) return kernel;
  return direct(call);
}

}  // namespace

int64_t conv2d_wgrad_partial_sums(const PlanRequest& request) {
  const auto kernel = choose_own(make_call(request), plan_conv2d_wgrad_tiled,
                                 plan_conv2d_wgrad_tf32, plan_conv2d_wgrad_direct);
  return kernel == nullptr ? 0 : kernel->num_partial_sums();
}

std::unique_ptr<Kernel> plan_conv2d(const PlanRequest& request) {
  Conv2DCall call = make_call(request);
  call.has_bias = request.inputs.size() == 3;
  call.activation = fused_activation("conv2d", request.attributes);
  return choose(call, plan_conv2d_tiled, plan_conv2d_tf32, plan_conv2d_direct);
}

std::unique_ptr<Kernel> plan_conv2d_dgrad(const PlanRequest& request) {
  return choose(make_call(request), plan_conv2d_dgrad_tiled, plan_conv2d_dgrad_tf32,
                plan_conv2d_dgrad_direct);
}

std::unique_ptr<Kernel> plan_conv2d_wgrad(const PlanRequest& request) {
  Conv2DCall call = make_call(request);
  call.copies = num_copies(call.op, request.attributes);
  auto kernel =
      choose(call, plan_conv2d_wgrad_tiled, plan_conv2d_wgrad_tf32, plan_conv2d_wgrad_direct);
  if (call.copies == 0 || kernel->num_partial_sums() == call.copies) return kernel;
  return plan_stacked(request, plan_conv2d_wgrad, zero_memory);
}

}  // namespace kerascnn::cuda
