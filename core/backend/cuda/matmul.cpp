// matmul: own kernels where the product is small or a matrix has few columns, else cuBLASLt.
#include "core/backend/cuda/cublaslt_gemm.h"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/narrow_matmul.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/autotune.h"
#include "core/backend/cuda/small_matmul.h"

namespace kerascnn::cuda {

std::unique_ptr<Kernel> plan_matmul(const PlanRequest& request) {
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

  const DType dtype = request.inputs[0].dtype;
  const int64_t bytes = num_bytes(request.outputs[0]);
  if (bytes == 0 || shape.k == 0) {
    // A product over no elements is zero; cuBLASLt takes no empty matrices.
    return make_kernel("kerascnn zero fill", [bytes](const KernelArgs& args) {
      if (bytes == 0) return;
      zero_memory(args.outputs[0], bytes, args.stream);
    });
  }
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

}  // namespace kerascnn::cuda
