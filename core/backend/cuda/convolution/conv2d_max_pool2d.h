// Own kernels for a convolution that is followed by 2 x 2 max pooling, and for its gradients.
//
// The convolution's full-size output and its gradient never reach memory: the forward kernels pool
// in registers, and the backward kernels read the pooled gradient with the position of each maximum
// and spread it in shared memory. Four neighbouring results, as one window pools them, are a
// "cell".
//   conv2d_max_pool2d_small.cu       few input channels, float32 arithmetic
//   conv2d_max_pool2d_small_many.cu  the same forward for large batches
//   conv2d_max_pool2d_tf32.cu        forward and data gradient on tensor cores
//   conv2d_max_pool2d_many.cu        forward on tensor cores for large batches
//   conv2d_max_pool2d_wgrad_tf32.cu  kernel gradient on tensor cores
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/backend/backend.h"
#include "core/graph/conv_pooling.h"
#include "core/ops/activation_kind.h"

namespace kerascnn::cuda {

struct ConvPoolCall {
  Conv2DMaxPool2DGeometry geometry;
  DType dtype = DType::Float32;
  bool has_bias = false;  // or, in a wgrad, its gradient
  bool allow_tf32 = true;
  ConvPoolArguments at;  // of a gradient
};

// Where a kernel gradient's blocks put their partial sums: copy i begins at i * stride.
struct PartialSums {
  float* kernel;
  float* bias;  // null where nobody reads it
  int64_t kernel_stride;
  int64_t bias_stride;
};

// A wgrad that makes `copies` partial sums and adds them up by a second launch, if they are not
// left to the reader. launch(args, sums) starts the kernel.
std::unique_ptr<Kernel> make_conv_pool_wgrad(
    std::string description, const ConvPoolCall& call, int64_t copies,
    std::function<void(const KernelArgs& args, const PartialSums& sums)> launch);

// What the kernels need of the geometry, in 32 bits.
struct ConvPool {
  int batch;
  int input_height, input_width, input_channels;
  int output_channels;
  int pad_top, pad_left;
  int pooled_height, pooled_width;
  Activation activation;
  float alpha;

  explicit ConvPool(const Conv2DMaxPool2DGeometry& g);
};

// Null where the call does not fit: another dtype than float32, a kernel other than 3 x 3 or 5 x 5,
// strides, dilation, groups, other windows than 2 x 2 side by side, sizes beyond shared memory; for
// the tensor-core kernels TF32 that is not allowed or channel counts that don't divide.
std::unique_ptr<Kernel> plan_conv_pool_small(const ConvPoolCall& call);
std::unique_ptr<Kernel> plan_conv_pool_wgrad_small(const ConvPoolCall& call);
// These two are for batches so large that every multiprocessor has several images; else they are
// null.
std::unique_ptr<Kernel> plan_conv_pool_small_many(const ConvPoolCall& call);
std::unique_ptr<Kernel> plan_conv_pool_many(const ConvPoolCall& call);
std::unique_ptr<Kernel> plan_conv_pool_tf32(const ConvPoolCall& call);
std::unique_ptr<Kernel> plan_conv_pool_dgrad_tf32(const ConvPoolCall& call);
std::unique_ptr<Kernel> plan_conv_pool_wgrad_tf32(const ConvPoolCall& call);

// What all of them require.
bool is_plain_conv_pool(const ConvPoolCall& call);

}  // namespace kerascnn::cuda
