// Where device memory comes from. Allocators are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kerascnn {

// Bytes, but for num_allocations, which counts every request since the process began (served from
// the cache or not): a difference of zero proves that a stretch of code allocates nothing.
struct MemoryStats {
  int64_t allocated = 0;
  int64_t cached = 0;
  int64_t peak = 0;
  int64_t num_allocations = 0;
};

class Allocator {
 public:
  virtual ~Allocator() = default;

  // At least `bytes` bytes aligned to 256; null for zero bytes. Throws OutOfMemoryError.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void free(void* data) noexcept = 0;

  virtual MemoryStats stats() const = 0;
  virtual void reset_peak() = 0;
  virtual void release_cached() = 0;      // gives unused cached blocks back to the system
  virtual int64_t available() const = 0;  // free bytes of the device, cached blocks included
};

}  // namespace kerascnn
