#include "core/memory/storage.h"

#include "core/backend/backend.h"

namespace kerascnn {

StoragePtr allocate_storage(int64_t bytes, Device device) {
  Allocator& allocator = backend(device).allocator();
  void* data = allocator.allocate(bytes);
  try {
    return std::make_shared<Storage>(data, bytes, device,
                                     [&allocator, data] { allocator.free(data); });
  } catch (...) {
    allocator.free(data);
    throw;
  }
}

}  // namespace kerascnn
