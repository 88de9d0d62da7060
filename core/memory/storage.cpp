#include "core/memory/storage.h"

#include "core/backend/backend.h"
#include "core/base/error.h"

namespace kerascnn {

void Storage::wait_for_unknown_streams() const noexcept {
  try {
    backend(device_).wait_for_stream(-1);
  } catch (const Error&) {
    // A device that failed runs nothing any more.
  }
}

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
