// The three convolution ops on CUDA and what each implementation offers. conv2d.cpp chooses:
//   own kernels (conv2d_direct.cu)            few input values per output (a first layer), float64, whatever cuDNN refuses
//   own tensor-core kernels (conv2d_tf32.cu)  float32 with TF32 allowed and few channels
//   cuDNN (cudnn/conv2d.cpp)                  everything else
#pragma once

#include <memory>
#include <string_view>

#include "core/backend/backend.h"
#include "core/ops/activation_kind.h"
#include "core/ops/conv2d.h"

namespace kerascnn::cuda {

struct Conv2DCall {
  std::string_view op;  // "conv2d", "conv2d_dgrad" or "conv2d_wgrad"
  Conv2DGeometry geometry;
  DType dtype = DType::Float32;
  bool has_bias = false;      // conv2d only
  ActivationCall activation;  // conv2d only
  bool allow_tf32 = true;
};

std::unique_ptr<Kernel> plan_conv2d_direct(const Conv2DCall& call);
std::unique_ptr<Kernel> plan_conv2d_dgrad_direct(const Conv2DCall& call);
std::unique_ptr<Kernel> plan_conv2d_wgrad_direct(const Conv2DCall& call);

// Null where the call does not fit (dtype, TF32 not allowed, groups, channel counts, stride).
std::unique_ptr<Kernel> plan_conv2d_tf32(const Conv2DCall& call);
std::unique_ptr<Kernel> plan_conv2d_dgrad_tf32(const Conv2DCall& call);
std::unique_ptr<Kernel> plan_conv2d_wgrad_tf32(const Conv2DCall& call);

// Null where no engine of cuDNN takes the call; throws LibraryError for any other failure.
std::unique_ptr<Kernel> plan_conv2d_cudnn(const Conv2DCall& call);

}  // namespace kerascnn::cuda
