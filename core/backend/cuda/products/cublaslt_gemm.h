// One planned matrix product through cuBLASLt, of row-major matrices, with an optional bias in the
// epilogue. Products of int8 are summed in int32. Its relu is not used, since a maximum with 0
// turns NaN into 0.
#pragma once

#include <cstdint>
#include <string>

#include "core/backend/cuda/runtime/context.h"
#include "core/backend/kernel_choice.h"
#include "core/base/dtype.h"

namespace kerascnn::cuda {

// Where a matrix of a batch lies: the elements from one row to the next, and from one matrix to the
// next; 0 where nothing is between them. It begins at a multiple of `start` elements, or is aligned
// as memory is that was allocated.
struct MatrixStrides {
  int64_t row = 0;
  int64_t matrix = 0;
  int64_t start = 0;
};

// c (batch, m, n) = op(a) (batch, m, k) @ op(b) (batch, k, n), all row-major.
struct GemmShape {
  int64_t batch = 1;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;  // a is stored (batch, k, m)
  bool transpose_b = false;  // b is stored (batch, n, k)
  bool wide_result = false;  // of 16-bit matrices: c is float32
  MatrixStrides a{}, b{}, c{};

  int64_t num_products() const { return batch * m * n * k; }
};

enum class GemmEpilogue : uint8_t { None, Bias };

class CublasLtGemm {
 public:
  // The heuristics name several algorithms.
  static constexpr int kMostAlgorithms = 5;

  // `op` names the caller in errors; `rank` is the place of the algorithm in the heuristics' list.
  CublasLtGemm(std::string op, Context& context, DType dtype, const GemmShape& shape,
               GemmEpilogue epilogue, bool allow_tf32, int rank = 0);
  ~CublasLtGemm();
  CublasLtGemm(const CublasLtGemm&) = delete;
  CublasLtGemm& operator=(const CublasLtGemm&) = delete;

  // `factor`, which matrices of integers don't take, multiplies the product.
  void run(const void* a, const void* b, const void* bias, void* c, void* workspace,
           cudaStream_t stream, double factor = 1.0);
  // False where the heuristics' list is shorter than the rank, or has nothing for a product of
  // integers. Then there is nothing to run.
  bool has_algorithm() const { return has_algorithm_; }
  int64_t workspace_bytes() const { return workspace_bytes_; }
  std::string description() const;

 private:
  void choose_algorithm(int rank);

  std::string op_;
  Context& context_;
  GemmShape shape_;
  DType dtype_;
  int64_t result_bytes_;
  bool prefers_cluster_of_columns_;  // to the first of the heuristics' list
  DType scale_dtype_;                // of the factors alpha and beta
  UniqueHandle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation_;
  UniqueHandle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> left_;
  UniqueHandle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> right_;
  UniqueHandle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> result_;
  cublasLtMatmulAlgo_t algorithm_{};
  bool has_algorithm_ = false;
  int64_t workspace_bytes_ = 0;
};

// Adds a candidate for each place of the heuristics' list: `plan` makes its kernel, or null.
void add_gemm_candidates(std::vector<KernelCandidate>& candidates,
                         const std::function<std::unique_ptr<Kernel>(int rank)>& plan);

}  // namespace kerascnn::cuda
