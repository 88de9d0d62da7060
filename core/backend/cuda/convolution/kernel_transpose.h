// Transposes a matrix: a convolution kernel between our order and cuDNN's, or one of int8 for
// cuBLASLt.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/base/dtype.h"

namespace kerascnn::cuda {

// x (rows, columns) -> y (columns, rows). It is one kernel, which begins with begin_kernel();
// `settled` is 1 where nothing that may still run writes x (settled_loads).
void launch_transpose(DType dtype, const void* x, void* y, int64_t rows, int64_t columns,
                      cudaStream_t stream, uint32_t settled = 0);

}  // namespace kerascnn::cuda
