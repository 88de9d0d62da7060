// Runs one op at once on tensors: the same definition, plan and kernel that compiled programs use.
// While a tape records in this thread, the call is noted for gradients (tape.h).
#pragma once

#include <string_view>
#include <vector>

#include "core/base/attributes.h"
#include "core/eager/plan.h"
#include "core/tensor/tensor.h"

namespace kerascnn {

// Inputs must be on one device. Plans are cached by op, attributes, specs and device.
// Throws what the op's shape rule throws, with the op's name in front, and DeviceError for mixed
// devices.
std::vector<Tensor> apply(std::string_view op, const std::vector<Tensor>& inputs,
                          const Attributes& attributes = {});
std::vector<Tensor> apply(const OpDef& op, Inputs inputs, const Attributes& attributes = {});
// The first output alone.
Tensor apply_one(const OpDef& op, Inputs inputs, const Attributes& attributes = {});
// Runs a plan that was found before, and notes the call.
void execute(const EagerPlanPtr& plan, Inputs inputs, std::span<Tensor> outputs);

// The element of shape () that a number is as a tensor; the same tensor for the same number.
Tensor scalar_tensor(DType dtype, double value, Device device);

// May ops that run at once use TF32 on a GPU? On until switched off; compiled programs carry their
// own choice.
bool eager_tf32();
void set_eager_tf32(bool allowed);

}  // namespace kerascnn
