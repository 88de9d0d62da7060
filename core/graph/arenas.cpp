#include "core/graph/arenas.h"

#include <vector>

#include "core/backend/dependencies.h"

namespace kerascnn {
namespace {

constexpr double kLeastShare = 0.5;

// For each instruction of two steps: one bit for each instruction of the first step that comes
// before it.
class FirstStep {
 public:
  FirstStep(const Dependencies& dependencies, size_t size) : words_((size + 63) / 64) {
    before_.assign(dependencies.size() * words_, 0);
    for (size_t i = 0; i < dependencies.size(); ++i) {
      uint64_t* before = &before_[i * words_];
      for (int32_t predecessor : dependencies[i]) {
        const auto at = static_cast<size_t>(predecessor);
        const uint64_t* further = &before_[at * words_];
        for (size_t word = 0; word < words_; ++word) before[word] |= further[word];
        if (at < size) before[at / 64] |= uint64_t{1} << (at % 64);
      }
    }
  }

  bool is_before(size_t of_first_step, size_t index) const {
    return (before_[index * words_ + of_first_step / 64] >> (of_first_step % 64) & 1) != 0;
  }

 private:
  size_t words_;
  std::vector<uint64_t> before_;
};

int64_t bytes_inside(const std::vector<MemoryRange>& ranges, const MemoryRange& memory) {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data);
  int64_t bytes = 0;
  for (const MemoryRange& range : ranges) {
    const auto at = reinterpret_cast<uintptr_t>(range.data);
    if (at >= begin && at < begin + static_cast<uintptr_t>(memory.bytes)) bytes += range.bytes;
  }
  return bytes;
}

}  // namespace

double independent_share(const ArenaSteps& arenas, const MemoryRange& memory) {
  const std::vector<Instruction>& step = arenas[0];
  const FirstStep first(find_dependencies(arenas, 2), step.size());
  int64_t independent = 0, all = 0;
  for (size_t i = 0; i < step.size(); ++i) {
    const int64_t bytes =
        bytes_inside(step[i].reads, memory) + bytes_inside(step[i].writes, memory);
    all += bytes;
    if (!first.is_before(i, step.size() + i)) independent += bytes;
  }
  return all == 0 ? 0.0 : static_cast<double>(independent) / static_cast<double>(all);
}

int64_t choose_arenas(const ArenaSteps& arenas, const MemoryRange& memory, int64_t most) {
  if (most <= 1 || arenas[0].empty()) return 1;
  return independent_share(arenas, memory) >= kLeastShare ? most : 1;
}

}  // namespace kerascnn
