// Rounds many tensors to 16 bits, or widens them: their elements are cut into ranges that threads
// share.
#include <algorithm>

#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"

namespace kerascnn::cpu {
namespace {

// Casts `count` elements from `first` on of tensor i.
template <typename Narrow>
void cast_range(const KernelArgs& args, size_t i, int64_t first, int64_t count, bool widens) {
  if (widens) {
    widen(input<Narrow>(args, i) + first, output<float>(args, i) + first, count);
  } else {
    narrow(input<float>(args, i) + first, output<Narrow>(args, i) + first, count);
  }
}

}  // namespace

std::unique_ptr<Kernel> plan_cast_all(const PlanRequest& request) {
  std::vector<int64_t> firsts = {0};  // of each tensor, its first element's number among all
  for (const TensorSpec& spec : request.inputs) firsts.push_back(firsts.back() + size_of(spec));
  const bool widens = request.outputs[0].dtype == DType::Float32;
  const bool is_half =
      (widens ? request.inputs[0].dtype : request.outputs[0].dtype) == DType::Float16;
  return make_kernel("kerascnn cast_all", [firsts, widens, is_half](const KernelArgs& args) {
    parallel_for(firsts.back(), kElementGrain, [&](int64_t begin, int64_t end) {
      for (size_t i = 0; i + 1 < firsts.size(); ++i) {
        const int64_t from = std::max(begin, firsts[i]) - firsts[i];
        const int64_t count = std::min(end, firsts[i + 1]) - firsts[i] - from;
        if (count <= 0) continue;
        if (is_half) {
          cast_range<Half>(args, i, from, count, widens);
        } else {
          cast_range<BFloat16>(args, i, from, count, widens);
        }
      }
    });
  });
}

}  // namespace kerascnn::cpu
