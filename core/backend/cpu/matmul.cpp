// matmul over equal batch axes, with either operand transposed.
#include "core/backend/cpu/matmul.h"

#include "core/backend/cpu/gemm.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/backend/cpu/widen.h"
#ifdef KERASCNN_WITH_ONEDNN
#include "core/backend/cpu/onednn/primitives.h"
#endif

namespace kerascnn::cpu {

MatmulSizes matmul_sizes(const PlanRequest& request) {
  MatmulSizes sizes;
  const Shape& a = request.inputs[0].shape;
  const Shape& out = request.outputs[0].shape;
  sizes.transpose_a = request.attributes.get_bool("transpose_a");
  sizes.transpose_b = request.attributes.get_bool("transpose_b");
  sizes.m = out[out.size() - 2];
  sizes.n = out[out.size() - 1];
  sizes.k = a[sizes.transpose_a ? a.size() - 2 : a.size() - 1];
  for (size_t d = 0; d + 2 < out.size(); ++d) sizes.batch *= out[d];
  return sizes;
}

namespace {

// Threads share the rows of one batch entry in blocks, so that one large product uses all threads
// too.
constexpr int64_t kBlockRows = 16;

template <typename T>
std::unique_ptr<Kernel> make_generic_matmul(const MatmulSizes& sizes) {
  return make_kernel("kerascnn generic gemm", [sizes](const KernelArgs& args) {
    const int64_t m = sizes.m, n = sizes.n, k = sizes.k;
    const int64_t blocks = (m + kBlockRows - 1) / kBlockRows;
    parallel_tasks(sizes.batch * blocks, [&](int64_t task, int64_t) {
      const int64_t entry = task / blocks;
      const int64_t row = task % blocks * kBlockRows;
      const T* a = input<T>(args, 0) + entry * m * k;
      const T* b = input<T>(args, 1) + entry * k * n;
      const MatrixView<T> left =
          sizes.transpose_a ? MatrixView<T>{a + row, 1, m} : MatrixView<T>{a + row * k, k, 1};
      const MatrixView<T> right =
          sizes.transpose_b ? MatrixView<T>{b, 1, k} : MatrixView<T>{b, n, 1};
      gemm(std::min(kBlockRows, m - row), n, k, left, right,
           output<T>(args, 0) + (entry * m + row) * n, n, false);
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> plan_matmul(const PlanRequest& request) {
  const MatmulSizes sizes = matmul_sizes(request);
  const DType dtype = request.inputs[0].dtype;
#ifdef KERASCNN_WITH_ONEDNN
  const bool is_empty = sizes.batch * sizes.m * sizes.n * sizes.k == 0;
  if (dtype == DType::Float32 && !is_empty) return onednn::plan_matmul(request, sizes);
  if (dtype == DType::BFloat16 && !is_empty) {
    if (auto tiles = onednn::plan_matmul_bfloat16(request, sizes)) return tiles;
  }
#endif
  if (is_narrow(dtype)) return plan_in_float32(request, plan_matmul);
  return dispatch<float, double>(
      request, dtype, [&]<typename T>(Type<T>) { return make_generic_matmul<T>(sizes); });
}

}  // namespace kerascnn::cpu
