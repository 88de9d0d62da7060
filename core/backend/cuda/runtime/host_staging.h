// Copies from ordinary memory that don't wait for the device.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "core/backend/backend.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/fence.h"

namespace kerascnn::cuda {

// Replaces page-locked memory that has fewer bytes by a larger piece, whose size is a power of two
// and at least so many bytes. Returns false where the system gives none.
bool grow_host_memory(Backend& backend, StoragePtr& memory, int64_t bytes, int64_t least_bytes);

// Two halves of page-locked memory that are filled in turns: the source is read at once, and the
// device takes the bytes when its stream comes to the copy. A half is filled again when its copies
// are done.
class HostStaging {
 public:
  HostStaging(Backend& backend, Context& context);

  // Enqueues the copy on the context's stream. Returns false for a copy that is too large, or where
  // the system gives no page-locked memory.
  bool copy(void* destination, const void* source, int64_t bytes);

 private:
  struct Half {
    explicit Half(Context& context) : copied(context) {}
    StoragePtr memory;
    int64_t used = 0;
    CudaFence copied;  // after the last copy, recorded when the other half's turn came
  };
  bool make_room(int64_t bytes, cudaStream_t stream);

  Backend& backend_;
  Context& context_;
  std::mutex mutex_;
  std::array<Half, 2> halves_;
  size_t current_ = 0;
};

}  // namespace kerascnn::cuda
