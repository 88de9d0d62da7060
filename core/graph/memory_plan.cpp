#include "core/graph/memory_plan.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace kerascnn {
namespace {

// Up to so many buffers, each is compared with every other.
constexpr size_t kExactLimit = 4096;

std::vector<size_t> sorted_indices(size_t count, auto&& less) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), less);
  return order;
}

// Places buffers in this order, each into the smallest gap between the buffers placed so far that
// live at the same time. The time is quadratic.
MemoryPlan plan_in_order(const std::vector<BufferLifetime>& buffers,
                         const std::vector<size_t>& order) {
  MemoryPlan plan{std::vector<int64_t>(buffers.size(), 0), 0};
  std::vector<size_t> placed;  // by offset
  for (size_t index : order) {
    const BufferLifetime& buffer = buffers[index];
    const int64_t bytes = align_buffer(buffer.bytes);
    if (bytes == 0) continue;
    int64_t best_offset = -1, best_gap = INT64_MAX, end = 0;
    for (size_t other : placed) {
      if (buffers[other].last < buffer.first || buffer.last < buffers[other].first) continue;
      const int64_t gap = plan.offsets[other] - end;
      if (gap >= bytes && gap < best_gap) {
        best_gap = gap;
        best_offset = end;
      }
      end = std::max(end, plan.offsets[other] + align_buffer(buffers[other].bytes));
    }
    plan.offsets[index] = best_offset >= 0 ? best_offset : end;
    plan.bytes = std::max(plan.bytes, plan.offsets[index] + bytes);
    const auto at = std::upper_bound(
        placed.begin(), placed.end(), plan.offsets[index],
        [&](int64_t offset, size_t other) { return offset < plan.offsets[other]; });
    placed.insert(at, index);
  }
  return plan;
}

// The most bytes that live at one time: no plan has less.
int64_t least_bytes(const std::vector<BufferLifetime>& buffers) {
  std::map<int64_t, int64_t> changes;
  for (const BufferLifetime& buffer : buffers) {
    changes[buffer.first] += align_buffer(buffer.bytes);
    changes[buffer.last + 1] -= align_buffer(buffer.bytes);
  }
  int64_t live = 0, most = 0;
  for (const auto& [time, change] : changes) most = std::max(most, live += change);
  return most;
}

// The best of three orders: the largest first, which wastes little where buffers live for a short
// time; those that live longest first, where lifetimes lie in one another as those of activations
// do, whose gradients come in the opposite order; and the largest of size and time together.
MemoryPlan plan_by_best_order(const std::vector<BufferLifetime>& buffers) {
  const auto time = [&](size_t i) { return buffers[i].last - buffers[i].first + 1; };
  const auto bytes = [&](size_t i) { return buffers[i].bytes; };
  const int64_t least = least_bytes(buffers);
  MemoryPlan best = plan_in_order(buffers, sorted_indices(buffers.size(), [&](size_t a, size_t b) {
                                    return bytes(a) > bytes(b);
                                  }));
  const auto try_order = [&](auto&& less) {
    if (best.bytes <= least) return;
    MemoryPlan plan = plan_in_order(buffers, sorted_indices(buffers.size(), less));
    if (plan.bytes < best.bytes) best = std::move(plan);
  };
  try_order([&](size_t a, size_t b) { return time(a) > time(b); });
  try_order([&](size_t a, size_t b) {
    return static_cast<double>(bytes(a)) * static_cast<double>(time(a)) >
           static_cast<double>(bytes(b)) * static_cast<double>(time(b));
  });
  return best;
}

// The free ranges of a block of memory that grows at its end.
class FreeRanges {
 public:
  int64_t take(int64_t bytes) {
    auto best = ranges_.end();
    for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
      if (range->second >= bytes && (best == ranges_.end() || range->second < best->second)) {
        best = range;
      }
    }
    if (best == ranges_.end()) return grow(bytes);
    const auto [offset, size] = *best;
    ranges_.erase(best);
    if (size > bytes) ranges_.emplace(offset + bytes, size - bytes);
    return offset;
  }

  void give_back(int64_t offset, int64_t bytes) {
    auto next = ranges_.lower_bound(offset);
    if (next != ranges_.end() && next->first == offset + bytes) {
      bytes += next->second;
      next = ranges_.erase(next);
    }
    if (next != ranges_.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + previous->second == offset) {
        previous->second += bytes;
        return;
      }
    }
    ranges_.emplace(offset, bytes);
  }

  int64_t total() const { return total_; }

 private:
  int64_t grow(int64_t bytes) {
    int64_t offset = total_;
    if (!ranges_.empty()) {
      const auto last = std::prev(ranges_.end());
      if (last->first + last->second == total_) {
        offset = last->first;
        ranges_.erase(last);
      }
    }
    total_ = offset + bytes;
    return offset;
  }

  std::map<int64_t, int64_t> ranges_;  // offset to size
  int64_t total_ = 0;
};

// Places buffers in order of time, as an allocator would, which is fast for graphs of any length.
MemoryPlan plan_by_time(const std::vector<BufferLifetime>& buffers) {
  MemoryPlan plan{std::vector<int64_t>(buffers.size(), 0), 0};
  const std::vector<size_t> starts = sorted_indices(
      buffers.size(), [&](size_t a, size_t b) { return buffers[a].first < buffers[b].first; });
  const std::vector<size_t> ends = sorted_indices(
      buffers.size(), [&](size_t a, size_t b) { return buffers[a].last < buffers[b].last; });
  FreeRanges free;
  size_t next_end = 0;
  for (size_t index : starts) {
    for (; buffers[ends[next_end]].last < buffers[index].first; ++next_end) {
      const size_t ended = ends[next_end];
      const int64_t bytes = align_buffer(buffers[ended].bytes);
      if (bytes > 0) free.give_back(plan.offsets[ended], bytes);
    }
    const int64_t bytes = align_buffer(buffers[index].bytes);
    if (bytes > 0) plan.offsets[index] = free.take(bytes);
  }
  plan.bytes = free.total();
  return plan;
}

MemoryPlan plan_shared(const std::vector<BufferLifetime>& buffers) {
  return buffers.size() <= kExactLimit ? plan_by_best_order(buffers) : plan_by_time(buffers);
}

}  // namespace

MemoryPlan plan_memory(const std::vector<BufferLifetime>& buffers, int64_t max_unshared_bytes) {
  if (max_unshared_bytes <= 0) return plan_shared(buffers);
  MemoryPlan plan{std::vector<int64_t>(buffers.size(), 0), 0};
  const std::vector<size_t> order = sorted_indices(
      buffers.size(), [&](size_t a, size_t b) { return buffers[a].bytes < buffers[b].bytes; });
  size_t num_unshared = 0;
  for (; num_unshared < order.size(); ++num_unshared) {
    const int64_t bytes = align_buffer(buffers[order[num_unshared]].bytes);
    if (plan.bytes + bytes > max_unshared_bytes) break;
    if (bytes > 0) plan.offsets[order[num_unshared]] = plan.bytes;
    plan.bytes += bytes;
  }
  std::vector<BufferLifetime> others;
  for (size_t i = num_unshared; i < order.size(); ++i) others.push_back(buffers[order[i]]);
  const MemoryPlan shared = plan_shared(others);
  for (size_t i = 0; i < others.size(); ++i) {
    plan.offsets[order[num_unshared + i]] = plan.bytes + shared.offsets[i];
  }
  plan.bytes += shared.bytes;
  return plan;
}

}  // namespace kerascnn
