#include "core/backend/cuda/runtime/host_staging.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/backend/cuda/runtime/check.h"
#include "core/base/error.h"

namespace kerascnn::cuda {
namespace {

constexpr int64_t kLeastBytes = 256 << 10;  // of a half
constexpr int64_t kAlignment = 64;

}  // namespace

bool grow_host_memory(Backend& backend, StoragePtr& memory, int64_t bytes, int64_t least_bytes) {
  if (memory && memory->bytes() >= bytes) return true;
  try {
    const auto wanted = static_cast<uint64_t>(std::max(bytes, least_bytes));
    memory = backend.allocate_host(static_cast<int64_t>(std::bit_ceil(wanted)));
    return true;
  } catch (const OutOfMemoryError&) {
    return false;
  }
}

HostStaging::HostStaging(Backend& backend, Context& context)
    : backend_(backend), context_(context), halves_{Half(context), Half(context)} {}

bool HostStaging::copy(void* destination, const void* source, int64_t bytes) {
  if (bytes > Backend::kMostStagedBytes) return false;  // copying it twice in memory takes too long
  // This comes before the lock, because steps that wait for the stream may have copies of their
  // own.
  const cudaStream_t stream = context_.stream();
  const std::lock_guard lock(mutex_);
  if (!make_room(bytes, stream)) return false;
  Half& half = halves_[current_];
  char* const place = static_cast<char*>(half.memory->data()) + half.used;
  std::memcpy(place, source, static_cast<size_t>(bytes));
  check(cudaMemcpyAsync(destination, place, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                        stream),
        "cudaMemcpyAsync to the device");
  half.used += (bytes + kAlignment - 1) & -kAlignment;
  return true;
}

// Makes a half with so many free bytes the current one.
bool HostStaging::make_room(int64_t bytes, cudaStream_t stream) {
  const Half& last = halves_[current_];
  if (last.memory && last.used + bytes <= last.memory->bytes()) return true;
  if (last.used > 0) {
    halves_[current_].copied.record_on(stream);
    current_ = 1 - current_;
  }
  Half& half = halves_[current_];
  half.copied.wait();
  half.used = 0;
  return grow_host_memory(backend_, half.memory, bytes, kLeastBytes);
}

}  // namespace kerascnn::cuda
