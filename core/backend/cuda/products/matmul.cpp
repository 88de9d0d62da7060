// matmul: own kernels compute it where the product is small or a matrix has few columns, cuBLASLt
// otherwise. integer_matmul: cuBLASLt computes it where it takes the sizes, an own kernel
// otherwise.
#include "core/backend/cuda/convolution/kernel_transpose.h"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/products/cublaslt_gemm.h"
#include "core/backend/cuda/products/integer_matmul.h"
#include "core/backend/cuda/products/narrow_matmul.h"
#include "core/backend/cuda/products/small_matmul.h"
#include "core/backend/cuda/runtime/autotune.h"

namespace kerascnn::cuda {

namespace {

GemmShape gemm_shape(const PlanRequest& request) {
  const Shape& a = request.inputs[0].shape;
  const Shape& y = request.outputs[0].shape;
  const size_t rank = y.size();
  GemmShape shape;
  shape.transpose_a = request.attributes.get_bool("transpose_a");
  shape.transpose_b = request.attributes.get_bool("transpose_b");
  for (size_t axis = 0; axis + 2 < rank; ++axis) shape.batch *= y[axis];
  shape.m = y[rank - 2];
  shape.n = y[rank - 1];
  shape.k = a[shape.transpose_a ? rank - 2 : rank - 1];
  return shape;
}

// A product over no elements is zero; cuBLASLt takes no empty matrices.
std::unique_ptr<Kernel> make_zero_fill(int64_t bytes) {
  return make_kernel("kerascnn zero fill", [bytes](const KernelArgs& args) {
    if (bytes == 0) return;
    zero_memory(args.outputs[0], bytes, args.stream);
  });
}

// cuBLASLt multiplies integers only where both matrices are contiguous along the summed axis, and
// in words of 4. A second matrix that lies the other way is transposed first.
std::unique_ptr<Kernel> plan_integer_gemm(const GemmShape& given, int rank) {
  if (given.transpose_a || given.k % 4 != 0 || given.n % 4 != 0) return nullptr;
  if (given.batch > 1 && !given.transpose_b) return nullptr;
  GemmShape shape = given;
  shape.transpose_b = true;
  auto gemm = std::make_shared<CublasLtGemm>("integer_matmul", Context::current(), DType::Int8,
                                             shape, GemmEpilogue::None, /*allow_tf32=*/false, rank);
  if (!gemm->has_algorithm()) return nullptr;
  const int64_t copy_offset = ceil_div(gemm->workspace_bytes(), 256) * 256;
  const int64_t copy_bytes = given.transpose_b ? 0 : given.k * given.n;
  return make_kernel(
      gemm->description() + (given.transpose_b ? "" : " behind a transposition"),
      [=](const KernelArgs& args) {
        const auto stream = static_cast<cudaStream_t>(args.stream);
        const void* b = args.inputs[1];
        if (!given.transpose_b) {
          void* const copy = static_cast<char*>(args.workspace) + copy_offset;
          launch_transpose(DType::Int8, b, copy, given.k, given.n, stream);
          b = copy;
        }
        gemm->run(args.inputs[0], b, nullptr, args.outputs[0], args.workspace, stream);
      },
      copy_offset + copy_bytes);
}

}  // namespace

std::unique_ptr<Kernel> plan_matmul(const PlanRequest& request) {
  const GemmShape shape = gemm_shape(request);
  const DType dtype = request.inputs[0].dtype;
  const int64_t bytes = num_bytes(request.outputs[0]);
  if (bytes == 0 || shape.k == 0) return make_zero_fill(bytes);
  std::vector<KernelCandidate> candidates = {
      {"kerascnn small product",
       [&] { return plan_small_matmul("matmul", dtype, shape, request.allow_tf32); }},
      {"kerascnn narrow product", [&] { return plan_narrow_matmul("matmul", dtype, shape); }}};
  add_gemm_candidates(candidates, [&](int rank) -> std::unique_ptr<Kernel> {
    auto gemm = std::make_shared<CublasLtGemm>("matmul", Context::current(), dtype, shape,
                                               GemmEpilogue::None, request.allow_tf32, rank);
    if (!gemm->has_algorithm()) return nullptr;
    return make_kernel(
        gemm->description(),
        [gemm](const KernelArgs& args) {
          gemm->run(args.inputs[0], args.inputs[1], nullptr, args.outputs[0], args.workspace,
                    static_cast<cudaStream_t>(args.stream));
        },
        gemm->workspace_bytes());
  });
  return choose_fastest(request, shape.num_products(), candidates);
}

std::unique_ptr<Kernel> plan_integer_matmul(const PlanRequest& request) {
  const GemmShape shape = gemm_shape(request);
  const int64_t bytes = num_bytes(request.outputs[0]);
  if (bytes == 0 || shape.k == 0) return make_zero_fill(bytes);
  const KernelCandidate own{"kerascnn integer product",
                            [&] { return plan_own_integer_matmul(shape); }};
  std::vector<KernelCandidate> candidates;
  // For few products, the library's transposition and start are not worth it.
  if (shape.num_products() < kFewProducts) candidates.push_back(own);
  add_gemm_candidates(candidates, [&](int rank) { return plan_integer_gemm(shape, rank); });
  if (shape.num_products() >= kFewProducts) candidates.push_back(own);
  return choose_fastest(request, shape.num_products(), candidates);
}

}  // namespace kerascnn::cuda
