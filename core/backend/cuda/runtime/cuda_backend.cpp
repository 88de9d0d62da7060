#include "core/backend/cuda/runtime/cuda_backend.h"

#include <algorithm>
#include <cstring>

#include "core/backend/cuda/fusions/fusions.h"
#include "core/backend/cuda/kernel_table.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/regions/generated_region.h"
#include "core/backend/cuda/runtime/cupti_tracer.h"
#include "core/backend/cuda/runtime/fence.h"
#include "core/backend/cuda/runtime/waiting.h"
#include "core/backend/guarded_kernel.h"
#include "core/backend/shuffled_executor.h"
#include "core/base/env.h"
#include "core/base/error.h"
#include "core/memory/caching_allocator.h"
#include "core/ops/definitions.h"

namespace kerascnn::cuda {
namespace {

// More gain nothing: by then the GPU is full.
constexpr int64_t kMaxArenas = 4;
constexpr int64_t kPartOfCache = 4;
// Results up to this size come by way of page-locked memory.
constexpr int64_t kMostLandingBytes = 4 << 20;
constexpr int64_t kLeastLandingBytes = 64 << 10;
constexpr int64_t kHostAlignment = 64;

class DeviceMemory final : public RawMemory {
 public:
  explicit DeviceMemory(int index) : index_(index) {}

  void* allocate(int64_t bytes) override {
    use_device(index_);
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return nullptr;
    }
    check(status, "cudaMalloc");
    return data;
  }

  void free(void* data) noexcept override { (void)cudaFree(data); }

  int64_t available() const override {
    use_device(index_);
    size_t free_bytes = 0, total_bytes = 0;
    check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    return static_cast<int64_t>(free_bytes);
  }

  // Left out while the stream is captured, as the graph would repeat it with each launch.
  void fill(void* data, int byte, int64_t bytes) override {
    use_device(index_);
    const cudaStream_t stream = Context::of_device(index_).stream();
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
    if (status != cudaStreamCaptureStatusNone) return;
    check(cudaMemsetAsync(data, byte, static_cast<size_t>(bytes), stream), "cudaMemsetAsync");
  }

 private:
  int index_;
};

// A stream in the numbering of the DLPack protocol: 1 is the legacy default stream, 2 the
// per-thread one, larger numbers are handles. 0 would be ambiguous and stands for the legacy
// stream, as PyTorch reads it.
cudaStream_t dlpack_stream(intptr_t stream) {
  if (stream == 0 || stream == 1) return cudaStreamLegacy;
  if (stream == 2) return cudaStreamPerThread;
  return reinterpret_cast<cudaStream_t>(stream);
}

void order(cudaStream_t first, cudaStream_t second) {
  if (first == second) return;
  const Event event = make_event();
  check(cudaEventRecord(event.get(), first), "cudaEventRecord");
  check(cudaStreamWaitEvent(second, event.get(), 0), "cudaStreamWaitEvent");
}

bool uses_graphs() { return env_flag("KERASCNN_CUDA_GRAPHS", true) && !checks_kernels(); }

}  // namespace

CudaBackend::CudaBackend(int index)
    : context_(Context::of_device(index)), staging_(*this, context_) {
  allocator_ = std::make_unique<CachingAllocator>(device(), std::make_unique<DeviceMemory>(index));
}

void CudaBackend::activate() { use_device(context_.index()); }

std::string CudaBackend::description() const {
  const cudaDeviceProp& p = context_.properties();
  const double gib = static_cast<double>(p.totalGlobalMem) / (1 << 30);
  return message(p.name, ", ", static_cast<int64_t>(gib * 10) / 10.0, " GiB, compute capability ",
                 p.major, ".", p.minor);
}

std::span<const KernelTableRow> CudaBackend::kernel_table() const { return cuda::kernel_table(); }

std::span<const Fusion* const> CudaBackend::fusions() const { return cuda::fusions(); }

RegionLimits CudaBackend::region_limits(const Shape& domain) const {
  use_device(context_.index());
  return cuda::region_limits(domain);
}

int64_t CudaBackend::least_generated_size() const { return cuda::least_generated_size(); }

std::unique_ptr<Executor> CudaBackend::make_executor(ArenaSteps arenas, bool single_steps) {
  activate();
  if (const int64_t seed = shuffle_seed(); seed > 0) {
    return make_shuffled_executor(*this, std::move(arenas), seed);
  }
  if (uses_graphs()) {
    return std::make_unique<GraphExecutor>(context_, std::move(arenas), counters_, single_steps);
  }
  return std::make_unique<LaunchExecutor>(context_, std::move(arenas.front()), counters_);
}

LaterRuns* CudaBackend::later_runs() {
  return uses_graphs() && shuffle_seed() == 0 ? &context_.later_runs() : nullptr;
}

// Twice what the L2 cache holds, as the buffers of a step are never all in use at once. Beyond, it
// is faster to write again to memory that was just read, and kernels fill the GPU one by one.
int64_t CudaBackend::max_unshared_bytes() const {
  const bool has_branches = env_flag("KERASCNN_CUDA_GRAPHS", true) && uses_branches();
  return has_branches ? 2 * static_cast<int64_t>(context_.properties().l2CacheSize) : 0;
}

// There are as many arenas as a part of the L2 cache holds: where intermediate results are larger,
// the kernels of one step fill the GPU.
int64_t CudaBackend::max_arenas(int64_t arena_bytes) const {
  if (max_unshared_bytes() == 0) return 1;
  if (const int64_t wanted = env_positive("KERASCNN_CUDA_ARENAS", 0); wanted > 0) return wanted;
  const auto bytes = static_cast<int64_t>(context_.properties().l2CacheSize) / kPartOfCache;
  return std::clamp<int64_t>(bytes / std::max<int64_t>(arena_bytes, 1), 1, kMaxArenas);
}

LaunchStats CudaBackend::launch_stats() const {
  return {counters_.kernel_launches, counters_.graph_launches, counters_.graph_captures};
}

void CudaBackend::prepare_profile() {
  activate();
  CuptiTracer::get().ensure_started();
}

void CudaBackend::launch(Kernel& kernel, const KernelArgs& args) {
  activate();
  if (traces_calls() && CurrentCall::get() != nullptr) {
    const TracedCall traced(CurrentCall::get());
    kernel.run(args);
  } else {
    kernel.run(args);
  }
  ++counters_.kernel_launches;
}

void CudaBackend::copy_from_host(void* destination, const void* source, int64_t bytes) {
  if (bytes == 0) return;
  activate();
  if (staging_.copy(destination, source, bytes)) return;
  synchronize(kUsualPatience);  // the copy would wait for the stream's work by spinning
  check(cudaMemcpyAsync(destination, source, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                        context_.stream()),
        "cudaMemcpyAsync to the device");
  // Pinned sources are read after the call returns.
  check(cudaStreamSynchronize(context_.stream()), "cudaStreamSynchronize");
}

void CudaBackend::copy_to_host(void* destination, const void* source, int64_t bytes) {
  const HostCopy copy{destination, source, bytes};
  copy_all_to_host({&copy, 1}, kUsualPatience);
}

void CudaBackend::copy_all_to_host(std::span<const HostCopy> copies, double patience) {
  int64_t bytes = 0;
  for (const HostCopy& copy : copies) bytes += (copy.bytes + kHostAlignment - 1) & -kHostAlignment;
  if (bytes == 0) return;
  const std::lock_guard lock(landing_mutex_);
  if (bytes > kMostLandingBytes || !make_landing(bytes)) {
    synchronize(patience);  // copies to ordinary memory would wait for the stream's work spinning
    for (const HostCopy& copy : copies) {
      check(cudaMemcpyAsync(copy.destination, copy.source, static_cast<size_t>(copy.bytes),
                            cudaMemcpyDeviceToHost, context_.stream()),
            "cudaMemcpyAsync to the host");
    }
    check(cudaStreamSynchronize(context_.stream()), "cudaStreamSynchronize");
    return;
  }
  activate();
  char* const landing = static_cast<char*>(landing_->data());
  const auto for_each = [&](auto visit) {
    int64_t offset = 0;
    for (const HostCopy& copy : copies) {
      visit(copy, landing + offset);
      offset += (copy.bytes + kHostAlignment - 1) & -kHostAlignment;
    }
  };
  for_each([&](const HostCopy& copy, char* place) {
    if (copy.bytes == 0) return;
    check(cudaMemcpyAsync(place, copy.source, static_cast<size_t>(copy.bytes),
                          cudaMemcpyDeviceToHost, context_.stream()),
          "cudaMemcpyAsync to the host");
  });
  wait_for(context_.stream(), patience);
  for_each([](const HostCopy& copy, const char* place) {
    std::memcpy(copy.destination, place, static_cast<size_t>(copy.bytes));
  });
}

// Page-locked memory that results come to: copies there are enqueued behind the work that makes
// them, where a copy to ordinary memory would have to be waited for twice. False where the system
// gives none.
bool CudaBackend::make_landing(int64_t bytes) {
  return grow_host_memory(*this, landing_, bytes, kLeastLandingBytes);
}

void CudaBackend::copy(void* destination, const void* source, int64_t bytes) {
  if (bytes == 0) return;
  activate();
  check(cudaMemcpyAsync(destination, source, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                        context_.stream()),
        "cudaMemcpyAsync on the device");
}

void CudaBackend::fill(void* destination, int byte, int64_t bytes) {
  if (bytes == 0) return;
  activate();
  check(cudaMemsetAsync(destination, byte, static_cast<size_t>(bytes), context_.stream()),
        "cudaMemsetAsync");
}

void CudaBackend::synchronize(double patience) {
  activate();
  wait_for(context_.stream(), patience);
}

StoragePtr CudaBackend::allocate_host(int64_t bytes) {
  activate();
  void* data = nullptr;
  // Never empty: cudaHostAlloc gives no address for nothing.
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  const cudaError_t status = cudaHostAlloc(&data, size, cudaHostAllocDefault);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw OutOfMemoryError(
        message("the system gives no ", bytes, " bytes of page-locked memory for copies to ",
                device_name(device()), "; close other programs, or use smaller batches"),
        bytes, 0, 0, 0);
  }
  check(status, "cudaHostAlloc");
  return std::make_shared<Storage>(data, bytes, Device{}, [data] { (void)cudaFreeHost(data); });
}

std::unique_ptr<Fence> CudaBackend::make_fence() {
  activate();
  return std::make_unique<CudaFence>(context_);
}

void CudaBackend::copy_beside(std::span<const HostCopy> copies, Fence* after, Fence* done) {
  activate();
  const cudaStream_t stream = context_.copy_stream();
  if (after != nullptr) static_cast<CudaFence&>(*after).hold_back(stream);
  for (const HostCopy& copy : copies) {
    if (copy.bytes == 0) continue;
    check(cudaMemcpyAsync(copy.destination, copy.source, static_cast<size_t>(copy.bytes),
                          cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync beside the stream");
  }
  if (done != nullptr) static_cast<CudaFence&>(*done).record_on(stream);
}

void CudaBackend::hold_back(Fence& fence) {
  activate();
  static_cast<CudaFence&>(fence).hold_back(context_.stream());
}

void CudaBackend::wait_for_stream(intptr_t stream) {
  activate();
  if (stream == -1) {
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return;
  }
  order(dlpack_stream(stream), context_.quiet_stream());
}

void CudaBackend::make_stream_wait(intptr_t stream) {
  activate();
  order(context_.stream(), dlpack_stream(stream));
}

Device CudaBackend::device_of(const void* data) {
  activate();
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  if (attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged) {
    throw DeviceError("the address is not one of memory on a GPU");
  }
  return {DeviceType::Cuda, attributes.device};
}

}  // namespace kerascnn::cuda
