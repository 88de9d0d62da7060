// Products of int8 matrices by an own kernel, for any sizes; either matrix may be transposed.
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "core/backend/cuda/products/cublaslt_gemm.h"

namespace kerascnn::cuda {

// No size may be 0.
std::unique_ptr<Kernel> plan_own_integer_matmul(const GemmShape& shape);

}  // namespace kerascnn::cuda
