// A block of memory with an owner: our allocator's, or a foreign one's (DLPack, NumPy) through its
// deleter.
//
// Writes of the core are counted (version()). Others write without being seen: arrays of NumPy and
// other libraries over the same memory. It is known whether there are such writers and whether a
// tape needs the values later, so that the second of the two keeps away: a tape copies what others
// may write to, and what a tape needs is handed out read-only, or as a copy.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "core/base/device.h"

namespace kerascnn {

class Storage {
 public:
  Storage(void* data, int64_t bytes, Device device, std::function<void()> deleter)
      : data_(data), bytes_(bytes), device_(device), deleter_(std::move(deleter)) {}
  ~Storage() {
    if (writers_.load(std::memory_order_relaxed) & kUnknownStreams) wait_for_unknown_streams();
    if (deleter_) deleter_();
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  // How often the content was changed in place, as far as the core did it. What a tape keeps for
  // later notes the number, and refuses to go on with other content.
  uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  void note_change() { version_.fetch_add(1, std::memory_order_relaxed); }

  // May somebody outside of the core write to it?
  bool is_exposed() const {
    return (writers_.load(std::memory_order_relaxed) & ~kUnknownStreams) != 0;
  }
  void expose_for_good() { writers_.fetch_or(kForGood, std::memory_order_relaxed); }
  // Does a tape need its values?
  bool is_needed() const { return readers_.load(std::memory_order_relaxed) > 0; }
  // Others may use it on streams of their own until it is freed, and nobody says when they are
  // done.
  void note_unknown_streams() { writers_.fetch_or(kUnknownStreams, std::memory_order_relaxed); }

 private:
  friend class StorageUse;
  void wait_for_unknown_streams() const noexcept;

  // These two bits lie in the number of writers to save space: there is a storage for each result
  // of an op.
  static constexpr uint32_t kForGood = uint32_t{1} << 31;
  static constexpr uint32_t kUnknownStreams = uint32_t{1} << 30;

  void* data_;
  int64_t bytes_;
  Device device_;
  std::function<void()> deleter_;
  std::atomic<uint64_t> version_{0};
  std::atomic<uint32_t> writers_{0};
  std::atomic<uint32_t> readers_{0};
};

using StoragePtr = std::shared_ptr<Storage>;

// As long as this lives, somebody may write to a storage unseen, or a tape needs it.
class StorageUse {
 public:
  enum class Kind : uint8_t { Writes, Needs };

  StorageUse() = default;
  StorageUse(StoragePtr storage, Kind kind) : storage_(std::move(storage)), kind_(kind) {
    count().fetch_add(1, std::memory_order_relaxed);
  }
  ~StorageUse() {
    if (storage_ != nullptr) count().fetch_sub(1, std::memory_order_relaxed);
  }
  StorageUse(StorageUse&& other) noexcept
      : storage_(std::move(other.storage_)), kind_(other.kind_) {}
  StorageUse& operator=(StorageUse&& other) noexcept {
    std::swap(storage_, other.storage_);
    std::swap(kind_, other.kind_);
    return *this;
  }

 private:
  std::atomic<uint32_t>& count() {
    return kind_ == Kind::Writes ? storage_->writers_ : storage_->readers_;
  }

  StoragePtr storage_;
  Kind kind_ = Kind::Writes;
};

// Allocates with the allocator of the device's backend. Throws OutOfMemoryError, DeviceError.
StoragePtr allocate_storage(int64_t bytes, Device device);

}  // namespace kerascnn
