// Copies tensors whose elements lie at arbitrary strides, as other libraries hand them over.
#pragma once

#include "core/tensor/tensor.h"

namespace kerascnn {

// Copies `source` into `target`, a contiguous tensor of the same spec on the same device.
void strided_copy(const Tensor& target, const Tensor& source);

}  // namespace kerascnn
