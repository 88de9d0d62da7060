// One planned matrix product through cuBLASLt: row-major matrices, optional bias in the
// epilogue. Its relu is not used: a maximum with 0 turns NaN into 0.
#pragma once

#include <cstdint>
#include <string>

#include "core/backend/cuda/runtime/context.h"
#include "core/base/dtype.h"

namespace kerascnn::cuda {

// c (batch, m, n) = op(a) (batch, m, k) @ op(b) (batch, k, n), all row-major.
struct GemmShape {
  int64_t batch = 1;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;  // a is stored (batch, k, m)
  bool transpose_b = false;  // b is stored (batch, n, k)
};

enum class GemmEpilogue : uint8_t { None, Bias };

class CublasLtGemm {
 public:
  // `op` names the caller in errors.
  CublasLtGemm(std::string op, Context& context, DType dtype, const GemmShape& shape,
               GemmEpilogue epilogue, bool allow_tf32);
  ~CublasLtGemm();
  CublasLtGemm(const CublasLtGemm&) = delete;
  CublasLtGemm& operator=(const CublasLtGemm&) = delete;

  void run(const void* a, const void* b, const void* bias, void* c, void* workspace,
           cudaStream_t stream);
  int64_t workspace_bytes() const { return workspace_bytes_; }
  std::string description() const;

 private:
  void choose_algorithm();

  std::string op_;
  Context& context_;
  GemmShape shape_;
  bool double_precision_ = false;
  UniqueHandle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation_;
  UniqueHandle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> left_;
  UniqueHandle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> right_;
  UniqueHandle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> result_;
  cublasLtMatmulAlgo_t algorithm_{};
  int64_t workspace_bytes_ = 0;
};

}  // namespace kerascnn::cuda
