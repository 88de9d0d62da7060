// integer_matmul: oneDNN computes it where the processor adds products of bytes in 32 bits, own
// kernels elsewhere.
#include "core/backend/cpu/cpu_features.h"
#include "core/backend/cpu/integer_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/matmul.h"
#include "core/backend/cpu/parallel.h"
#ifdef KERASCNN_WITH_ONEDNN
#include "core/backend/cpu/onednn/primitives.h"
#endif

namespace kerascnn::cpu {

namespace {

constexpr int64_t kIntegerRows = 96;  // of the result, per task

std::unique_ptr<Kernel> make_own_kernel(const MatmulSizes& sizes) {
  const IntegerKernels& kernels = integer_kernels();
  const int64_t pairs = (sizes.k + 1) / 2;
  const int64_t panels = (sizes.n + kernels.panel - 1) / kernels.panel;
  const int64_t left_words = sizes.batch * sizes.m * pairs;
  const int64_t right_words = sizes.batch * panels * kernels.panel * pairs;
  const int64_t right_offset = align_up(left_words * 4);
  const auto run = [=, &kernels](const KernelArgs& args) {
    const int64_t m = sizes.m, n = sizes.n, k = sizes.k;
    char* const workspace = static_cast<char*>(args.workspace);
    auto* const left = reinterpret_cast<uint32_t*>(workspace);
    auto* const right = reinterpret_cast<uint32_t*>(workspace + right_offset);
    parallel_for(sizes.batch * m, kElementGrain / (k + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end;) {
        const int64_t entry = row / m;
        const int64_t last = std::min(end, (entry + 1) * m);
        const int8_t* const a = input<int8_t>(args, 0) + entry * m * k;
        kernels.pack_rows(
            sizes.transpose_a ? MatrixView<int8_t>{a, 1, m} : MatrixView<int8_t>{a, k, 1}, k,
            left + entry * m * pairs, row - entry * m, last - entry * m);
        row = last;
      }
    });
    parallel_tasks(sizes.batch * panels, [&](int64_t task, int64_t) {
      const int64_t entry = task / panels, panel = task % panels;
      const int8_t* const b = input<int8_t>(args, 1) + entry * k * n;
      kernels.pack_panels(
          sizes.transpose_b ? MatrixView<int8_t>{b, 1, k} : MatrixView<int8_t>{b, n, 1}, k, n,
          right + entry * panels * kernels.panel * pairs, panel, panel + 1);
    });
    const int64_t blocks = (m + kIntegerRows - 1) / kIntegerRows;
    parallel_tasks(sizes.batch * panels * blocks, [&](int64_t task, int64_t) {
      const int64_t entry = task / (panels * blocks);
      const int64_t column = task / blocks % panels * kernels.panel;
      const int64_t row = task % blocks * kIntegerRows;
      kernels.multiply(left + (entry * m + row) * pairs,
                       right + (entry * panels * kernels.panel + column) * pairs,
                       std::min(kIntegerRows, m - row), std::min(kernels.panel, n - column), pairs,
                       output<int32_t>(args, 0) + (entry * m + row) * n + column, n);
    });
  };
  return make_kernel(std::string("kerascnn integer product, ") + kernels.name, run,
                     right_offset + align_up(right_words * 4));
}

}  // namespace

std::unique_ptr<Kernel> plan_integer_matmul(const PlanRequest& request) {
  const MatmulSizes sizes = matmul_sizes(request);
#ifdef KERASCNN_WITH_ONEDNN
  const bool has_work = sizes.batch * sizes.m * sizes.n * sizes.k > 0;
  if (has_work && instruction_set() == InstructionSet::Avx512) {
    if (auto kernel = onednn::plan_integer_matmul(request, sizes)) return kernel;
  }
#endif
  return make_own_kernel(sizes);
}

}  // namespace kerascnn::cpu
