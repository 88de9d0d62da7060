// An allocator that keeps freed blocks and hands them out again. The CPU and every GPU share it;
// they differ in where raw memory comes from.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "core/base/device.h"
#include "core/memory/allocator.h"
#include "core/memory/poison.h"

namespace kerascnn {

// Memory straight from the system or the device. Called under the allocator's lock.
class RawMemory {
 public:
  virtual ~RawMemory() = default;

  // Aligned to 256; null where there is not enough. `bytes` is positive. It throws for any other
  // failure.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void free(void* data) noexcept = 0;
  virtual int64_t available() const = 0;  // free bytes at this moment
  // Sets all bytes, in order with the device's other work.
  virtual void fill(void* data, int byte, int64_t bytes) = 0;
};

// The size that a request is rounded up to, so that nearly equal requests can use one another's
// blocks: a multiple of 256 and, above 2 KiB, of an eighth of the power of two below, at most of 2
// MiB (up to 12.5% of a small block is lost, and next to nothing of a large one).
int64_t rounded_block_size(int64_t bytes);

// A block may be handed out again as soon as it is freed. That is right on a CPU, where work is
// done when a call returns, and on a GPU whose work all goes through one stream: the next owner's
// work is enqueued behind the last one's.
class CachingAllocator : public Allocator {
 public:
  // `poisons`: blocks are filled with kPoison when they are handed out and when they come back, so
  // that what reads them before writing or after freeing shows.
  CachingAllocator(Device device, std::unique_ptr<RawMemory> raw, bool poisons = poisons_memory());
  ~CachingAllocator() override;  // returns the cached blocks; those in use are left to their owners
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // The smallest cached block that fits and is at most twice as large, else a new one. Where the
  // device is full, gives all cached blocks back, tries once more, and then throws
  // OutOfMemoryError.
  void* allocate(int64_t bytes) override;
  // A pointer that is not in use here is left alone.
  void free(void* data) noexcept override;

  MemoryStats stats() const override;
  void reset_peak() override;
  void release_cached() override;
  int64_t available() const override;

 private:
  struct Block {
    int64_t bytes;
    void* data;
  };
  struct ByAddress {
    using is_transparent = void;
    bool operator()(const Block& a, const Block& b) const {
      return std::less<void*>()(a.data, b.data);
    }
    bool operator()(const Block& a, void* b) const { return std::less<void*>()(a.data, b); }
    bool operator()(void* a, const Block& b) const { return std::less<void*>()(a, b.data); }
  };
  struct BySize {
    bool operator()(const Block& a, const Block& b) const {
      if (a.bytes != b.bytes) return a.bytes < b.bytes;
      return std::less<void*>()(a.data, b.data);
    }
  };

  void* take_cached(int64_t bytes);
  void* take_new(int64_t bytes);
  void free_cached_blocks() noexcept;
  [[noreturn]] void throw_out_of_memory(int64_t bytes) const;

  const Device device_;
  const std::unique_ptr<RawMemory> raw_;
  const bool poisons_;
  mutable std::mutex mutex_;
  // A block moves between the two as a set node, so that freeing never allocates and cannot fail.
  std::set<Block, ByAddress> used_;
  std::set<Block, BySize> cached_;
  MemoryStats stats_;
};

}  // namespace kerascnn
