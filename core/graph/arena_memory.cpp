#include "core/graph/arena_memory.h"

#include "core/backend/backend.h"
#include "core/base/error.h"

namespace kerascnn {

void ArenaMemory::remove_user(int64_t bytes) noexcept {
  const auto found = users_.find(bytes);
  if (found != users_.end()) users_.erase(found);
  if (storage_ == nullptr) return;
  if (users_.empty() || *users_.rbegin() < storage_->bytes()) give_up();
}

const StoragePtr& ArenaMemory::storage() {
  const int64_t needed = users_.empty() ? 0 : *users_.rbegin();
  if (storage_ == nullptr || storage_->bytes() < needed) {
    give_up();
    storage_ = allocate_storage(needed, device_);
    ++num_places_;
  }
  return storage_;
}

// Steps that wait to be started (Executor::run_later) are started first, while the memory is still
// theirs; the stream's order does the rest.
void ArenaMemory::give_up() noexcept {
  if (storage_ == nullptr) return;
  try {
    (void)backend(device_).stream();
  } catch (const Error&) {
    // A device that has failed runs nothing any more.
  }
  storage_.reset();
}

}  // namespace kerascnn
