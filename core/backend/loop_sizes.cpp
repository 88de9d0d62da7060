#include "core/backend/loop_sizes.h"

#include <algorithm>

namespace kerascnn {
namespace {

constexpr size_t kMaxSizes = 8;
// If a size takes this many turns more than needed, it is worth a graph of its own.
constexpr int64_t kManyTurns = 2;

int64_t total_turns(const std::vector<LoopRun>& runs) {
  int64_t turns = 0;
  for (const LoopRun& run : runs) turns += run.turns;
  return turns;
}

}  // namespace

std::vector<LoopRun> LoopSizes::plan(int64_t steps) {
  const std::vector<LoopRun> runs = split(steps);
  const int64_t least = (steps + most_ - 1) / most_;
  if (sizes_.size() == kMaxSizes || total_turns(runs) < least + kManyTurns) return runs;
  if (steps < 2 * most_ && ++occasions_ < 2) return runs;
  occasions_ = 0;
  // The steps that the larger sizes leave over, where these are many; otherwise all of them.
  const int64_t left = runs.back().size == 1 ? runs.back().turns : 0;
  const int64_t size = best_size(left > kManyTurns ? left : steps);
  const auto at = std::lower_bound(sizes_.begin(), sizes_.end(), size, std::greater<>());
  if (at == sizes_.end() || *at != size) sizes_.insert(at, size);
  return split(steps);
}

std::vector<LoopRun> LoopSizes::split(int64_t steps) const {
  std::vector<LoopRun> runs;
  for (int64_t size : sizes_) {
    if (steps < size) continue;
    runs.push_back({size, steps / size});
    steps %= size;
  }
  return runs;
}

// The size with the fewest turns, counting those of single steps for the rest.
int64_t LoopSizes::best_size(int64_t steps) const {
  if (steps <= most_) return steps;
  int64_t best = most_;
  const auto turns = [&](int64_t size) { return steps / size + steps % size; };
  for (int64_t size = most_ - 1; size >= std::max<int64_t>(2, most_ / 2); --size) {
    if (turns(size) < turns(best)) best = size;
  }
  return best;
}

}  // namespace kerascnn
