// Main memory as the source of the CPU's caching allocator.
#pragma once

#include "core/memory/caching_allocator.h"

namespace kerascnn {

class CpuMemory : public RawMemory {
 public:
  void* allocate(int64_t bytes) override;
  void free(void* data) noexcept override;
  int64_t available() const override;
  void fill(void* data, int byte, int64_t bytes) override;
};

}  // namespace kerascnn
