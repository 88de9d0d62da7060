#include "core/backend/cpu/cpu_backend.h"

#include <cstring>
#include <fstream>

#include "core/backend/cpu/fusions/fusions.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/backend/cpu/reductions.h"
#include "core/backend/cpu/region_tiles.h"
#include "core/backend/dependencies.h"
#include "core/backend/shuffled_executor.h"
#include "core/base/env.h"
#include "core/base/error.h"
#include "core/memory/cpu_memory.h"
#include "core/memory/poison.h"

namespace kerascnn {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

// Work is done when the call that asked for it returns.
class CpuFence final : public Fence {
 public:
  void record() override {}
  bool passed() override { return true; }
  void wait() override {}
};

void poison_overwritten(const Instruction& instruction) {
  for (const MemoryRange& range : overwritten_memory(instruction)) {
    std::memset(const_cast<void*>(range.data), kPoison, range.bytes);
  }
}

void run_logged(Kernel& kernel, const KernelArgs& args, const CallInfoPtr& call) {
  const int64_t start = profile_clock();
  kernel.run(args);
  CallLog::get().add(call, start, profile_clock());
}

}  // namespace

class CpuExecutor : public Executor {
 public:
  CpuExecutor(CpuBackend& backend, std::vector<Instruction> instructions)
      : backend_(backend), instructions_(std::move(instructions)) {}

  void run(int64_t steps) override {
    ++backend_.program_runs_;
    const bool profiles = is_profiling();
    const Instruction* current = nullptr;
    try {
      for (int64_t step = 0; step < steps; ++step) {
        for (const Instruction& instruction : instructions_) {
          current = &instruction;
          if (poisons_memory()) poison_overwritten(instruction);
          const KernelArgs args{instruction.inputs, instruction.outputs, instruction.workspace,
                                nullptr};
          if (profiles) [[unlikely]] {
            run_logged(*instruction.kernel, args, instruction.call);
          } else {
            instruction.kernel->run(args);
          }
        }
      }
    } catch (const OutOfMemoryError& error) {
      throw OutOfMemoryError(message(current->label, ": ", error.what()), error.requested,
                             error.allocated, error.cached, error.free);
    } catch (const Error& error) {
      throw DeviceError(message(current->label, ": ", error.what()));
    }
  }

 private:
  CpuBackend& backend_;
  std::vector<Instruction> instructions_;
};

CpuBackend::CpuBackend() : allocator_(Device{}, std::make_unique<CpuMemory>()) {}

std::string CpuBackend::description() const {
  const int threads = cpu::num_threads();
  return message(processor_name(), ", ", threads, threads == 1 ? " thread" : " threads");
}

std::span<const KernelTableRow> CpuBackend::kernel_table() const {
#define KERASCNN_ROW(op, ...) {#op, cpu::plan_##op},
  static constexpr KernelTableRow rows[] = {KERASCNN_KERNEL_OP_LIST(KERASCNN_ROW)};
#undef KERASCNN_ROW
  return rows;
}

// Asked for with each program, so that one process can have programs of all kinds.
RegionLimits CpuBackend::region_limits(const Shape& domain) const {
  if (!env_flag("KERASCNN_CPU_REGIONS", true)) return {};
  if (!env_flag("KERASCNN_CPU_REGIONS", false)) {
    // Fewer elements stay in a cache between kernels, and a variable that one of these writes is
    // written in place. Shorter rows are not worth the calls for each of them, and longer ones
    // would be gone through once for each level of reductions.
    constexpr int64_t kLeastSize = 1 << 14;
    return {.rows = num_elements(domain) >= kLeastSize,
            .min_row = cpu::kShortRow,
            .max_row = cpu::kMostWholeRow};
  }
  return {.rows = true,
          .columns = true,
          .dropout = true,
          .max_inputs = 24,
          .max_outputs = 16,
          .max_ops = 96,
          .max_constants = 96,
          .recomputes = true};
}

std::span<const Fusion* const> CpuBackend::fusions() const { return cpu::fusions(); }

std::unique_ptr<Executor> CpuBackend::make_executor(ArenaSteps arenas, bool /*single_steps*/) {
  if (const int64_t seed = shuffle_seed(); seed > 0) {
    return make_shuffled_executor(*this, std::move(arenas), seed);
  }
  return std::make_unique<CpuExecutor>(*this, std::move(arenas.front()));
}

LaunchStats CpuBackend::launch_stats() const {
  return {
      .kernel_launches = kernel_launches_, .graph_launches = program_runs_, .graph_captures = 0};
}

void CpuBackend::launch(Kernel& kernel, const KernelArgs& args) {
  ++kernel_launches_;
  if (is_profiling() && CurrentCall::get() != nullptr) {
    run_logged(kernel, args, CurrentCall::get());
  } else {
    kernel.run(args);
  }
}

void CpuBackend::copy_from_host(void* destination, const void* source, int64_t bytes) {
  copy(destination, source, bytes);
}

void CpuBackend::copy_to_host(void* destination, const void* source, int64_t bytes) {
  copy(destination, source, bytes);
}

void CpuBackend::copy_all_to_host(std::span<const HostCopy> copies, double) {
  for (const HostCopy& one : copies) copy(one.destination, one.source, one.bytes);
}

void CpuBackend::copy(void* destination, const void* source, int64_t bytes) {
  if (bytes > 0) std::memmove(destination, source, bytes);
}

void CpuBackend::fill(void* destination, int byte, int64_t bytes) {
  if (bytes > 0) std::memset(destination, byte, bytes);
}

StoragePtr CpuBackend::allocate_host(int64_t bytes) { return allocate_storage(bytes, device()); }

std::unique_ptr<Fence> CpuBackend::make_fence() { return std::make_unique<CpuFence>(); }

void CpuBackend::copy_beside(std::span<const HostCopy> copies, Fence*, Fence*) {
  for (const HostCopy& one : copies) copy(one.destination, one.source, one.bytes);
}

CpuBackend& cpu_backend() {
  // It is never destroyed: tensors of a script's last lines outlive the static objects of this
  // library.
  static CpuBackend& instance = *new CpuBackend;
  return instance;
}

}  // namespace kerascnn
