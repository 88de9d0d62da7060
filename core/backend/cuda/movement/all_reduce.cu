// Sums over processes: of one process only, where they are products. Between GPUs nothing moves
// bytes yet, and planning says so.
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"

namespace kerascnn::cuda {
namespace {

template <typename T>
__global__ void multiply(const T* x, T* y, int64_t size, double by) {
  begin_kernel();
  const auto factor = static_cast<compute_t<T>>(by);
  for (int64_t i = first_item(); i < size; i += item_step()) {
    y[i] = factor == 0 ? static_cast<T>(factor)
                       : static_cast<T>(static_cast<compute_t<T>>(x[i]) * factor);
  }
}

}  // namespace

std::unique_ptr<Kernel> plan_all_reduce(const PlanRequest& request) {
  const int64_t processes = request.attributes.get_int("processes");
  if (processes > 1) {
    throw DeviceError(message("all_reduce: it is for ", processes,
                              " processes, and kerascnn moves nothing between the GPUs of several "
                              "processes; train on their CPUs: keras.config.set_device('cpu')"));
  }
  std::vector<int64_t> sizes;
  for (const TensorSpec& spec : request.inputs) sizes.push_back(num_elements(spec.shape));
  const double by =
      request.attributes.get_double("scale") * request.attributes.get_double("factor");
  return dispatch_floating("all_reduce", request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_kernel("kerascnn all_reduce of one process", [sizes, by](const KernelArgs& args) {
      for (size_t i = 0; i < sizes.size(); ++i) {
        multiply<T><<<grid_for(sizes[i]), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
            input<T>(args, i), output<T>(args, i), sizes[i], by);
        check_launch("all_reduce");
      }
    });
  });
}

}  // namespace kerascnn::cuda
