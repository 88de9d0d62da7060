// Products of float32 matrices of which one has only a few columns: the classifier at a network's
// end, and its two gradients. Each takes one launch, while cuBLASLt splits the sum over two.
#pragma once

#include <memory>
#include <string>

#include "core/backend/backend.h"
#include "core/backend/cuda/products/cublaslt_gemm.h"
#include "core/ops/activation_kind.h"

namespace kerascnn::cuda {

// Null where the shapes don't fit: batch 1 and one of
//   a (m, k) @ b (k, n), n <= 16              with bias (n,) and activation
//   a^T @ b of a (k, m), b (k, n), n <= 16    k <= 4096
//   a (m, k) @ b^T of b (n, k), k <= 16
// The kernel's third input is the bias where it has one.
std::unique_ptr<Kernel> plan_narrow_matmul(const std::string& op, DType dtype,
                                           const GemmShape& shape, bool has_bias = false,
                                           const ActivationCall& activation = {});

}  // namespace kerascnn::cuda
