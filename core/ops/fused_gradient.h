// What dense and conv2d share in their gradients: both end with bias and activation.
#pragma once

#include <string_view>

#include "core/ops/op.h"

namespace kerascnn {

// Checks the optional third input against the number of output channels.
void check_bias(std::string_view op, Specs inputs, int64_t channels);

// The gradient of what goes into the activation of `op` (the context's op). Where that gradient
// needs the activation's input, it is computed again.
ValueId before_activation(GradientContext& context, std::string_view op);

// The attributes of the context's call with the activation "linear".
Attributes linear_attributes(const GradientContext& context);

}  // namespace kerascnn
