// Sums over the processes that train one model. NCCL adds up, tensor by tensor in one group, and in
// place where the memory plan lets it: a sum has no memory of its own, so in a captured step it
// waits for the gradients that it adds up and for nothing else, beside the rest of the backward
// pass.
#include "core/backend/collectives.h"
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/backend/cuda/runtime/handles.h"
#include "core/backend/cuda/runtime/nccl.h"

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

template <typename T>
void multiply_all(const std::vector<int64_t>& sizes, double by, const KernelArgs& args) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) continue;
    multiply<T><<<grid_for(sizes[i]), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
        input<T>(args, i), output<T>(args, i), sizes[i], by);
    check_launch("all_reduce");
  }
}

template <typename T>
class NcclAllReduce final : public Kernel {
 public:
  NcclAllReduce(std::vector<int64_t> sizes, DType dtype, const Attributes& attributes)
      : sizes_(std::move(sizes)),
        dtype_(dtype),
        processes_(attributes.get_int("processes")),
        scale_(attributes.get_double("scale")),
        factor_(attributes.get_double("factor")) {}

  void run(const KernelArgs& args) override {
    const auto stream = static_cast<cudaStream_t>(args.stream);
    const bool averages = scale_ == 1 && factor_ == 1.0 / static_cast<double>(processes_);
    const bool multiplies = !averages && scale_ * factor_ != 1;
    if (multiplies) multiply_all<T>(sizes_, scale_ * factor_, args);
    std::vector<SummedMemory> memory;
    for (size_t i = 0; i < sizes_.size(); ++i) {
      memory.push_back({multiplies ? args.outputs[i] : args.inputs[i], args.outputs[i], sizes_[i]});
    }
    sum_over_processes("all_reduce", processes_, memory, dtype_, averages, stream);
    if (!is_capturing(stream)) note_meetings(1, stream);
  }

  bool meets_processes() const override { return true; }
  std::string description() const override { return "NCCL all_reduce"; }

 private:
  std::vector<int64_t> sizes_;
  DType dtype_;
  int64_t processes_;
  double scale_;
  double factor_;
};

}  // namespace

std::unique_ptr<Kernel> plan_all_reduce(const PlanRequest& request) {
  std::vector<int64_t> sizes;
  for (const TensorSpec& spec : request.inputs) sizes.push_back(num_elements(spec.shape));
  const int64_t processes = request.attributes.get_int("processes");
  (void)collectives_for("all_reduce", processes);
  if (processes > 1) check_joined("all_reduce", processes);
  const DType dtype = request.inputs[0].dtype;
  return dispatch_floating(
      "all_reduce", dtype, [&]<typename T>(Type<T>) -> std::unique_ptr<Kernel> {
        if (processes > 1) {
          return std::make_unique<NcclAllReduce<T>>(sizes, dtype, request.attributes);
        }
        const double by =
            request.attributes.get_double("scale") * request.attributes.get_double("factor");
        return make_kernel(
            "kerascnn all_reduce of one process",
            [sizes, by](const KernelArgs& args) { multiply_all<T>(sizes, by, args); });
      });
}

}  // namespace kerascnn::cuda
