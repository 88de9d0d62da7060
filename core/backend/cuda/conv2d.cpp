#include "core/backend/cuda/conv2d.h"

#include "core/backend/cuda/plans.h"
#include "core/base/error.h"

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

// With so few products per result, convolution is bound by memory: plain cores keep up, and one launch beats
// cuDNN's, which pads channels to the width of tensor cores.
bool is_small(const Conv2DGeometry& g) {
  return g.groups == 1 && g.input_channels <= 4 &&
         g.kernel_height * g.kernel_width * g.input_channels <= 64;
}

// Up to here one launch with the bias in it beats cuDNN's engines, which need two or three; beyond, arithmetic
// counts and theirs is better.
bool has_few_channels(const Conv2DGeometry& g) {
  return g.input_channels <= 128 && g.output_channels <= 128;
}

bool is_empty(const Conv2DGeometry& g) {
  return num_elements(g.input_shape()) == 0 || num_elements(g.output_shape()) == 0 ||
         num_elements(g.kernel_shape()) == 0;
}

using PlanCall = std::unique_ptr<Kernel> (*)(const Conv2DCall&);

std::unique_ptr<Kernel> choose(const Conv2DCall& call, bool prefer_direct, PlanCall direct,
                               PlanCall tensor_core) {
  if (prefer_direct || call.dtype == DType::Float64 || is_empty(call.geometry)) return direct(call);
  if (has_few_channels(call.geometry)) {
    if (auto kernel = tensor_core(call)) return kernel;
  }
  if (auto kernel = plan_conv2d_cudnn(call)) return kernel;
  return direct(call);
}

}  // namespace

std::unique_ptr<Kernel> plan_conv2d(const PlanRequest& request) {
  Conv2DCall call = make_call(request);
  call.has_bias = request.inputs.size() == 3;
  call.activation = fused_activation("conv2d", request.attributes);
  return choose(call, is_small(call.geometry), plan_conv2d_direct, plan_conv2d_tf32);
}

std::unique_ptr<Kernel> plan_conv2d_dgrad(const PlanRequest& request) {
  return choose(make_call(request), false, plan_conv2d_dgrad_direct,
                plan_conv2d_dgrad_tf32);
}

std::unique_ptr<Kernel> plan_conv2d_wgrad(const PlanRequest& request) {
  const Conv2DCall call = make_call(request);
  return choose(call, is_small(call.geometry), plan_conv2d_wgrad_direct,
                plan_conv2d_wgrad_tf32);
}

}  // namespace kerascnn::cuda
