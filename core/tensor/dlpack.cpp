#include "core/tensor/dlpack.h"

#include <memory>
#include <utility>

#include "core/backend/backend.h"
#include "core/tensor/give_back.h"

namespace kerascnn {
namespace {

// The protocol's numbers for the two streams that every CUDA program has.
constexpr intptr_t kLegacyDefaultStream = 1;
constexpr intptr_t kPerThreadDefaultStream = 2;
constexpr intptr_t kNoSynchronization = -1;

std::string dlpack_dtype_string(DLDataType dtype) {
  constexpr std::pair<int, const char*> kKinds[] = {{kDLInt, "int"},         {kDLUInt, "uint"},
                                                    {kDLFloat, "float"},     {kDLBfloat, "bfloat"},
                                                    {kDLComplex, "complex"}, {kDLBool, "bool"}};
  for (const auto& [code, kind] : kKinds) {
    if (dtype.code != code) continue;
    return dtype.lanes == 1 ? message(kind, int{dtype.bits})
                            : message(kind, int{dtype.bits}, "x", dtype.lanes);
  }
  // Floats of 8, 6 and 4 bits: there is one code for each way to share the bits out.
  if (dtype.code >= kDLFirstSmallFloat && dtype.code <= kDLLastSmallFloat) {
    return message("float", int{dtype.bits}, " (type code ", int{dtype.code}, ")");
  }
  return message("type code ", int{dtype.code}, " of ", int{dtype.bits}, " bits");
}

DType dtype_from_dlpack(DLDataType dtype) {
  constexpr DType kAll[] = {DType::Bool,    DType::UInt8,  DType::Int8,    DType::Int16,
                            DType::Int32,   DType::Int64,  DType::Float16, DType::BFloat16,
                            DType::Float32, DType::Float64};
  for (const DType candidate : kAll) {
    const DLDataType known = dlpack_dtype(candidate);
    if (known.code == dtype.code && known.bits == dtype.bits && known.lanes == dtype.lanes) {
      return candidate;
    }
  }
  throw TypeError(
      message("from_dlpack: dtype ", dlpack_dtype_string(dtype),
              " is not supported; expected bool, uint8, int8, int16, int32, int64, float16, "
              "bfloat16, float32 or float64: cast it in its own library first"));
}

// The bytes from the lowest element to the end of the highest, and where the lowest is relative to
// element 0.
struct Extent {
  int64_t lowest = 0;
  int64_t bytes = 0;
};

// Throws where an array reaches further than addresses do, which no producer means.
Extent extent_of(const TensorSpec& spec, const Shape& strides) {
  const int64_t size = static_cast<int64_t>(itemsize(spec.dtype));
  if (num_elements(spec.shape) == 0) return {};
  int64_t lowest = 0;
  int64_t highest = 0;
  bool fits = true;
  for (size_t axis = 0; axis < spec.shape.size(); ++axis) {
    int64_t reach = 0;
    fits = fits && !__builtin_mul_overflow(strides[axis], spec.shape[axis] - 1, &reach);
    int64_t& end = reach < 0 ? lowest : highest;
    fits = fits && !__builtin_add_overflow(end, reach, &end);
  }
  Extent extent;
  int64_t count = 0;
  fits = fits && !__builtin_sub_overflow(highest, lowest, &count) &&
         !__builtin_add_overflow(count, int64_t{1}, &count) &&
         !__builtin_mul_overflow(count, size, &extent.bytes) &&
         !__builtin_mul_overflow(lowest, size, &extent.lowest);
  if (fits) return extent;
  throw BufferError(
      "from_dlpack: the strides that the producer describes lead out of the address space");
}

// Fields that no producer should fill in like this, and that would lead to memory of nobody.
void check_fields(const DLTensor& source) {
  bool fits = source.ndim >= 0 && (source.ndim == 0 || source.shape != nullptr);
  bool is_empty = false;
  for (int32_t axis = 0; fits && axis < source.ndim; ++axis) {
    fits = source.shape[axis] >= 0;
    is_empty = is_empty || source.shape[axis] == 0;
  }
  if (fits && (is_empty || source.data != nullptr)) return;
  throw BufferError(
      message("from_dlpack: the producer describes an array of ", source.ndim,
              " axes that can't be; expected extents of 0 or more, and an address where there are "
              "elements"));
}

// Where element 0 is. Numbers, because no pointer may lead out of the address space.
uintptr_t address_of(const DLTensor& source) {
  uintptr_t address = 0;
  if (!__builtin_add_overflow(reinterpret_cast<uintptr_t>(source.data), source.byte_offset,
                              &address)) {
    return address;
  }
  throw BufferError(message("from_dlpack: an offset of ", source.byte_offset,
                            " bytes leads out of the address space"));
}

// Called when the last tensor is gone; does nothing until it is armed.
class Release {
 public:
  Release(Device device, int64_t bytes) : device_(device), bytes_(bytes) {}
  void arm(std::function<void()> release) { release_ = std::move(release); }

  void operator()() const {
    if (!release_) return;
    if (device_.type == DeviceType::Cpu) return release_();
    // The producer may reuse its memory on another stream as soon as it has it back.
    give_back_after_work(device_, bytes_, release_);
  }

 private:
  Device device_;
  int64_t bytes_;
  std::function<void()> release_;
};

}  // namespace

Shape strides_in_bytes(const Tensor& tensor) {
  const int64_t size = static_cast<int64_t>(itemsize(tensor.dtype()));
  Shape strides = tensor.strides();
  for (size_t axis = 0; axis < strides.size(); ++axis) {
    const bool has_steps = tensor.size() > 0 && tensor.shape()[axis] > 1;
    strides[axis] = has_steps ? strides[axis] * size : size;
  }
  return strides;
}

namespace {

// Memory whose elements lie across their own alignment, which no kernel and no cast may touch.
Tensor copy_unaligned(const Tensor& tensor) {
  Tensor copy = Tensor::empty(tensor.spec(), tensor.device());
  // Copies elements as single bytes along a last axis of their own.
  Shape shape = tensor.shape();
  Shape strides = strides_in_bytes(tensor);
  shape.push_back(static_cast<int64_t>(itemsize(tensor.dtype())));
  strides.push_back(1);
  const int64_t offset =
      static_cast<char*>(tensor.data()) - static_cast<char*>(tensor.storage()->data());
  const Tensor source(tensor.storage(), TensorSpec{DType::UInt8, shape}, strides, offset);
  const Tensor target(copy.storage(), source.spec(), contiguous_strides(shape));
  target.copy_from(source);
  return copy;
}

// What a structure handed to another library owns.
template <typename Managed>
struct Handed {
  Managed managed{};
  Tensor tensor;
  StorageUse writes;
  Shape shape;
  Shape strides;
  std::optional<intptr_t> stream;

  ~Handed() {
    if (!stream) return;
    try {
      // The consumer's last kernels may still read the memory. A default stream always exists; of
      // any other it is not known whether its owner has destroyed it, so all of them are waited
      // for.
      const bool exists = *stream == kLegacyDefaultStream || *stream == kPerThreadDefaultStream;
      backend(tensor.device()).wait_for_stream(exists ? *stream : -1);
    } catch (const Error&) {
      // A device that failed runs nothing any more.
    }
  }
};

template <typename Managed>
Managed* hand_over(const DLPackExport& exported) {
  auto handed = std::make_unique<Handed<Managed>>();
  handed->tensor = exported.tensor.detached();
  handed->stream = exported.stream;
  if (!exported.read_only) {
    handed->writes = StorageUse(exported.tensor.storage(), StorageUse::Kind::Writes);
  }
  const Tensor& tensor = handed->tensor;
  handed->shape = tensor.shape();
  handed->strides = tensor.is_contiguous() ? contiguous_strides(tensor.shape()) : tensor.strides();

  DLTensor& out = handed->managed.dl_tensor;
  out.data = tensor.size() > 0 ? tensor.data() : nullptr;
  out.device = dlpack_device(tensor.device());
  out.ndim = static_cast<int32_t>(handed->shape.size());
  out.dtype = dlpack_dtype(tensor.dtype());
  out.shape = handed->shape.data();
  out.strides = handed->strides.data();
  out.byte_offset = 0;
  handed->managed.manager_ctx = handed.get();
  handed->managed.deleter = [](Managed* self) {
    delete static_cast<Handed<Managed>*>(self->manager_ctx);
  };
  return &handed.release()->managed;
}

bool same_device(DLDevice a, DLDevice b) {
  return a.device_type == b.device_type && a.device_id == b.device_id;
}

void check_stream(Device device, std::optional<intptr_t> stream) {
  if (!stream) return;
  if (device.type == DeviceType::Cpu ? *stream != kNoSynchronization
                                     : *stream == 0 || *stream < kNoSynchronization) {
    throw ValueError(message(
        "__dlpack__: stream ", *stream, " can't be used for a tensor on ", device_name(device),
        device.type == DeviceType::Cpu
            ? "; a CPU has no streams, leave it out"
            : "; expected -1 (no synchronization), 1 (legacy default stream), 2 "
              "(per-thread default stream) or a stream's address"));
  }
}

// Else a kernel would find out, which loses the device to the process.
void check_place(const void* data, Device device) {
  if (device.type == DeviceType::Cpu) return;
  Device found;
  try {
    found = backend(device).device_of(data);
  } catch (const DeviceError&) {
    throw BufferError(message("from_dlpack: the array says that it is on ", device_name(device),
                              ", but its address is not one of memory on a GPU; hand over an array "
                              "whose device is where its memory is"));
  }
  if (found != device) {
    throw BufferError(message("from_dlpack: the array says that it is on ", device_name(device),
                              ", but its address is one of ", device_name(found),
                              "; hand over an array whose device is where its memory is"));
  }
}

}  // namespace

DLDataType dlpack_dtype(DType dtype) {
  const uint8_t bits = static_cast<uint8_t>(itemsize(dtype) * 8);
  switch (dtype) {
    case DType::Bool:
      return {kDLBool, bits, 1};
    case DType::UInt8:
      return {kDLUInt, bits, 1};
    case DType::BFloat16:
      return {kDLBfloat, bits, 1};
    default:
      return {is_floating(dtype) ? kDLFloat : kDLInt, bits, 1};
  }
}

Tensor tensor_from_dlpack(const DLTensor& source, bool read_only, std::function<void()> release,
                          bool may_copy) {
  check_fields(source);
  give_back_finished();
  TensorSpec spec{dtype_from_dlpack(source.dtype),
                  source.ndim > 0 ? Shape(source.shape, source.shape + source.ndim) : Shape()};
  num_elements(spec.shape);  // throws where strides would overflow
  const Shape strides = source.strides != nullptr && source.ndim > 0
                            ? Shape(source.strides, source.strides + source.ndim)
                            : contiguous_strides(spec.shape);
  const Device device = device_from_dlpack(source.device);
  backend(device).begin_sharing();  // throws where it can't be used
  const Extent extent = extent_of(spec, strides);
  const uintptr_t first = address_of(source);
  char* lowest = reinterpret_cast<char*>(first + static_cast<uintptr_t>(extent.lowest));
  if (extent.bytes > 0) check_place(lowest, device);
  const bool aligned = first % itemsize(spec.dtype) == 0;

  const auto owner = std::make_shared<Release>(device, extent.bytes);
  auto storage = std::make_shared<Storage>(lowest, extent.bytes, device, [owner] { (*owner)(); });
  Tensor tensor(std::move(storage), std::move(spec), strides, -extent.lowest, read_only);
  const bool shares = aligned || extent.bytes == 0;
  if (!shares && !may_copy) {
    throw BufferError(message("from_dlpack: the elements of the array are not aligned to their ",
                              itemsize(tensor.dtype()),
                              " bytes, and can't be used without a copy; leave out "
                              "copy=False"));
  }
  // Its owner may write to it whenever it likes.
  if (!read_only) tensor.storage()->expose_for_good();
  Tensor result = shares ? tensor : copy_unaligned(tensor);
  // Armed last: where something above throws, the memory stays the caller's.
  owner->arm(std::move(release));
  return result;
}

Tensor adopt(const Tensor& tensor, std::optional<Device> device, std::optional<bool> copy) {
  if (device && *device != tensor.device()) {
    if (copy == false) {
      throw BufferError(message("from_dlpack: the array is on ", device_name(tensor.device()),
                                " and can't get to ", device_name(*device),
                                " without a copy; leave out copy=False"));
    }
    return tensor.to(*device);
  }
  return copy == true ? tensor.copy() : tensor;
}

void check_dlpack_version(DLPackVersion version) {
  if (version.major == kDLPackVersion.major) return;
  throw BufferError(message("from_dlpack: the producer uses version ", version.major, ".",
                            version.minor, " of DLPack; expected 1.x"));
}

DLDevice dlpack_device(Device device) {
  if (device.type == DeviceType::Cpu) return {kDLCPU, 0};
  return {kDLCUDA, device.index};
}

Device device_from_dlpack(DLDevice device) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
      return Device{DeviceType::Cpu, 0};
    case kDLCUDA:
    case kDLCUDAManaged:
      return Device{DeviceType::Cuda, device.device_id};
    default:
      throw BufferError(
          message("from_dlpack: DLPack device type ", device.device_type,
                  " is not supported; expected a tensor on a CPU (1) or a CUDA device (2); "
                  "move it there first"));
  }
}

DLPackExport prepare_dlpack(const Tensor& tensor, const DLPackRequest& request) {
  const Device device = tensor.device();
  check_stream(device, request.stream);
  DLPackExport exported{tensor, false, tensor.read_only(), std::nullopt};
  if (request.device && !same_device(*request.device, dlpack_device(device))) {
    if (!same_device(*request.device, dlpack_device(Device{})) || request.copy == false) {
      throw BufferError(message(
          "__dlpack__: a tensor on ", device_name(device), " can't be handed over as device (",
          request.device->device_type, ", ", request.device->device_id, ")",
          request.copy == false ? " without a copy" : "; use .to(device) first"));
    }
    return {tensor.to(Device{}), true, false, std::nullopt};
  }
  // Consumers may write, and some do so whatever the flags say.
  const bool needed = tensor.storage()->is_needed() && !tensor.read_only();
  if (request.copy == true || (needed && request.copy != false)) {
    exported.tensor = tensor.copy();
    exported.copied = true;
    exported.read_only = false;
  } else if (needed) {
    exported.read_only = true;
  }
  if (device.type == DeviceType::Cuda) {
    const intptr_t stream = request.stream.value_or(kLegacyDefaultStream);
    backend(device).begin_sharing();
    if (stream != kNoSynchronization) backend(device).make_stream_wait(stream);
    exported.stream = stream;
  }
  return exported;
}

DLManagedTensor* make_dlpack(const DLPackExport& exported) {
  if (exported.read_only) {
    throw BufferError(
        exported.tensor.read_only()
            ? "__dlpack__: this tensor is read-only, which only DLPack 1.0 and newer can express; "
              "ask with max_version=(1, 0) or for a copy"
            : "__dlpack__: a tape needs this tensor for a gradient, so that it can only be shared "
              "as read-only, which DLPack before 1.0 can't express; leave out copy=False");
  }
  return hand_over<DLManagedTensor>(exported);
}

DLManagedTensorVersioned* make_dlpack_versioned(const DLPackExport& exported) {
  DLManagedTensorVersioned* managed = hand_over<DLManagedTensorVersioned>(exported);
  managed->version = kDLPackVersion;
  managed->flags =
      (exported.read_only ? kDLPackReadOnly : 0) | (exported.copied ? kDLPackCopied : 0);
  return managed;
}

}  // namespace kerascnn
