// Products of small float32 matrices on tensor cores (TF32), in one launch with what follows them.
// cuBLASLt takes one launch for the product's parts and one for their sum.
#pragma once

#include <memory>
#include <string>

#include "core/backend/backend.h"
#include "core/backend/cuda/fusions/dense_loss.h"
#include "core/backend/cuda/products/cublaslt_gemm.h"
#include "core/ops/activation_kind.h"

namespace kerascnn::cuda {

// Does the call fit? It does not if the dtype is not float32, if TF32 is not allowed, if there is a
// batch, if there are no elements, or so many that cuBLASLt is faster.
bool takes_small_matmul(DType dtype, const GemmShape& shape, bool allow_tf32);

// y (m, n) = activation(op(a) (m, k) @ op(b) (k, n) + bias (n,)); the kernel's third input is the
// bias where it has one. Null where the call does not fit.
std::unique_ptr<Kernel> plan_small_matmul(const std::string& op, DType dtype,
                                          const GemmShape& shape, bool allow_tf32,
                                          bool has_bias = false,
                                          const ActivationCall& activation = {});

// The fusion matmul_activation_grad. It takes only a transposed b, which the gradient of a dense
// layer has.
bool takes_small_matmul_activation_grad(DType dtype, const GemmShape& shape, bool allow_tf32);
std::unique_ptr<Kernel> plan_small_matmul_activation_grad(const std::string& op,
                                                          const GemmShape& shape,
                                                          const ActivationCall& activation);

// The fusion dense_sparse_softmax_cross_entropy, for up to 32 classes.
bool takes_small_dense_loss(DType dtype, const GemmShape& shape, bool allow_tf32);
std::unique_ptr<Kernel> plan_small_dense_loss(const std::string& op, const GemmShape& shape,
                                              DType label_dtype,
                                              const DenseLossArguments& arguments, double epsilon);

// The fusion dense_wgrad, where one block has all samples of its columns: for a batch of up to 256,
// or more where the layer alone fills the device.
bool takes_small_dense_wgrad(DType dtype, const GemmShape& shape, bool allow_tf32);
std::unique_ptr<Kernel> plan_small_dense_wgrad(const std::string& op, const GemmShape& shape);

}  // namespace kerascnn::cuda
