// Tensors from and to other array libraries, without copying, through DLPack. Neither library is a
// dependency of the other; see dlpack_abi.h for the structures.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "core/base/error.h"
#include "core/tensor/dlpack_abi.h"
#include "core/tensor/tensor.h"

namespace kerascnn {

// The data can't be handed over as asked (Python: BufferError).
class BufferError : public Error {
 public:
  using Error::Error;
};

// A tensor over another library's memory. `release` gives that memory back: it is called when the
// last tensor that uses it is gone (on a GPU, after the work enqueued here), on any thread, and
// never where this function throws. The producer has already ordered its work before this library's
// stream. Elements that are not aligned to their own size are copied, which `may_copy` can forbid.
// Throws TypeError for a dtype and BufferError for a device that is not supported, and where a copy
// is needed.
Tensor tensor_from_dlpack(const DLTensor& source, bool read_only, std::function<void()> release,
                          bool may_copy = true);

// The strides of a tensor in bytes. Along an axis that has no second place no step is taken, and a
// producer may have given any number for it: that is the size of an element here.
Shape strides_in_bytes(const Tensor& tensor);

// An imported tensor on the device that was asked for. `copy` as in DLPackRequest: throws
// BufferError where it forbids one that is needed.
Tensor adopt(const Tensor& tensor, std::optional<Device> device, std::optional<bool> copy);

// Throws BufferError for a version whose structures can't be read.
void check_dlpack_version(DLPackVersion version);

DLDevice dlpack_device(Device device);
DLDataType dlpack_dtype(DType dtype);
// Throws BufferError for a kind of device that is not supported.
Device device_from_dlpack(DLDevice device);

// What `__dlpack__` is asked for; see the Python array API standard.
struct DLPackRequest {
  std::optional<intptr_t> stream;  // the consumer's; must be left out (or -1) for a CPU
  std::optional<DLDevice> device;  // the tensor's own or, from a GPU, the CPU
  std::optional<bool> copy;        // true: always, false: never, none: where it is needed
};

// The tensor that is handed over: `tensor` itself or a copy, its data ready for the consumer's
// stream. What a tape needs is copied, or with copy=false read-only.
struct DLPackExport {
  Tensor tensor;
  bool copied = false;
  bool read_only = false;
  std::optional<intptr_t> stream;  // set where the consumer's work has to be waited for at the end
};
// Throws BufferError where the request can't be met, ValueError for a stream that makes no sense.
DLPackExport prepare_dlpack(const Tensor& tensor, const DLPackRequest& request);

// Freed by the structure's deleter. The unversioned form can't say that memory is read-only and
// throws BufferError for such a tensor.
DLManagedTensor* make_dlpack(const DLPackExport& exported);
DLManagedTensorVersioned* make_dlpack_versioned(const DLPackExport& exported);

}  // namespace kerascnn
