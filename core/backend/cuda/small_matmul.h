// Products of small float32 matrices on tensor cores (TF32), in one launch, where cuBLASLt takes
// one for the product's parts and one for their sum.
#pragma once

#include <memory>
#include <string>

#include "core/backend/backend.h"
#include "core/backend/cuda/cublaslt_gemm.h"
#include "core/ops/activation_kind.h"

namespace kerascnn::cuda {

// y (m, n) = activation(op(a) (m, k) @ op(b) (k, n) + bias (n,)); the kernel's third input is the
// bias where it has one. Null where the call does not fit: another dtype than float32, TF32 not
// allowed, a batch, no elements, or so many that cuBLASLt is better.
std::unique_ptr<Kernel> plan_small_matmul(const std::string& op, DType dtype,
                                          const GemmShape& shape, bool allow_tf32,
                                          bool has_bias = false,
                                          const ActivationCall& activation = {});

}  // namespace kerascnn::cuda
