// Sums over the processes that train one model. NCCL adds up, in one group, and in place where the
// memory plan lets it: in a captured step a sum waits for the gradients that it adds up and for
// nothing else, beside the rest of the backward pass. Small tensors are brought together in the
// workspace and summed as one.
#include "core/backend/collectives.h"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/movement/packed_tensors.cuh"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/handles.h"
#include "core/backend/cuda/runtime/nccl.h"
#include "core/backend/message_packing.h"

namespace kerascnn::cuda {
namespace {

constexpr const char* kAllReduce = "all_reduce";

template <typename T>
class NcclAllReduce final : public Kernel {
 public:
  NcclAllReduce(std::vector<int64_t> sizes, DType dtype, const Attributes& attributes)
      : sizes_(std::move(sizes)),
        dtype_(dtype),
        processes_(attributes.get_int("processes")),
        scale_(attributes.get_double("scale")),
        factor_(attributes.get_double("factor")),
        packing_(pack_small_tensors(sizes_, std::vector<int64_t>(sizes_.size(), 0), sizeof(T))) {}

  void run(const KernelArgs& args) override {
    const auto stream = static_cast<cudaStream_t>(args.stream);
    const bool averages = scale_ == 1 && factor_ == 1.0 / static_cast<double>(processes_);
    const double by = averages ? 1 : scale_ * factor_;
    std::vector<SummedMemory> memory;
    for (const size_t i : packing_.alone) {
      if (by != 1) {
        launch_multiply(kAllReduce, input<T>(args, i), output<T>(args, i), sizes_[i], by, stream);
      }
      memory.push_back({by != 1 ? args.outputs[i] : args.inputs[i], args.outputs[i], sizes_[i]});
    }
    std::vector<MovedTensor> from, to;
    for (const PackedPlace& packed : packing_.packed) {
      const size_t i = packed.tensor;
      // Packing only reads.
      from.push_back({const_cast<void*>(args.inputs[i]), sizes_[i], packed.place});
      to.push_back({args.outputs[i], sizes_[i], packed.place});
    }
    launch_moves<T, true>(kAllReduce, from, args.workspace, by, stream);
    for (const PackedMessage& message : packing_.messages) {
      T* const sum = static_cast<T*>(args.workspace) + message.place;
      memory.push_back({sum, sum, message.size});
    }
    sum_over_processes(kAllReduce, processes_, memory, dtype_, averages, stream);
    launch_moves<T, false>(kAllReduce, to, args.workspace, 1, stream);
    if (!is_capturing(stream)) note_meetings(1, stream);
  }

  int64_t workspace_bytes() const override {
    return packing_.size * static_cast<int64_t>(sizeof(T));
  }
  bool meets_processes() const override { return true; }
  std::string description() const override { return "NCCL all_reduce"; }

 private:
  std::vector<int64_t> sizes_;
  DType dtype_;
  int64_t processes_;
  double scale_;
  double factor_;
  MessagePacking packing_;
};

}  // namespace

std::unique_ptr<Kernel> plan_all_reduce(const PlanRequest& request) {
  std::vector<int64_t> sizes;
  for (const TensorSpec& spec : request.inputs) sizes.push_back(num_elements(spec.shape));
  const int64_t processes = request.attributes.get_int("processes");
  (void)collectives_for(kAllReduce, processes);
  if (processes > 1) check_joined(kAllReduce, processes);
  const DType dtype = request.inputs[0].dtype;
  return dispatch_floating(kAllReduce, dtype, [&]<typename T>(Type<T>) -> std::unique_ptr<Kernel> {
    if (processes > 1) {
      return std::make_unique<NcclAllReduce<T>>(sizes, dtype, request.attributes);
    }
    const double by =
        request.attributes.get_double("scale") * request.attributes.get_double("factor");
    return make_kernel("kerascnn all_reduce of one process", [sizes, by](const KernelArgs& args) {
      for (size_t i = 0; i < sizes.size(); ++i) {
        launch_multiply(kAllReduce, input<T>(args, i), output<T>(args, i), sizes[i], by,
                        static_cast<cudaStream_t>(args.stream));
      }
    });
  });
}

}  // namespace kerascnn::cuda
