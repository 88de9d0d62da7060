// Runs one op at once on tensors: the same definition, plan and kernel that compiled programs use.
#pragma once

#include <string_view>
#include <vector>

#include "core/base/attributes.h"
#include "core/tensor/tensor.h"

namespace kerascnn {

// Inputs must be on one device. Plans are cached by op, attributes, specs and device.
std::vector<Tensor> apply(std::string_view op, const std::vector<Tensor>& inputs,
                          const Attributes& attributes = {});

}  // namespace kerascnn
