// A convolution with its activation and the max pooling after it as one op, and its two gradients,
// so that a kernel can keep the convolution's full-size output and its gradient out of memory:
//   conv2d_max_pool2d        x (n, h, w, c), kernel (kh, kw, c / groups, k), [bias (k,)]
//                            -> y (n, ph, pw, k), index (n, ph, pw, k):
//                            max_pool2d(activation(conv2d(x, kernel) + bias))
//   conv2d_max_pool2d_dgrad  gy, y, index, kernel -> gx: conv2d_dgrad(g, kernel)
//   conv2d_max_pool2d_wgrad  x, gy, y, index -> gkernel, gbias: conv2d_wgrad(x, g), the sum of g
// with g = max_pool2d_grad(activation_grad(gy, y), index). Attributes are those of conv2d and, of
// the pooling, "window", "pool_strides" and "pool_padding"; the gradients have "input_shape" or
// "kernel_shape" too, and wgrad may have "copies" (partial_sums.h). Activations are those whose
// gradient follows from their output.
#pragma once

#include <string_view>

#include "core/base/attributes.h"
#include "core/ops/activation_kind.h"
#include "core/ops/conv2d.h"
#include "core/ops/op.h"
#include "core/ops/pool2d.h"

namespace kerascnn {

struct Conv2DMaxPool2DGeometry {
  Conv2DGeometry conv;
  Pool2DGeometry pool;  // its input is the convolution's output
  ActivationCall activation;
};

// `op` is one of the three, `inputs` are that op's inputs. Checks attributes and shapes and throws
// ValueError that starts with the op's name.
Conv2DMaxPool2DGeometry conv2d_max_pool2d_geometry(std::string_view op,
                                                   const Attributes& attributes, Specs inputs);

}  // namespace kerascnn
