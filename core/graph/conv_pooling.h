// Fusions of a convolution with its activation and the max pooling after it, and of the two
// gradients, which keep the convolution's full-size output and its gradient out of memory. Each
// backend has kernels of its own for them; what they match and what they need of a match is here.
//
// Where the pooled gradient comes from behind an activation, the kernels of the gradients take it
// back through the activation by themselves. That is done on the pooled values (see
// passes/op_fusions.cpp), so the activation is one whose gradient follows from its output.
#pragma once

#include "core/graph/fusion.h"
#include "core/ops/activation_kind.h"
#include "core/ops/conv2d.h"
#include "core/ops/pool2d.h"

namespace kerascnn {

struct Conv2DMaxPool2DGeometry {
  Conv2DGeometry conv;
  Pool2DGeometry pool;  // its input is the convolution's output
  ActivationCall activation;
};

// x, kernel, [bias] -> y, [index]
void pattern_conv2d_max_pool2d(Pattern& pattern);
// gy, [y], index, kernel -> the gradient of x; y where there is an activation
void pattern_conv2d_max_pool2d_dgrad(Pattern& pattern);
// x, gy, [y], index -> the gradient of the kernel, [that of the bias]
void pattern_conv2d_max_pool2d_wgrad(Pattern& pattern);

// Of a match of one of the three.
Conv2DMaxPool2DGeometry conv_pool_geometry(const Match& match);

// Where a kernel of a gradient finds its arguments.
struct ConvPoolArguments {
  ConvPoolArguments() = default;
  explicit ConvPoolArguments(const Match& match);

  size_t x = 0, kernel = 0;  // wgrad has the one, dgrad the other
  size_t gy = 0, index = 0;
  size_t y = 0;  // the place of gy where there is no activation: its value does not matter then
};

}  // namespace kerascnn
