// Sums over processes that go to one process each, and tensors that come from one, by NCCL: tensor
// by tensor in one group, and in place where the memory plan lets it. Together they move as many
// bytes as all_reduce.
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
__global__ void scale_owned(const T* x, T* y, int64_t size, double by) {
  begin_kernel();
  const auto factor = static_cast<compute_t<T>>(by);
  for (int64_t i = first_item(); i < size; i += item_step()) {
    y[i] = factor == 0 ? static_cast<T>(factor)
                       : static_cast<T>(static_cast<compute_t<T>>(x[i]) * factor);
  }
}

struct OwnedTensors {
  std::vector<int64_t> sizes;
  std::vector<int64_t> owners;
  DType dtype = DType::Float32;
  int64_t processes = 1;
};

OwnedTensors describe_owned(const PlanRequest& request, const char* op) {
  OwnedTensors tensors;
  for (const TensorSpec& spec : request.inputs) tensors.sizes.push_back(num_elements(spec.shape));
  tensors.owners = request.attributes.get_ints("owners");
  tensors.dtype = request.inputs[0].dtype;
  tensors.processes = request.attributes.get_int("processes");
  (void)collectives_for(op, tensors.processes);
  if (tensors.processes > 1) check_joined(op, tensors.processes);
  return tensors;
}

template <typename T>
void scale_one(const OwnedTensors& tensors, size_t i, const void* from, void* to, double by,
               cudaStream_t stream) {
  if (tensors.sizes[i] == 0) return;
  scale_owned<T><<<grid_for(tensors.sizes[i]), kThreads, 0, stream>>>(
      static_cast<const T*>(from), static_cast<T*>(to), tensors.sizes[i], by);
  check_launch("reduce_to_owners");
}

void copy_one(const OwnedTensors& tensors, size_t i, const KernelArgs& args) {
  const size_t bytes = static_cast<size_t>(tensors.sizes[i]) * itemsize(tensors.dtype);
  if (bytes == 0 || args.outputs[i] == args.inputs[i]) return;
  check(cudaMemcpyAsync(args.outputs[i], args.inputs[i], bytes, cudaMemcpyDeviceToDevice,
                        static_cast<cudaStream_t>(args.stream)),
        "cudaMemcpyAsync");
}

std::vector<OwnedMemory> memory_of(const OwnedTensors& tensors, const KernelArgs& args) {
  std::vector<OwnedMemory> memory;
  for (size_t i = 0; i < tensors.sizes.size(); ++i) {
    memory.push_back(
        {args.inputs[i], args.outputs[i], tensors.sizes[i], static_cast<int>(tensors.owners[i])});
  }
  return memory;
}

template <typename T>
class NcclReduceToOwners final : public Kernel {
 public:
  NcclReduceToOwners(OwnedTensors tensors, double factor)
      : tensors_(std::move(tensors)), factor_(factor) {}

  void run(const KernelArgs& args) override {
    const auto stream = static_cast<cudaStream_t>(args.stream);
    const int64_t rank = rank_among("reduce_to_owners", tensors_.processes);
    const bool averages = factor_ == 1.0 / static_cast<double>(tensors_.processes);
    reduce_to_owners("reduce_to_owners", tensors_.processes, memory_of(tensors_, args),
                     tensors_.dtype, averages, stream);
    for (size_t i = 0; i < tensors_.sizes.size(); ++i) {
      if (tensors_.owners[i] != rank) {
        copy_one(tensors_, i, args);
      } else if (!averages && factor_ != 1) {
        scale_one<T>(tensors_, i, args.outputs[i], args.outputs[i], factor_, stream);
      }
    }
    if (!is_capturing(stream)) note_meetings(1, stream);
  }

  bool meets_processes() const override { return true; }
  std::string description() const override { return "NCCL reduce_to_owners"; }

 private:
  OwnedTensors tensors_;
  double factor_;
};

class NcclBroadcastFromOwners final : public Kernel {
 public:
  explicit NcclBroadcastFromOwners(OwnedTensors tensors) : tensors_(std::move(tensors)) {}

  void run(const KernelArgs& args) override {
    const auto stream = static_cast<cudaStream_t>(args.stream);
    broadcast_from_owners("broadcast_from_owners", tensors_.processes, memory_of(tensors_, args),
                          tensors_.dtype, stream);
    if (!is_capturing(stream)) note_meetings(1, stream);
  }

  bool meets_processes() const override { return true; }
  std::string description() const override { return "NCCL broadcast_from_owners"; }

 private:
  OwnedTensors tensors_;
};

}  // namespace

std::unique_ptr<Kernel> plan_reduce_to_owners(const PlanRequest& request) {
  OwnedTensors tensors = describe_owned(request, "reduce_to_owners");
  const double factor = request.attributes.get_double("factor");
  return dispatch_floating(
      "reduce_to_owners", tensors.dtype, [&]<typename T>(Type<T>) -> std::unique_ptr<Kernel> {
        if (tensors.processes > 1) {
          return std::make_unique<NcclReduceToOwners<T>>(std::move(tensors), factor);
        }
        return make_kernel("kerascnn reduce_to_owners of one process",
                           [tensors, factor](const KernelArgs& args) {
                             for (size_t i = 0; i < tensors.sizes.size(); ++i) {
                               scale_one<T>(tensors, i, args.inputs[i], args.outputs[i], factor,
                                            static_cast<cudaStream_t>(args.stream));
                             }
                           });
      });
}

std::unique_ptr<Kernel> plan_broadcast_from_owners(const PlanRequest& request) {
  OwnedTensors tensors = describe_owned(request, "broadcast_from_owners");
  if (tensors.processes > 1) {
    return std::make_unique<NcclBroadcastFromOwners>(std::move(tensors));
  }
  return make_kernel("kerascnn broadcast_from_owners of one process",
                     [tensors](const KernelArgs& args) {
                       for (size_t i = 0; i < tensors.sizes.size(); ++i) copy_one(tensors, i, args);
                     });
}

}  // namespace kerascnn::cuda
