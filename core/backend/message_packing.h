// Which small tensors of a message between processes are brought together in one piece of memory.
// For what sends each tensor by itself, as NCCL does: it takes about two microseconds for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kerascnn {

// A tensor that is brought together with others, and its first element in their memory.
struct PackedPlace {
  size_t tensor = 0;
  int64_t place = 0;
};

// What is sent in one piece: elements from `place` on.
struct PackedMessage {
  int64_t group = 0;
  int64_t place = 0;
  int64_t size = 0;
};

struct MessagePacking {
  std::vector<size_t> alone;            // tensors that are sent by themselves
  std::vector<PackedPlace> packed;      // the others, message by message
  std::vector<PackedMessage> messages;  // one for each group that has any
  int64_t size = 0;                     // elements of the memory that all messages need
};

// Tensors of up to so many bytes are brought together.
constexpr int64_t kSmallTensorBytes = 64 << 10;

// Brings together the small tensors of each group, where it has more than one; those without
// elements are left out. `sizes` and `groups` are those of the tensors. Messages begin where
// vectors do.
MessagePacking pack_small_tensors(const std::vector<int64_t>& sizes,
                                  const std::vector<int64_t>& groups, int64_t item_bytes);

}  // namespace kerascnn
