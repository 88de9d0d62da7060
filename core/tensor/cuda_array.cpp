#include "core/tensor/cuda_array.h"

#include <utility>

#include "core/backend/backend.h"
#include "core/base/error.h"
#include "core/tensor/dlpack.h"

namespace kerascnn {
namespace {

constexpr int kVersion = 3;
// Earlier versions of the protocol say nothing of streams.
constexpr int kFirstWithStreams = 3;
constexpr intptr_t kDefaultStream = 1;
constexpr intptr_t kEveryStream = -1;

char kind_of(DLDataType dtype) {
  switch (dtype.code) {
    case kDLBool:
      return 'b';
    case kDLUInt:
      return 'u';
    case kDLInt:
      return 'i';
    default:
      return 'f';
  }
}

std::string typestr_of(DType dtype) {
  return message(itemsize(dtype) == 1 ? '|' : '<', kind_of(dlpack_dtype(dtype)), itemsize(dtype));
}

DType dtype_of(const std::string& typestr) {
  constexpr DType kAll[] = {DType::Bool,    DType::UInt8,   DType::Int8,
                            DType::Int16,   DType::Int32,   DType::Int64,
                            DType::Float16, DType::Float32, DType::Float64};
  for (const DType dtype : kAll) {
    const std::string known = typestr_of(dtype);
    // The byte order of single bytes does not matter.
    if (typestr == known || (itemsize(dtype) == 1 && typestr.size() == known.size() &&
                             typestr.substr(1) == known.substr(1))) {
      return dtype;
    }
  }
  throw TypeError(
      message("__cuda_array_interface__: typestr \"", typestr,
              "\" is not supported; expected bool (|b1), uint8 (|u1), int8 (|i1), int16 (<i2), "
              "int32 (<i4), int64 (<i8), float16 (<f2), float32 (<f4) or float64 (<f8), in the "
              "byte order of the machine"));
}

Shape strides_in_elements(const CudaArray& array, DType dtype) {
  if (!array.strides) return contiguous_strides(array.shape);
  const int64_t size = static_cast<int64_t>(itemsize(dtype));
  Shape strides = *array.strides;
  bool fits = strides.size() == array.shape.size();
  for (int64_t& stride : strides) {
    fits = fits && stride % size == 0;
    stride /= size;
  }
  if (!fits) {
    throw ValueError(message("__cuda_array_interface__: strides ", shape_string(*array.strides),
                             " of a shape ", shape_string(array.shape),
                             " must be one number of bytes for each axis, and multiples of the ",
                             size, " bytes of an element"));
  }
  return strides;
}

void wait_for_producer(const CudaArray& array, Device device) {
  if (array.version < kFirstWithStreams) {
    backend(device).wait_for_stream(kEveryStream);
  } else if (array.stream) {
    backend(device).wait_for_stream(*array.stream);
  }
}

}  // namespace

Tensor tensor_from_cuda_array(const CudaArray& array, std::function<void()> release) {
  const DType dtype = dtype_of(array.typestr);
  if (array.stream == 0) {
    throw ValueError(
        "__cuda_array_interface__: stream 0 is ambiguous; expected None (no synchronization), 1 "
        "(legacy default stream), 2 (per-thread default stream) or a stream's address");
  }
  Shape shape = array.shape;
  Shape strides = strides_in_elements(array, dtype);
  Device device{DeviceType::Cuda, 0};
  auto* data = reinterpret_cast<void*>(array.data);
  if (num_elements(shape) > 0) {
    if (data == nullptr) {
      throw ValueError(message("__cuda_array_interface__: an array of shape ", shape_string(shape),
                               " must have an address, received 0"));
    }
    device = backend(device).device_of(data);
  }
  wait_for_producer(array, device);
  const DLTensor source{data,
                        dlpack_device(device),
                        static_cast<int32_t>(shape.size()),
                        dlpack_dtype(dtype),
                        shape.data(),
                        strides.data(),
                        0};
  return tensor_from_dlpack(source, array.read_only, std::move(release));
}

bool has_cuda_array(const Tensor& tensor) {
  return tensor.device().type == DeviceType::Cuda && tensor.dtype() != DType::BFloat16;
}

CudaArray cuda_array_of(const Tensor& tensor) {
  Backend& own = backend(tensor.device());
  const auto address = reinterpret_cast<intptr_t>(own.stream());
  const intptr_t stream = address != 0 ? address : kDefaultStream;
  own.begin_sharing();  // the consumer looks at the stream alone
  const StoragePtr& storage = tensor.storage();
  const bool read_only = tensor.read_only() || storage->is_needed();
  storage->note_unknown_streams();
  if (!read_only) storage->expose_for_good();
  CudaArray array;
  array.data = tensor.size() > 0 ? reinterpret_cast<uintptr_t>(tensor.data()) : 0;
  array.read_only = read_only;
  array.shape = tensor.shape();
  array.typestr = typestr_of(tensor.dtype());
  if (!tensor.is_contiguous()) array.strides = strides_in_bytes(tensor);
  array.stream = stream;
  array.version = kVersion;
  return array;
}

}  // namespace kerascnn
