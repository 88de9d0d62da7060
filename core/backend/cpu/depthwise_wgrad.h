// An own kernel for the gradient of a depthwise convolution (float32) to its kernel.
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "core/ops/conv2d.h"

namespace kerascnn::cpu {

// Has each channel one filter of its own?
bool takes_depthwise_wgrad(const Conv2DGeometry& g);

// `otherwise` computes what is not finite: zeros around an image must not make NaN of an infinity.
std::unique_ptr<Kernel> make_depthwise_wgrad(const Conv2DGeometry& g,
                                             std::unique_ptr<Kernel> otherwise);

}  // namespace kerascnn::cpu
