#include "core/backend/cuda/products/cublaslt_gemm.h"

#include <array>

#include "core/backend/cuda/runtime/initcheck.h"
#include "core/base/error.h"

namespace kerascnn::cuda {
namespace {

constexpr int64_t kMaxWorkspace = 32 << 20;  // what cuBLASLt asks for on Hopper at most

cudaDataType_t data_type(const std::string& op, DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return CUDA_R_16F;
    case DType::BFloat16:
      return CUDA_R_16BF;
    case DType::Float32:
      return CUDA_R_32F;
    case DType::Float64:
      return CUDA_R_64F;
    case DType::Int8:
      return CUDA_R_8I;
    case DType::Int32:
      return CUDA_R_32I;
    default:
      throw TypeError(message(op, ": dtype ", dtype_name(dtype),
                              " is not supported on CUDA; cast to a floating dtype first"));
  }
}

// What products of the dtype are summed in. The factors 1 and 0 have it too.
DType sum_dtype(DType dtype) {
  if (dtype == DType::Int8) return DType::Int32;
  const bool is_half = dtype == DType::Float16 || dtype == DType::BFloat16;
  return is_half ? DType::Float32 : dtype;
}

DType result_dtype(DType dtype, const GemmShape& shape) {
  return shape.wide_result || dtype == DType::Int8 ? sum_dtype(dtype) : dtype;
}

// To the end of the last row, with what lies between rows.
int64_t bytes_of_result(const GemmShape& shape, DType dtype) {
  const int64_t row = shape.c.row != 0 ? shape.c.row : shape.n;
  const int64_t matrix = shape.c.matrix != 0 ? shape.c.matrix : shape.m * row;
  const int64_t size = (shape.batch - 1) * matrix + (shape.m - 1) * row + shape.n;
  return size * static_cast<int64_t>(itemsize(dtype));
}

// The largest power of two that divides every address where a matrix may begin, up to what memory
// is aligned to.
uint32_t start_alignment(int64_t start, size_t item) {
  uint32_t bytes = 256;
  while (start * static_cast<int64_t>(item) % bytes != 0) bytes /= 2;
  return bytes;
}

cublasComputeType_t compute_type(DType dtype, bool allow_tf32) {
  if (dtype == DType::Float64) return CUBLAS_COMPUTE_64F;
  if (dtype == DType::Int8) return CUBLAS_COMPUTE_32I;
  const bool in_tf32 = dtype == DType::Float32 && allow_tf32;
  return in_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

template <typename T>
void set_attribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                   const T& value) {
  check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute");
}

// cuBLASLt is column-major: a row-major (rows, columns) matrix is a column-major (columns, rows)
// one.
cublasLtMatrixLayout_t make_layout(cudaDataType_t type, int64_t rows, int64_t columns,
                                   int64_t batch, const MatrixStrides& strides) {
  cublasLtMatrixLayout_t layout = nullptr;
  const int64_t row = strides.row != 0 ? strides.row : columns;
  check(cublasLtMatrixLayoutCreate(&layout, type, columns, rows, row),
        "cublasLtMatrixLayoutCreate");
  if (batch > 1) {
    const int32_t count = static_cast<int32_t>(batch);
    const int64_t stride = strides.matrix != 0 ? strides.matrix : rows * row;
    check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                           sizeof(count)),
          "cublasLtMatrixLayoutSetAttribute");
    check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                           &stride, sizeof(stride)),
          "cublasLtMatrixLayoutSetAttribute");
  }
  return layout;
}

// Three tiles of 128 columns share the rows of a that they read where they form a cluster. The
// heuristics' list has that algorithm behind slower ones (cuBLASLt 13.1 on an H200: 65 us instead
// of 77).
bool suits_cluster_of_columns(DType dtype, const GemmShape& shape) {
  return dtype == DType::Float32 && shape.batch == 1 && shape.n == 3 * 128;
}

template <typename T>
T setting(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  size_t written = 0;
  (void)cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof(value),
                                             &written);
  return value;
}

}  // namespace

CublasLtGemm::CublasLtGemm(std::string op, Context& context, DType dtype, const GemmShape& shape,
                           GemmEpilogue epilogue, bool allow_tf32, int rank)
    : op_(std::move(op)),
      context_(context),
      shape_(shape),
      dtype_(dtype),
      result_bytes_(bytes_of_result(shape, result_dtype(dtype, shape))),
      prefers_cluster_of_columns_(suits_cluster_of_columns(dtype, shape)),
      scale_dtype_(sum_dtype(dtype)) {
  const cudaDataType_t type = data_type(op_, dtype);
  cublasLtMatmulDesc_t operation = nullptr;
  check(cublasLtMatmulDescCreate(&operation, compute_type(dtype, allow_tf32),
                                 data_type(op_, scale_dtype_)),
        "cublasLtMatmulDescCreate");
  operation_ = decltype(operation_)(operation);
  // c = a @ b in row-major is c^T = b^T @ a^T in column-major: b comes first and the transposes
  // stay.
  const cublasOperation_t transpose_left = shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t transpose_right = shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  set_attribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, transpose_left);
  set_attribute(operation, CUBLASLT_MATMUL_DESC_TRANSB, transpose_right);
  if (epilogue == GemmEpilogue::Bias) {
    set_attribute(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set_attribute(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
  }
  const auto layout = [&](bool transposes, int64_t rows, int64_t columns,
                          const MatrixStrides& strides) {
    if (transposes) std::swap(rows, columns);
    return make_layout(type, rows, columns, shape.batch, strides);
  };
  left_ = decltype(left_)(layout(shape.transpose_b, shape.k, shape.n, shape.b));
  right_ = decltype(right_)(layout(shape.transpose_a, shape.m, shape.k, shape.a));
  result_ = decltype(result_)(make_layout(data_type(op_, result_dtype(dtype, shape)), shape.m,
                                          shape.n, shape.batch, shape.c));
  choose_algorithm(rank);
}

CublasLtGemm::~CublasLtGemm() = default;

void CublasLtGemm::choose_algorithm(int rank) {
  cublasLtMatmulPreference_t raw = nullptr;
  check(cublasLtMatmulPreferenceCreate(&raw), "cublasLtMatmulPreferenceCreate");
  UniqueHandle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference(raw);
  const size_t workspace = kMaxWorkspace;
  check(cublasLtMatmulPreferenceSetAttribute(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace, sizeof(workspace)),
        "cublasLtMatmulPreferenceSetAttribute");
  const auto align = [&](cublasLtMatmulPreferenceAttributes_t attribute, const MatrixStrides& at) {
    const uint32_t bytes = start_alignment(at.start, itemsize(dtype_));
    check(cublasLtMatmulPreferenceSetAttribute(raw, attribute, &bytes, sizeof(bytes)),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape_.b);  // b comes first
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape_.a);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape_.c);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape_.c);
  const bool prefers = rank == 0 && prefers_cluster_of_columns_;
  std::array<cublasLtMatmulHeuristicResult_t, kMostAlgorithms> choices{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      context_.cublas_lt(), operation_.get(), left_.get(), right_.get(), result_.get(),
      result_.get(), raw, prefers ? kMostAlgorithms : rank + 1, choices.data(), &found);
  const std::string call =
      message(op_, ": cublasLtMatmulAlgoGetHeuristic for (", shape_.m, ", ", shape_.k, ") @ (",
              shape_.k, ", ", shape_.n, "), batch ", shape_.batch);
  // The library says which sizes of integers it takes; there is an own kernel for others.
  const bool is_refused = status == CUBLAS_STATUS_NOT_SUPPORTED || found == 0;
  if (scale_dtype_ == DType::Int32 && is_refused) return;
  check(status, call);
  if (found == 0) check(CUBLAS_STATUS_NOT_SUPPORTED, call);
  has_algorithm_ = found > rank;
  for (int i = 0; prefers && i < found; ++i) {
    const auto cluster = setting<uint16_t>(choices[i].algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
    if (cluster != CUBLASLT_CLUSTER_SHAPE_1x3x1) continue;
    rank = i;
    break;
  }
  algorithm_ = choices[rank].algo;
  workspace_bytes_ = static_cast<int64_t>(choices[rank].workspaceSize);
}

void CublasLtGemm::run(const void* a, const void* b, const void* bias, void* c, void* workspace,
                       cudaStream_t stream, double factor) {
  if (bias != nullptr) set_attribute(operation_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const float single = static_cast<float>(factor);
  const int32_t integer = 1;
  const double zero = 0;  // all of its bits are 0, in every type
  const void* alpha = &single;
  if (scale_dtype_ == DType::Float64) alpha = &factor;
  if (scale_dtype_ == DType::Int32) alpha = &integer;
  mark_written({{c, result_bytes_}, {workspace, workspace_bytes_}}, stream);
  check(cublasLtMatmul(context_.cublas_lt(), operation_.get(), alpha, b, left_.get(), a,
                       right_.get(), &zero, c, result_.get(), c, result_.get(), &algorithm_,
                       workspace, static_cast<size_t>(workspace_bytes_), stream),
        message(op_, ": cublasLtMatmul"));
}

std::string CublasLtGemm::description() const {
  return message("cuBLASLt algorithm ", setting<int32_t>(algorithm_, CUBLASLT_ALGO_CONFIG_ID),
                 " tile ", setting<uint32_t>(algorithm_, CUBLASLT_ALGO_CONFIG_TILE_ID), " cluster ",
                 setting<uint16_t>(algorithm_, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
}

void add_gemm_candidates(std::vector<KernelCandidate>& candidates,
                         const std::function<std::unique_ptr<Kernel>(int rank)>& plan) {
  for (int rank = 0; rank < CublasLtGemm::kMostAlgorithms; ++rank) {
    candidates.push_back({message("cuBLASLt, number ", rank + 1, " of its heuristics"),
                          [plan, rank] { return plan(rank); }});
  }
}

}  // namespace kerascnn::cuda
