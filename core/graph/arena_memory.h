// The memory for the arenas of programs that take turns.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>

#include "core/memory/storage.h"

namespace kerascnn {

// One block that is as large as its largest user needs. Nothing in it outlives a run, so it may be
// given up between runs: it is when a larger user comes, when the largest one goes, and when none
// is left. The next run finds it at another place then, and has to bind its kernels anew.
//
// Runs of the users lock it (std::lock_guard), as one at a time may use the memory. On a GPU a run
// has only been enqueued when the lock is given back: all runs there, and all that gets the memory
// afterwards, are in the order of one stream.
class ArenaMemory {
 public:
  explicit ArenaMemory(Device device) : device_(device) {}
  ArenaMemory(const ArenaMemory&) = delete;
  ArenaMemory& operator=(const ArenaMemory&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

  Device device() const { return device_; }
  // Bytes that are allocated at this moment.
  int64_t bytes() const { return storage_ == nullptr ? 0 : storage_->bytes(); }

  // With the lock: a user that needs so many bytes comes or goes.
  void add_user(int64_t bytes) { users_.insert(bytes); }
  void remove_user(int64_t bytes) noexcept;
  // With the lock: the memory, allocated for the largest user where it is not there. Throws
  // OutOfMemoryError; nothing is allocated then, and the users stay.
  const StoragePtr& storage();
  // How often it was allocated: kernels that were bound to it before the last time are bound to
  // memory of others.
  int64_t num_places() const { return num_places_; }

 private:
  void give_up() noexcept;

  const Device device_;
  std::mutex mutex_;
  std::multiset<int64_t> users_;
  StoragePtr storage_;
  int64_t num_places_ = 0;
};

}  // namespace kerascnn
