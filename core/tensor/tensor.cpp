#include "core/tensor/tensor.h"

#include <cstring>
#include <map>

#include "core/backend/backend.h"
#include "core/base/error.h"
#include "core/base/storage_types.h"
#include "core/tensor/strided_copy.h"

namespace kerascnn {
namespace {

// Kernels read and write vectors of this many bytes.
constexpr uintptr_t kKernelAlignment = 16;

bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % kKernelAlignment == 0;
}

template <typename T>
void store_as(void* destination, DType dtype, T value) {
  with_storage(dtype, [&]<typename Stored>(Type<Stored>) {
    // By way of float, which is how the 16-bit types are converted.
    using Number = std::conditional_t<std::is_class_v<Stored>, float, Stored>;
    const Stored stored(static_cast<Number>(value));
    std::memcpy(destination, &stored, sizeof(stored));
  });
}

// Fills in the one extent that may be given as -1.
Shape resolve_shape(const Shape& shape, const Shape& from) {
  Shape resolved = shape;
  int64_t known = 1;
  int64_t unknown = -1;
  bool valid = true;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == -1) {
      valid = valid && unknown < 0;
      unknown = static_cast<int64_t>(axis);
    } else {
      valid = valid && shape[axis] >= 0 && !__builtin_mul_overflow(known, shape[axis], &known);
    }
  }
  const int64_t size = num_elements(from);
  if (valid && unknown >= 0) {
    valid = known > 0 && size % known == 0;
    if (valid) resolved[unknown] = size / known;
  } else if (valid) {
    valid = num_elements(shape) == size;
  }
  if (!valid) {
    throw ValueError(message("reshape: a tensor of shape ", shape_string(from), " with ", size,
                             " elements can't take the shape ", shape_string(shape)));
  }
  num_elements(resolved);  // throws where there are too many axes
  return resolved;
}

}  // namespace

Tensor::Tensor(StoragePtr storage, TensorSpec spec, Shape strides, int64_t byte_offset,
               bool read_only)
    : storage_(std::move(storage)),
      spec_(std::move(spec)),
      strides_(std::move(strides)),
      byte_offset_(byte_offset),
      read_only_(read_only) {}

Tensor Tensor::empty(const TensorSpec& spec, Device device) {
  const int64_t bytes = num_bytes(spec);  // throws for extents of which strides would overflow
  return Tensor(allocate_storage(bytes, device), spec, contiguous_strides(spec.shape));
}

Tensor Tensor::zeros(const TensorSpec& spec, Device device) {
  Tensor tensor = empty(spec, device);
  if (tensor.bytes() > 0) backend(device).fill(tensor.data(), 0, tensor.bytes());
  return tensor;
}

Tensor Tensor::from_host(const void* data, const TensorSpec& spec, Device device) {
  Tensor tensor = empty(spec, device);
  if (tensor.bytes() > 0) backend(device).copy_from_host(tensor.data(), data, tensor.bytes());
  return tensor;
}

template <typename T>
Tensor Tensor::scalar(DType dtype, T value, Device device) {
  alignas(8) char element[8];
  store_as(element, dtype, value);
  return from_host(element, TensorSpec{dtype, {}}, device);
}

template Tensor Tensor::scalar(DType, bool, Device);
template Tensor Tensor::scalar(DType, int, Device);
template Tensor Tensor::scalar(DType, int64_t, Device);
template Tensor Tensor::scalar(DType, float, Device);
template Tensor Tensor::scalar(DType, double, Device);

bool Tensor::is_contiguous() const {
  int64_t expected = 1;
  bool packed = true;
  for (size_t axis = shape().size(); axis-- > 0;) {
    if (shape()[axis] == 0) return true;
    // The stride of an axis of one element is never used, and other libraries put anything there.
    if (shape()[axis] != 1 && strides_[axis] != expected) packed = false;
    expected *= shape()[axis];
  }
  return packed;
}

bool Tensor::is_packed() const { return is_contiguous() && is_aligned(data()); }

Tensor Tensor::contiguous() const {
  if (is_packed()) {
    Tensor same = *this;
    same.strides_ = contiguous_strides(shape());
    return same;
  }
  Tensor result = empty(spec_, device());
  if (result.bytes() == 0) return result;
  if (is_contiguous()) {
    backend(device()).copy(result.data(), data(), bytes());
  } else {
    strided_copy(result, *this);
  }
  return result;
}

Tensor Tensor::copy() const {
  Tensor result = empty(spec_, device());
  result.copy_from(*this);
  return result;
}

Tensor Tensor::view(const Shape& shape) const {
  if (!is_contiguous()) {
    throw ValueError(message("view: a tensor of shape ", shape_string(spec_.shape), " and strides ",
                             shape_string(strides_),
                             " is not contiguous in memory; call contiguous() first"));
  }
  const Shape resolved = resolve_shape(shape, spec_.shape);
  return Tensor(storage_, TensorSpec{spec_.dtype, resolved}, contiguous_strides(resolved),
                byte_offset_, read_only_);
}

Tensor Tensor::piece(const TensorSpec& spec, int64_t byte_offset) const {
  const int64_t size = num_bytes(spec);
  if (!is_contiguous() || byte_offset < 0 || byte_offset % itemsize(spec.dtype) != 0 ||
      size > bytes() || byte_offset > bytes() - size) {  // a sum of them may overflow
    throw ValueError(message("piece: ", spec_string(spec), " from byte ", byte_offset,
                             " on is not an aligned piece of contiguous memory of ", bytes(),
                             " bytes"));
  }
  return Tensor(storage_, spec, contiguous_strides(spec.shape), byte_offset_ + byte_offset,
                read_only_);
}

Tensor Tensor::to(Device device) const {
  if (device == this->device()) return *this;
  Tensor result = empty(spec_, device);
  result.copy_from(*this);
  return result;
}

void Tensor::copy_from(const Tensor& source) const {
  if (read_only_) {
    throw ValueError("copy_from: the target is read-only memory of another library; copy it first");
  }
  if (!is_contiguous()) {
    throw ValueError(message("copy_from: the target of shape ", shape_string(shape()),
                             " must be contiguous, its strides are ", shape_string(strides_)));
  }
  if (source.spec() != spec_) {
    throw ValueError(message("copy_from: the target is ", spec_string(spec_), ", the source is ",
                             spec_string(source.spec())));
  }
  if (bytes() == 0) return;
  storage_->note_change();
  if (device().type == DeviceType::Cpu) return source.copy_to_host(data());
  const Tensor packed = source.contiguous();
  Backend& target = backend(device());
  if (packed.device().type == DeviceType::Cpu) {
    target.copy_from_host(data(), packed.data(), bytes());
  } else if (packed.device() == device()) {
    target.copy(data(), packed.data(), bytes());
  } else {
    // Two GPUs: neither stream knows of the other's work, so both are waited for.
    backend(packed.device()).synchronize();
    target.copy(data(), packed.data(), bytes());
    target.synchronize();
  }
}

void Tensor::fill_zero() const {
  if (read_only_ || !is_contiguous()) {
    throw ValueError(message("fill_zero: a tensor of shape ", shape_string(shape()),
                             " must be contiguous and not read-only; copy it first"));
  }
  storage_->note_change();
  if (bytes() > 0) backend(device()).fill(data(), 0, bytes());
}

Tensor Tensor::detached() const {
  return Tensor(storage_, spec_, strides_, byte_offset_, read_only_);
}

void Tensor::copy_to_host(void* destination) const {
  if (bytes() == 0) return;
  const Tensor packed = is_contiguous() ? *this : contiguous();
  backend(device()).copy_to_host(destination, packed.data(), bytes());
}

std::vector<Tensor> to_host(const std::vector<Tensor>& tensors, double patience) {
  std::vector<Tensor> results, packed;          // the latter are read until the copies have arrived
  std::map<int, std::vector<HostCopy>> copies;  // by GPU
  for (const Tensor& tensor : tensors) {
    results.push_back(Tensor::empty(tensor.spec(), Device{}));
    packed.push_back(tensor.is_contiguous() ? tensor : tensor.contiguous());
    if (tensor.bytes() == 0) continue;
    const HostCopy copy{results.back().data(), packed.back().data(), tensor.bytes()};
    if (tensor.device().type == DeviceType::Cpu) {
      backend(Device{}).copy_all_to_host({&copy, 1}, patience);
    } else {
      copies[tensor.device().index].push_back(copy);
    }
  }
  for (const auto& [index, of_device] : copies) {
    backend({DeviceType::Cuda, index}).copy_all_to_host(of_device, patience);
  }
  return results;
}

}  // namespace kerascnn
