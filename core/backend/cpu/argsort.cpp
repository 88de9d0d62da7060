// argsort sorts each line by itself, on one thread.
#include "core/ops/argsort.h"

#include <algorithm>
#include <numeric>

#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/ops/geometry.h"

namespace kerascnn::cpu {

// x (outer, length, inner) -> y of the same shape. A line's positions are sorted in the workspace,
// (outer * inner, length), where they lie side by side.
std::unique_ptr<Kernel> plan_argsort(const PlanRequest& request) {
  const TensorSpec& spec = request.inputs[0];
  const AxisGeometry g = axis_geometry(spec.shape, request.attributes.get_int("axis"));
  const bool descending = request.attributes.get_bool("descending");
  return dispatch_number(request, spec.dtype, [&]<typename T>(Type<T>) {
    return make_kernel(
        "kerascnn argsort",
        [g, descending](const KernelArgs& args) {
          using C = compute_t<T>;
          const T* x = input<T>(args, 0);
          int32_t* y = output<int32_t>(args, 0);
          parallel_each(g.outer * g.inner, g.length, [&](int64_t line) {
            const int64_t first = line / g.inner * g.length * g.inner + line % g.inner;
            int32_t* order = static_cast<int32_t*>(args.workspace) + line * g.length;
            std::iota(order, order + g.length, 0);
            std::sort(order, order + g.length, [&](int32_t i, int32_t j) {
              return comes_before(static_cast<C>(x[first + i * g.inner]), i,
                                  static_cast<C>(x[first + j * g.inner]), j, descending);
            });
            for (int64_t i = 0; i < g.length; ++i) y[first + i * g.inner] = order[i];
          });
        },
        align_up(size_of(spec) * static_cast<int64_t>(sizeof(int32_t))));
  });
}

}  // namespace kerascnn::cpu
