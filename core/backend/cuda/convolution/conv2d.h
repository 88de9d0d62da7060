// The three convolution ops on CUDA and what each implementation offers. conv2d.cpp takes the first
// that fits, or of those for larger convolutions the one that is the fastest by the clock:
//   conv2d_depthwise.cu         own, any but float64: a kernel of up to 7 x 7 for each channel
//   conv2d_narrow.cu            own, TF32 and 16 bits, few taps, many results: first layers
//   conv2d_narrow_many.cu       own, the same with more taps
//   conv2d_pointwise.cu         own, TF32 and 16 bits: 1x1 kernels, any activation but relu
//   conv2d_tiled.cu             own, float32, little arithmetic: bands of images in shared memory
//   conv2d_tf32.cu              own, float32 with TF32 allowed, few channels: tensor cores
//   conv2d_warpgroups.cu        own, 16 bits, Hopper: few channels, forward and data gradient
//   conv2d_wgrad_warpgroups.cu  own, TF32, Hopper: the gradient of 3x3 kernels, many channels
//   conv2d_product.cu           cuBLASLt: 1x1 kernels, and few input channels
//   cudnn_conv2d.cpp            cuDNN: larger convolutions, float16 and bfloat16
//   conv2d_direct.cu            own, any floating dtype and geometry: float64, what others refuse
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "core/ops/activation_kind.h"
#include "core/ops/conv2d.h"
#include "core/ops/definitions.h"

namespace kerascnn::cuda {

struct Conv2DCall {
  const OpDef* op = nullptr;  // op_conv2d, op_conv2d_dgrad or op_conv2d_wgrad
  Conv2DGeometry geometry;
  DType dtype = DType::Float32;
  bool has_bias = false;      // conv2d only
  ActivationCall activation;  // conv2d only
  bool has_addend = false;    // conv2d only, with a bias: a tensor like the result, before relu
  bool allow_tf32 = true;
};

// Does anything follow the products?
inline bool has_epilogue(const Conv2DCall& call) {
  return call.has_bias || call.activation.kind != Activation::Linear;
}

std::unique_ptr<Kernel> plan_conv2d_direct(const Conv2DCall& call);
std::unique_ptr<Kernel> plan_conv2d_dgrad_direct(const Conv2DCall& call);
std::unique_ptr<Kernel> plan_conv2d_wgrad_direct(const Conv2DCall& call);

// Any of the three ops. Null where the call does not fit: groups of more than one input and one
// output channel, kernels above 7 x 7, strides above 2, dilation, float64.
std::unique_ptr<Kernel> plan_conv2d_depthwise(const Conv2DCall& call);

// Forward and the kernel's gradient. Null where the call does not fit: dtype, TF32 not allowed,
// groups, more than 32 taps, output channels that are no multiple of 32, rows of the input that are
// too long for shared memory.
std::unique_ptr<Kernel> plan_conv2d_narrow(const Conv2DCall& call);

// The same with 33 to 192 taps, and with no activation but relu. Null also where the kernel's
// columns are dilated.
std::unique_ptr<Kernel> plan_conv2d_narrow_many(const Conv2DCall& call);

// Forward. Null where the call does not fit: dtype, TF32 not allowed, kernels but 1x1, strides,
// groups, channels whose rows are no multiples of 16 bytes, an activation that has no kernel here.
std::unique_ptr<Kernel> plan_conv2d_pointwise(const Conv2DCall& call);

// Forward, with bias and relu, and the input's gradient. Null where the call does not fit: any
// dtype but those of 16 bits, groups, strides, dilation, more than 9 taps, more than 64 channels to
// sum over, channels that are no multiples of 8, sizes that leave much of the arithmetic for
// nothing, and on any device but Hopper.
std::unique_ptr<Kernel> plan_conv2d_warpgroups(const Conv2DCall& call);
// The same forward, with the results' mean and variance over all pixels, in float32, as outputs 1
// and 2.
std::unique_ptr<Kernel> plan_conv2d_warpgroups_moments(const Conv2DCall& call);

// Null where the call does not fit (dtype, groups, a band of the input larger than shared memory;
// stride for dgrad).
std::unique_ptr<Kernel> plan_conv2d_tiled(const Conv2DCall& call);
std::unique_ptr<Kernel> plan_conv2d_dgrad_tiled(const Conv2DCall& call);
std::unique_ptr<Kernel> plan_conv2d_wgrad_tiled(const Conv2DCall& call);

// Null where the call does not fit (dtype, TF32 not allowed, groups, channel counts, stride).
std::unique_ptr<Kernel> plan_conv2d_tf32(const Conv2DCall& call);
std::unique_ptr<Kernel> plan_conv2d_dgrad_tf32(const Conv2DCall& call);
std::unique_ptr<Kernel> plan_conv2d_wgrad_tf32(const Conv2DCall& call);

// The gradient of a kernel. Null where the call does not fit: dtype, TF32 not allowed, groups,
// kernels but 3x3, strides above 2, dilation, channels or filters that are no multiples of 64, and
// on any device but Hopper.
std::unique_ptr<Kernel> plan_conv2d_wgrad_warpgroups(const Conv2DCall& call);

// Null where the call is no matrix product, or dtype, groups or channel counts don't fit.
std::unique_ptr<Kernel> plan_conv2d_product(const Conv2DCall& call);
std::unique_ptr<Kernel> plan_conv2d_dgrad_product(const Conv2DCall& call);
std::unique_ptr<Kernel> plan_conv2d_wgrad_product(const Conv2DCall& call);

// The engine of cuDNN at this place of its heuristics' list, by default the first that takes the
// call. Null where none does; throws LibraryError for any other failure.
std::unique_ptr<Kernel> plan_conv2d_cudnn(const Conv2DCall& call, std::optional<int> place = {});
// The same with an engine that adds the addend, if any, and the bias and applies relu, if any,
// itself. cuDNN has them for nothing else: a clipped relu gets a kernel that is fifty times slower.
std::unique_ptr<Kernel> plan_conv2d_cudnn_epilogue(const Conv2DCall& call,
                                                   std::optional<int> place = {});

}  // namespace kerascnn::cuda
