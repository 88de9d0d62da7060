// dense = activation(x @ w + bias). An own kernel computes it where the product is small or has few
// columns, otherwise one cuBLASLt product, with the bias in its epilogue where nothing else
// follows.
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/products/bias_activation.h"
#include "core/backend/cuda/products/cublaslt_gemm.h"
#include "core/backend/cuda/products/narrow_matmul.h"
#include "core/backend/cuda/products/small_matmul.h"
#include "core/backend/cuda/runtime/autotune.h"

namespace kerascnn::cuda {

std::unique_ptr<Kernel> plan_dense(const PlanRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  const bool has_bias = request.inputs.size() == 3;
  const ActivationCall activation = fused_activation("dense", request.attributes);
  GemmShape shape;
  shape.m = request.inputs[0].shape[0];
  shape.k = request.inputs[0].shape[1];
  shape.n = request.inputs[1].shape[1];
  const auto finish = [=](const KernelArgs& args) {
    launch_bias_activation(dtype, args.outputs[0], has_bias ? args.inputs[2] : nullptr, shape.m,
                           shape.n, activation, static_cast<cudaStream_t>(args.stream));
  };
  const int64_t bytes = num_bytes(request.outputs[0]);
  if (bytes == 0 || shape.k == 0) {
    return make_kernel("kerascnn zero fill", [=](const KernelArgs& args) {
      if (bytes == 0) return;
      zero_memory(args.outputs[0], bytes, args.stream);
      if (has_bias || activation.kind != Activation::Linear) finish(args);
    });
  }

  // cuBLASLt's epilogues don't exist for float64, and its relu gives 0 for NaN. There bias and
  // activation follow in a kernel of their own.
  const bool in_epilogue =
      has_bias && dtype != DType::Float64 && activation.kind == Activation::Linear;
  const bool finishes = !in_epilogue && (has_bias || activation.kind != Activation::Linear);
  std::vector<KernelCandidate> candidates = {
      {"kerascnn small product",
       [&] {
         return plan_small_matmul("dense", dtype, shape, request.allow_tf32, has_bias, activation);
       }},
      {"kerascnn narrow product",
       [&] { return plan_narrow_matmul("dense", dtype, shape, has_bias, activation); }}};
  add_gemm_candidates(candidates, [&](int rank) -> std::unique_ptr<Kernel> {
    auto gemm = std::make_shared<CublasLtGemm>(
        "dense", Context::current(), dtype, shape,
        in_epilogue ? GemmEpilogue::Bias : GemmEpilogue::None, request.allow_tf32, rank);
    if (!gemm->has_algorithm()) return nullptr;
    return make_kernel(
        gemm->description(),
        [=](const KernelArgs& args) {
          gemm->run(args.inputs[0], args.inputs[1], in_epilogue ? args.inputs[2] : nullptr,
                    args.outputs[0], args.workspace, static_cast<cudaStream_t>(args.stream));
          if (finishes) finish(args);
        },
        gemm->workspace_bytes());
  });
  return choose_fastest(request, shape.num_products(), candidates);
}

}  // namespace kerascnn::cuda
