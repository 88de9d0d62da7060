// Runs one op at once on tensors: the same definition, plan and kernel that compiled programs use.
#pragma once

#include <string_view>
#include <vector>

#include "core/base/attributes.h"
#include "core/tensor/tensor.h"

namespace kerascnn {

// Inputs must be on one device. Plans are cached by op, attributes, specs and device.
// Throws what the op's shape rule throws, with the op's name in front, and DeviceError for mixed
// devices.
std::vector<Tensor> apply(std::string_view op, const std::vector<Tensor>& inputs,
                          const Attributes& attributes = {});

// May ops that run at once use TF32 on a GPU? On until switched off; compiled programs carry their
// own choice.
bool eager_tf32();
void set_eager_tf32(bool allowed);

}  // namespace kerascnn
