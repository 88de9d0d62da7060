// Sums over processes that go to one process each, and tensors that come from one, by NCCL in one
// group, and in place where the memory plan lets it. Small tensors of one owner are brought
// together in the workspace. Together the two move as many bytes as all_reduce.
#include "core/backend/collectives.h"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/movement/packed_tensors.cuh"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/backend/cuda/runtime/handles.h"
#include "core/backend/cuda/runtime/nccl.h"
#include "core/backend/message_packing.h"

namespace kerascnn::cuda {
namespace {

constexpr const char* kReduceToOwners = "reduce_to_owners";
constexpr const char* kBroadcastFromOwners = "broadcast_from_owners";

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

void copy_one(const OwnedTensors& tensors, size_t i, const KernelArgs& args) {
  const size_t bytes = static_cast<size_t>(tensors.sizes[i]) * itemsize(tensors.dtype);
  if (bytes == 0 || args.outputs[i] == args.inputs[i]) return;
  check(cudaMemcpyAsync(args.outputs[i], args.inputs[i], bytes, cudaMemcpyDeviceToDevice,
                        static_cast<cudaStream_t>(args.stream)),
        "cudaMemcpyAsync");
}

// What both ops do: pack, call NCCL, unpack.
template <typename T>
class NcclOwnedKernel : public Kernel {
 public:
  explicit NcclOwnedKernel(OwnedTensors tensors)
      : tensors_(std::move(tensors)),
        packing_(pack_small_tensors(tensors_.sizes, tensors_.owners, sizeof(T))) {}

  int64_t workspace_bytes() const override {
    return packing_.size * static_cast<int64_t>(sizeof(T));
  }
  bool meets_processes() const override { return true; }

 protected:
  // The packed tensors for whose owner the condition holds, with the memory that `data` returns.
  std::vector<MovedTensor> moved(const auto& is_chosen, const auto& data) const {
    std::vector<MovedTensor> tensors;
    for (const PackedPlace& packed : packing_.packed) {
      const size_t i = packed.tensor;
      if (!is_chosen(tensors_.owners[i])) continue;
      tensors.push_back({data(i), tensors_.sizes[i], packed.place});
    }
    return tensors;
  }

  void pack(const char* op, const KernelArgs& args, const auto& is_chosen) const {
    // Packing only reads.
    const auto data = [&](size_t i) { return const_cast<void*>(args.inputs[i]); };
    launch_moves<T, true>(op, moved(is_chosen, data), args.workspace, 1,
                          static_cast<cudaStream_t>(args.stream));
  }

  void unpack(const char* op, const KernelArgs& args, double by, const auto& is_chosen) const {
    const auto data = [&](size_t i) { return args.outputs[i]; };
    launch_moves<T, false>(op, moved(is_chosen, data), args.workspace, by,
                           static_cast<cudaStream_t>(args.stream));
  }

  std::vector<OwnedMemory> memory(const KernelArgs& args) const {
    std::vector<OwnedMemory> memory;
    for (const size_t i : packing_.alone) {
      memory.push_back({args.inputs[i], args.outputs[i], tensors_.sizes[i],
                        static_cast<int>(tensors_.owners[i])});
    }
    for (const PackedMessage& message : packing_.messages) {
      T* const at = static_cast<T*>(args.workspace) + message.place;
      memory.push_back({at, at, message.size, static_cast<int>(message.group)});
    }
    return memory;
  }

  OwnedTensors tensors_;
  MessagePacking packing_;
};

template <typename T>
class NcclReduceToOwners final : public NcclOwnedKernel<T> {
 public:
  NcclReduceToOwners(OwnedTensors tensors, double factor)
      : NcclOwnedKernel<T>(std::move(tensors)), factor_(factor) {}

  void run(const KernelArgs& args) override {
    const OwnedTensors& tensors = this->tensors_;
    const auto stream = static_cast<cudaStream_t>(args.stream);
    const int64_t rank = rank_among(kReduceToOwners, tensors.processes);
    const auto is_own = [&](int64_t owner) { return owner == rank; };
    const bool averages = factor_ == 1.0 / static_cast<double>(tensors.processes);
    const double by = averages ? 1 : factor_;
    this->pack(kReduceToOwners, args, [](int64_t) { return true; });
    reduce_to_owners(kReduceToOwners, tensors.processes, this->memory(args), tensors.dtype,
                     averages, stream);
    this->unpack(kReduceToOwners, args, by, is_own);
    for (const size_t i : this->packing_.alone) {
      if (!is_own(tensors.owners[i]) || by == 1) continue;
      launch_multiply<T>(kReduceToOwners, output<T>(args, i), output<T>(args, i), tensors.sizes[i],
                         by, stream);
    }
    for (size_t i = 0; i < tensors.sizes.size(); ++i) {
      if (!is_own(tensors.owners[i])) copy_one(tensors, i, args);
    }
    if (!is_capturing(stream)) note_meetings(1, stream);
  }

  std::string description() const override { return "NCCL reduce_to_owners"; }

 private:
  double factor_;
};

template <typename T>
class NcclBroadcastFromOwners final : public NcclOwnedKernel<T> {
 public:
  explicit NcclBroadcastFromOwners(OwnedTensors tensors) : NcclOwnedKernel<T>(std::move(tensors)) {}

  void run(const KernelArgs& args) override {
    const OwnedTensors& tensors = this->tensors_;
    const auto stream = static_cast<cudaStream_t>(args.stream);
    const int64_t rank = rank_among(kBroadcastFromOwners, tensors.processes);
    this->pack(kBroadcastFromOwners, args, [&](int64_t owner) { return owner == rank; });
    broadcast_from_owners(kBroadcastFromOwners, tensors.processes, this->memory(args),
                          tensors.dtype, stream);
    this->unpack(kBroadcastFromOwners, args, 1, [&](int64_t owner) { return owner != rank; });
    for (const PackedPlace& packed : this->packing_.packed) {
      if (tensors.owners[packed.tensor] == rank) copy_one(tensors, packed.tensor, args);
    }
    if (!is_capturing(stream)) note_meetings(1, stream);
  }

  std::string description() const override { return "NCCL broadcast_from_owners"; }
};

}  // namespace

std::unique_ptr<Kernel> plan_reduce_to_owners(const PlanRequest& request) {
  OwnedTensors tensors = describe_owned(request, kReduceToOwners);
  const double factor = request.attributes.get_double("factor");
  return dispatch_floating(
      kReduceToOwners, tensors.dtype, [&]<typename T>(Type<T>) -> std::unique_ptr<Kernel> {
        if (tensors.processes > 1) {
          return std::make_unique<NcclReduceToOwners<T>>(std::move(tensors), factor);
        }
        return make_kernel("kerascnn reduce_to_owners of one process",
                           [sizes = tensors.sizes, factor](const KernelArgs& args) {
                             for (size_t i = 0; i < sizes.size(); ++i) {
                               launch_multiply(kReduceToOwners, input<T>(args, i),
                                               output<T>(args, i), sizes[i], factor,
                                               static_cast<cudaStream_t>(args.stream));
                             }
                           });
      });
}

std::unique_ptr<Kernel> plan_broadcast_from_owners(const PlanRequest& request) {
  OwnedTensors tensors = describe_owned(request, kBroadcastFromOwners);
  if (tensors.processes == 1) {
    return make_kernel("kerascnn broadcast_from_owners of one process",
                       [tensors](const KernelArgs& args) {
                         for (size_t i = 0; i < tensors.sizes.size(); ++i) {
                           copy_one(tensors, i, args);
                         }
                       });
  }
  return dispatch_floating(
      kBroadcastFromOwners, tensors.dtype, [&]<typename T>(Type<T>) -> std::unique_ptr<Kernel> {
        return std::make_unique<NcclBroadcastFromOwners<T>>(std::move(tensors));
      });
}

}  // namespace kerascnn::cuda
