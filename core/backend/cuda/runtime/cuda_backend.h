// The backend of one GPU: its memory, its stream, its kernels and its graph executor.
#pragma once

#include <memory>
#include <mutex>

#include "core/backend/backend.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/graph_executor.h"
#include "core/backend/cuda/runtime/host_staging.h"

namespace kerascnn::cuda {

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int index);

  Device device() const override { return {DeviceType::Cuda, context_.index()}; }
  void activate() override;
  std::string description() const override;
  Allocator& allocator() override { return *allocator_; }
  std::span<const KernelTableRow> kernel_table() const override;
  std::span<const Fusion* const> fusions() const override;
  RegionLimits region_limits(const Shape& domain) const override;
  int64_t least_generated_size() const override;
  std::unique_ptr<Executor> make_executor(ArenaSteps arenas, bool single_steps) override;
  LaterRuns* later_runs() override;
  int64_t max_unshared_bytes() const override;
  int64_t max_arenas(int64_t arena_bytes) const override;
  LaunchStats launch_stats() const override;
  void prepare_profile() override;

  void launch(Kernel& kernel, const KernelArgs& args) override;
  void copy_from_host(void* destination, const void* source, int64_t bytes) override;
  void copy_to_host(void* destination, const void* source, int64_t bytes) override;
  void copy(void* destination, const void* source, int64_t bytes) override;
  void fill(void* destination, int byte, int64_t bytes) override;
  void copy_all_to_host(std::span<const HostCopy> copies, double patience) override;
  void synchronize(double patience) override;
  void* stream() override { return context_.stream(); }
  StoragePtr allocate_host(int64_t bytes) override;
  std::unique_ptr<Fence> make_fence() override;
  void copy_beside(std::span<const HostCopy> copies, Fence* after, Fence* done) override;
  void hold_back(Fence& fence) override;
  void begin_sharing() override { context_.later_runs().stop(); }
  void wait_for_stream(intptr_t stream) override;
  void make_stream_wait(intptr_t stream) override;
  Device device_of(const void* data) override;

 private:
  bool make_landing(int64_t bytes);

  Context& context_;
  std::unique_ptr<Allocator> allocator_;
  LaunchCounters counters_;
  HostStaging staging_;
  std::mutex landing_mutex_;
  StoragePtr landing_;
};

}  // namespace kerascnn::cuda
