#include "core/memory/caching_allocator.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "core/base/error.h"

namespace kerascnn {
namespace {

constexpr int64_t kAlignment = 256;
// What a GPU allocates is a multiple of this; of larger blocks an eighth is too much to lose.
constexpr int64_t kLargestStep = int64_t{2} << 20;

std::string readable_bytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  std::ostringstream out;
  out.precision(value < 1000 ? 3 : 4);
  out << value << " " << kUnits[unit];
  return out.str();
}

}  // namespace

int64_t rounded_block_size(int64_t bytes) {
  const uint64_t power = std::bit_floor(static_cast<uint64_t>(bytes));
  const int64_t step = std::clamp(static_cast<int64_t>(power / 8), kAlignment, kLargestStep);
  if (bytes > std::numeric_limits<int64_t>::max() - step) return bytes;
  return (bytes + step - 1) / step * step;
}

CachingAllocator::CachingAllocator(Device device, std::unique_ptr<RawMemory> raw, bool poisons)
    : device_(device), raw_(std::move(raw)), poisons_(poisons) {}

CachingAllocator::~CachingAllocator() { free_cached_blocks(); }

void* CachingAllocator::allocate(int64_t bytes) {
  if (bytes < 0) {
    throw ValueError(message("allocate: the size must not be negative, got ", bytes, " bytes"));
  }
  if (bytes == 0) return nullptr;
  const int64_t rounded = rounded_block_size(bytes);
  const std::lock_guard lock(mutex_);
  ++stats_.num_allocations;
  void* data = take_cached(rounded);
  if (data == nullptr) data = take_new(rounded);
  if (data == nullptr) throw_out_of_memory(bytes);
  if (poisons_) raw_->fill(data, kPoison, used_.find(data)->bytes);
  stats_.peak = std::max(stats_.peak, stats_.allocated);
  return data;
}

void* CachingAllocator::take_cached(int64_t bytes) {
  const auto found = cached_.lower_bound(Block{bytes, nullptr});
  if (found == cached_.end() || found->bytes / 2 > bytes) return nullptr;
  const Block block = *found;
  used_.insert(cached_.extract(found));
  stats_.cached -= block.bytes;
  stats_.allocated += block.bytes;
  return block.data;
}

void* CachingAllocator::take_new(int64_t bytes) {
  // The bookkeeping's own memory comes first, so that a failure there cannot lose the block.
  std::set<Block, ByAddress> staging;
  auto node = staging.extract(staging.insert(Block{bytes, nullptr}).first);
  void* data = raw_->allocate(bytes);
  if (data == nullptr && !cached_.empty()) {
    free_cached_blocks();
    data = raw_->allocate(bytes);
  }
  if (data == nullptr) return nullptr;
  node.value().data = data;
  used_.insert(std::move(node));
  stats_.allocated += bytes;
  return data;
}

void CachingAllocator::free(void* data) noexcept {
  if (data == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(data);
  if (found == used_.end()) return;
  const int64_t bytes = found->bytes;
  cached_.insert(used_.extract(found));
  stats_.allocated -= bytes;
  stats_.cached += bytes;
  if (!poisons_) return;
  try {
    raw_->fill(data, kPoison, bytes);
  } catch (const Error&) {
    // A device that failed or is gone at the process' end; freeing must not throw.
  }
}

MemoryStats CachingAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void CachingAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak = stats_.allocated;
}

void CachingAllocator::release_cached() {
  const std::lock_guard lock(mutex_);
  free_cached_blocks();
}

int64_t CachingAllocator::available() const {
  const std::lock_guard lock(mutex_);
  return raw_->available() + stats_.cached;
}

void CachingAllocator::free_cached_blocks() noexcept {
  for (const Block& block : cached_) raw_->free(block.data);
  cached_.clear();
  stats_.cached = 0;
}

void CachingAllocator::throw_out_of_memory(int64_t bytes) const {
  const int64_t free = raw_->available();
  throw OutOfMemoryError(
      message("out of memory on ", device_name(device_), ": asked for ", readable_bytes(bytes),
              " (", bytes, " bytes), while ", readable_bytes(stats_.allocated),
              " are in use by this process, ", readable_bytes(stats_.cached), " are cached and ",
              readable_bytes(free),
              " are free; use a smaller batch size or a smaller model, or release tensors that are "
              "no longer needed"),
      bytes, stats_.allocated, stats_.cached, free);
}

}  // namespace kerascnn
