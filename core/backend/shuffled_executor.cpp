#include "core/backend/shuffled_executor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <random>

#include "core/backend/dependencies.h"
#include "core/base/env.h"
#include "core/base/error.h"
#include "core/memory/poison.h"

namespace kerascnn {
namespace {

// Instructions of so many steps are mixed.
constexpr int64_t kMixedSteps = 4;

class ShuffledExecutor : public Executor {
 public:
  ShuffledExecutor(Backend& backend, ArenaSteps arenas, std::mt19937 random)
      : backend_(backend), arenas_(std::move(arenas)), random_(random) {}

  void run(int64_t steps) override {
    for (; steps > 0; steps -= std::min(steps, kMixedSteps)) {
      const int64_t mixed = std::min(steps, kMixedSteps);
      for (int32_t index : random_order(dependencies(mixed), random_)) {
        run_one(instruction_at(arenas_, mixed, index));
      }
    }
  }

 private:
  const Dependencies& dependencies(int64_t steps) {
    auto [found, is_new] = dependencies_.try_emplace(steps);
    if (is_new) found->second = find_dependencies(arenas_, steps);
    return found->second;
  }

  void run_one(const Instruction& instruction) {
    try {
      if (poisons_memory()) {
        for (const MemoryRange& range : overwritten_memory(instruction)) {
          backend_.fill(const_cast<void*>(range.data), kPoison, range.bytes);
        }
      }
      const CurrentCall current(instruction.call);
      backend_.launch(*instruction.kernel, {instruction.inputs, instruction.outputs,
                                            instruction.workspace, backend_.stream()});
      backend_.synchronize();
    } catch (const OutOfMemoryError& error) {
      throw OutOfMemoryError(message(instruction.label, ": ", error.what()), error.requested,
                             error.allocated, error.cached, error.free);
    } catch (const Error& error) {
      throw DeviceError(message(instruction.label, ": ", error.what()));
    }
  }

  Backend& backend_;
  ArenaSteps arenas_;
  std::mt19937 random_;
  std::map<int64_t, Dependencies> dependencies_;  // by steps
};

// The seed counts up with each draw, so that no two programs and executors of a process are alike.
std::mt19937 next_random(int64_t seed) {
  static std::atomic<uint32_t> draws{0};
  std::seed_seq sequence{static_cast<uint32_t>(seed), ++draws};
  return std::mt19937(sequence);
}

}  // namespace

int64_t shuffle_seed() { return env_positive("KERASCNN_SHUFFLE_KERNELS", 0); }

int64_t shuffled_unshared_bytes(const Backend& backend) {
  const std::array<int64_t, 4> choices = {backend.max_unshared_bytes(), int64_t{16} << 10,
                                          int64_t{1} << 20, 0};
  return choices[next_random(shuffle_seed())() % choices.size()];
}

int64_t shuffled_arenas() {
  return 1 + static_cast<int64_t>(next_random(shuffle_seed())() % (kMixedSteps + 1));
}

std::unique_ptr<Executor> make_shuffled_executor(Backend& backend, ArenaSteps arenas,
                                                 int64_t seed) {
  return std::make_unique<ShuffledExecutor>(backend, std::move(arenas), next_random(seed));
}

}  // namespace kerascnn
