// A block of memory with an owner: our allocator's, or a foreign one's (DLPack, NumPy) through its
// deleter.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/base/device.h"

namespace kerascnn {

class Storage {
 public:
  Storage(void* data, int64_t bytes, Device device, std::function<void()> deleter)
      : data_(data), bytes_(bytes), device_(device), deleter_(std::move(deleter)) {}
  ~Storage() {
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

 private:
  void* data_;
  int64_t bytes_;
  Device device_;
  std::function<void()> deleter_;
  std::atomic<uint64_t> version_{0};
};

using StoragePtr = std::shared_ptr<Storage>;

// From the allocator of the device's backend. Throws OutOfMemoryError, DeviceError.
StoragePtr allocate_storage(int64_t bytes, Device device);

}  // namespace kerascnn
