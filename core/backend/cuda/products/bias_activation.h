// y (rows, channels) = activation(y + bias), in place. It ends a product or convolution whose
// library has no epilogue for that.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/base/dtype.h"
#include "core/ops/activation_kind.h"

namespace kerascnn::cuda {

// `bias` (channels,) may be null.
void launch_bias_activation(DType dtype, void* y, const void* bias, int64_t rows, int64_t channels,
                            const ActivationCall& activation, cudaStream_t stream);

}  // namespace kerascnn::cuda
