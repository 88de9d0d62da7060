// Places buffers that live at different times into one block of memory.
#pragma once

#include <cstdint>
#include <vector>

namespace kerascnn {

constexpr int64_t kBufferAlignment = 256;

// Rounds up to a multiple of the alignment.
constexpr int64_t align_buffer(int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

// A buffer that holds data from step `first` to step `last`, both included.
struct BufferLifetime {
  int64_t bytes = 0;
  int64_t first = 0;
  int64_t last = 0;
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // multiples of kBufferAlignment; 0 for an empty buffer
  int64_t bytes = 0;
};

// Buffers that live at the same time never overlap. The smallest buffers, up to max_unshared_bytes
// in all, overlap with no other one at any time. The same request always gives the same plan.
MemoryPlan plan_memory(const std::vector<BufferLifetime>& buffers, int64_t max_unshared_bytes = 0);

}  // namespace kerascnn
