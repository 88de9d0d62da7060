// Products of int8 matrices with an own kernel: any sizes, either matrix transposed.
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "core/backend/cuda/products/cublaslt_gemm.h"

namespace kerascnn::cuda {

// No size may be 0.
std::unique_ptr<Kernel> plan_own_integer_matmul(const GemmShape& shape);

}  // namespace kerascnn::cuda
