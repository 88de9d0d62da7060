// The CPU as a backend: main memory, kernels that have finished when they return.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/memory/caching_allocator.h"

namespace kerascnn {

class CpuBackend : public Backend {
 public:
  CpuBackend();

  Device device() const override { return {}; }
  std::string description() const override;  // "AMD EPYC 9654, 2 threads"
  Allocator& allocator() override { return allocator_; }
  std::span<const KernelTableRow> kernel_table() const override;
  std::span<const Fusion* const> fusions() const override;
  RegionLimits region_limits(const Shape& domain) const override;
  std::unique_ptr<Executor> make_executor(ArenaSteps arenas, bool single_steps) override;
  LaunchStats launch_stats() const override;

  void launch(Kernel& kernel, const KernelArgs& args) override;

  void copy_from_host(void* destination, const void* source, int64_t bytes) override;
  void copy_to_host(void* destination, const void* source, int64_t bytes) override;
  void copy(void* destination, const void* source, int64_t bytes) override;
  void fill(void* destination, int byte, int64_t bytes) override;
  void copy_all_to_host(std::span<const HostCopy> copies, double patience) override;
  void synchronize(double) override {}
  void* stream() override { return nullptr; }
  StoragePtr allocate_host(int64_t bytes) override;
  std::unique_ptr<Fence> make_fence() override;
  void copy_beside(std::span<const HostCopy> copies, Fence* after, Fence* done) override;
  void hold_back(Fence&) override {}
  void wait_for_stream(intptr_t) override {}
  void make_stream_wait(intptr_t) override {}

 private:
  friend class CpuExecutor;

  CachingAllocator allocator_;
  std::atomic<int64_t> kernel_launches_{0};
  std::atomic<int64_t> program_runs_{0};
};

CpuBackend& cpu_backend();

}  // namespace kerascnn
