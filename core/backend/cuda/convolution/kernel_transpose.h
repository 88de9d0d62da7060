// Transposes a matrix: a convolution kernel between our order and cuDNN's, or one of int8 for
// cuBLASLt.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/base/dtype.h"

namespace kerascnn::cuda {

// x (rows, columns) -> y (columns, rows).
void launch_transpose(DType dtype, const void* x, void* y, int64_t rows, int64_t columns,
                      cudaStream_t stream);

}  // namespace kerascnn::cuda
