// dense: x (n, k) times weights (k, m), plus bias (m,), through an activation.
#include "core/backend/cpu/epilogue.h"
#include "core/backend/cpu/gemm.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/backend/cpu/widen.h"
#ifdef KERASCNN_WITH_ONEDNN
#include "core/backend/cpu/onednn/primitives.h"
#endif

namespace kerascnn::cpu {

namespace {

constexpr int64_t kDenseRows = 16;

template <typename T>
std::unique_ptr<Kernel> make_generic_dense(const PlanRequest& request) {
  const int64_t rows = request.outputs[0].shape[0];
  const int64_t columns = request.outputs[0].shape[1];
  const int64_t depth = request.inputs[1].shape[0];
  const bool has_bias = request.inputs.size() > 2;
  const ActivationCall activation = fused_activation("dense", request.attributes);
  return make_kernel("kerascnn generic gemm", [=](const KernelArgs& args) {
    parallel_tasks((rows + kDenseRows - 1) / kDenseRows, [&](int64_t task, int64_t) {
      const int64_t row = task * kDenseRows;
      const int64_t count = std::min(kDenseRows, rows - row);
      T* out = output<T>(args, 0) + row * columns;
      gemm(count, columns, depth, MatrixView<T>{input<T>(args, 0) + row * depth, depth, 1},
           MatrixView<T>{input<T>(args, 1), columns, 1}, out, columns, false);
      apply_epilogue(has_bias ? input<T>(args, 2) : nullptr, activation, out, count, columns);
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> plan_dense(const PlanRequest& request) {
  const DType dtype = request.inputs[0].dtype;
#ifdef KERASCNN_WITH_ONEDNN
  const bool is_empty = size_of(request.inputs[0]) * size_of(request.inputs[1]) == 0;
  if (dtype == DType::Float32 && !is_empty) return onednn::plan_dense(request);
  if (dtype == DType::BFloat16 && !is_empty) {
    if (auto tiles = onednn::plan_dense_bfloat16(request)) return tiles;
  }
#endif
  if (is_narrow(dtype)) return plan_in_float32(request, plan_dense);
  return dispatch<float, double>(
      request, dtype, [&]<typename T>(Type<T>) { return make_generic_dense<T>(request); });
}

}  // namespace kerascnn::cpu
