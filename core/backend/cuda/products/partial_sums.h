// The second half of a sum that many blocks share: adds up their partial results, always in the
// same order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/base/dtype.h"

namespace kerascnn::cuda {

// y (size,) and behind it rest (rest_size,) of `dtype` = sum over s of partial (splits, size +
// rest_size), which is in the dtype's compute type. A null `rest` drops its part.
void launch_sum_partials(DType dtype, const void* partial, void* y, int64_t splits, int64_t size,
                         cudaStream_t stream, void* rest = nullptr, int64_t rest_size = 0);

}  // namespace kerascnn::cuda
