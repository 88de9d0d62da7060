// Sums over the processes that train one model. NCCL adds up, tensor by tensor in one group, and in
// place where the memory plan lets it: in a captured step a sum waits for the gradients that it
// adds up and for nothing else, beside the rest of the backward pass. Each tensor of a group takes
// NCCL about two microseconds, so small ones are brought together in the workspace and summed as
// one.
#include "core/backend/collectives.h"
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/tensor_table.cuh"
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

// What is brought together: tensors of up to so many bytes.
constexpr int64_t kSmallBytes = 64 << 10;
constexpr int64_t kStretch = kThreads * 8;  // elements that a block moves
// The table stays under 4 KiB, the limit for kernel arguments that every driver has.
constexpr size_t kMostTensors = 120;

struct PackedTensor {
  void* data;
  int64_t size;
  int64_t place;      // of its first element among all that are packed
  int first_stretch;  // its number among all stretches of the table
};

struct PackedTensors {
  PackedTensor entries[kMostTensors];
  int count;
};
static_assert(sizeof(PackedTensors) < 3968);

// From the tensors into `packed`, multiplied on the way, or back.
template <typename T, bool kPacks>
__global__ void __launch_bounds__(kThreads)
    move_packed(const __grid_constant__ PackedTensors table, T* packed, double by) {
  // Nothing writes a kernel's arguments, so reading them need not wait.
  const PackedTensor& entry = table.entries[find_tensor(table, static_cast<int>(blockIdx.x))];
  begin_kernel();
  const auto factor = static_cast<compute_t<T>>(by);
  T* const tensor = static_cast<T*>(entry.data);
  T* const place = packed + entry.place;
  const int64_t first = (static_cast<int>(blockIdx.x) - entry.first_stretch) * kStretch;
  const int64_t end = min(first + kStretch, entry.size);
  for (int64_t i = first + threadIdx.x; i < end; i += kThreads) {
    if (kPacks) {
      place[i] = factor == 0 ? static_cast<T>(factor)
                             : static_cast<T>(static_cast<compute_t<T>>(tensor[i]) * factor);
    } else {
      tensor[i] = place[i];
    }
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
        factor_(attributes.get_double("factor")) {
    for (size_t i = 0; i < sizes_.size(); ++i) {
      const int64_t bytes = sizes_[i] * static_cast<int64_t>(sizeof(T));
      if (bytes > 0) (bytes <= kSmallBytes ? small_ : large_).push_back(i);
    }
    if (small_.size() == 1) large_.push_back(small_[0]);
    if (small_.size() < 2) small_.clear();
    for (const size_t i : small_) packed_size_ += sizes_[i];
  }

  void run(const KernelArgs& args) override {
    const auto stream = static_cast<cudaStream_t>(args.stream);
    const bool averages = scale_ == 1 && factor_ == 1.0 / static_cast<double>(processes_);
    const double by = averages ? 1 : scale_ * factor_;
    std::vector<SummedMemory> memory;
    for (const size_t i : large_) {
      if (by != 1) {
        multiply<T><<<grid_for(sizes_[i]), kThreads, 0, stream>>>(
            input<T>(args, i), output<T>(args, i), sizes_[i], by);
        check_launch("all_reduce");
      }
      memory.push_back({by != 1 ? args.outputs[i] : args.inputs[i], args.outputs[i], sizes_[i]});
    }
    if (!small_.empty()) {
      move<true>(args, by);
      memory.push_back({args.workspace, args.workspace, packed_size_});
    }
    sum_over_processes("all_reduce", processes_, memory, dtype_, averages, stream);
    if (!small_.empty()) move<false>(args, by);
    if (!is_capturing(stream)) note_meetings(1, stream);
  }

  int64_t workspace_bytes() const override {
    return packed_size_ * static_cast<int64_t>(sizeof(T));
  }
  bool meets_processes() const override { return true; }
  std::string description() const override { return "NCCL all_reduce"; }

 private:
  template <bool kPacks>
  void move(const KernelArgs& args, double by) const {
    int64_t place = 0;
    for (size_t begin = 0; begin < small_.size(); begin += kMostTensors) {
      PackedTensors table{};
      table.count = static_cast<int>(std::min(kMostTensors, small_.size() - begin));
      int64_t stretches = 0;
      for (int i = 0; i < table.count; ++i) {
        const size_t tensor = small_[begin + static_cast<size_t>(i)];
        // Packing only reads.
        void* const data = kPacks ? const_cast<void*>(args.inputs[tensor]) : args.outputs[tensor];
        table.entries[i] = {data, sizes_[tensor], place, static_cast<int>(stretches)};
        place += sizes_[tensor];
        stretches += ceil_div(sizes_[tensor], kStretch);
      }
      move_packed<T, kPacks>
          <<<static_cast<unsigned>(stretches), kThreads, 0,
             static_cast<cudaStream_t>(args.stream)>>>(table, static_cast<T*>(args.workspace), by);
      check_launch("all_reduce");
    }
  }

  std::vector<int64_t> sizes_;
  DType dtype_;
  int64_t processes_;
  double scale_;
  double factor_;
  std::vector<size_t> small_, large_;  // places of tensors that are packed, and of others
  int64_t packed_size_ = 0;            // elements
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
