// Copies that tapes follow: the gradient of a copy is its result's, brought back to where the
// source is.
#pragma once

#include "core/tensor/tensor.h"

namespace kerascnn {

Tensor recorded_copy(const Tensor& source);
// The tensor itself where it is there.
Tensor recorded_to(const Tensor& source, Device device);
// The tensor itself where it is contiguous, and aligned for kernels.
Tensor recorded_contiguous(const Tensor& source);

}  // namespace kerascnn
