// Rounds many tensors to 16 bits: their elements are cut into ranges that threads share.
#include <algorithm>

#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"

namespace kerascnn::cpu {

std::unique_ptr<Kernel> plan_cast_all(const PlanRequest& request) {
  std::vector<int64_t> firsts = {0};  // of each tensor, its first element's number among all
  for (const TensorSpec& spec : request.inputs) firsts.push_back(firsts.back() + size_of(spec));
  const DType dtype = request.outputs[0].dtype;
  return make_kernel("kerascnn cast_all", [firsts, dtype](const KernelArgs& args) {
    parallel_for(firsts.back(), kElementGrain, [&](int64_t begin, int64_t end) {
      for (size_t i = 0; i + 1 < firsts.size(); ++i) {
        const int64_t from = std::max(begin, firsts[i]) - firsts[i];
        const int64_t count = std::min(end, firsts[i + 1]) - firsts[i] - from;
        if (count <= 0) continue;
        const float* x = input<float>(args, i) + from;
        if (dtype == DType::Float16) {
          narrow(x, output<Half>(args, i) + from, count);
        } else {
          narrow(x, output<BFloat16>(args, i) + from, count);
        }
      }
    });
  });
}

}  // namespace kerascnn::cpu
