#include "core/tensor/strided_copy.h"

#include <cstring>

#include "core/backend/backend.h"
#include "core/eager/eager.h"

namespace kerascnn {
namespace {

// Calls visit(offset) for every element in row-major order, with its offset in elements.
template <typename Visit>
void for_each_offset(const Shape& shape, const Shape& strides, Visit visit) {
  const size_t rank = shape.size();
  std::vector<int64_t> index(rank, 0);
  int64_t offset = 0;
  for (int64_t remaining = num_elements(shape); remaining > 0; --remaining) {
    visit(offset);
    for (size_t axis = rank; axis-- > 0;) {
      offset += strides[axis];
      if (++index[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

void copy_on_cpu(const Tensor& target, const Tensor& source) {
  const int64_t size = static_cast<int64_t>(itemsize(source.dtype()));
  const char* from = static_cast<const char*>(source.data());
  char* to = static_cast<char*>(target.data());
  // The innermost axis in one piece where its elements are adjacent.
  const bool whole_rows = !source.shape().empty() && source.strides().back() == 1;
  Shape shape = source.shape();
  Shape strides = source.strides();
  int64_t piece = size;
  if (whole_rows) {
    piece *= shape.back();
    shape.pop_back();
    strides.pop_back();
  }
  for_each_offset(shape, strides, [&](int64_t offset) {
    std::memcpy(to, from + offset * size, piece);
    to += piece;
  });
}

// An integer type of the same size: a copy must not depend on what the bits mean.
DType bits_dtype(DType dtype) {
  switch (itemsize(dtype)) {
    case 1:
      return DType::UInt8;
    case 2:
      return DType::Int16;
    case 4:
      return DType::Int32;
    default:
      return DType::Int64;
  }
}

// On a GPU, gathers from the memory that the source spans, so that no backend needs a kernel of its
// own for what happens only where arrays come in from other libraries.
void copy_by_gather(const Tensor& target, const Tensor& source) {
  int64_t lowest = 0;
  int64_t highest = 0;
  for (size_t axis = 0; axis < source.shape().size(); ++axis) {
    const int64_t reach = source.strides()[axis] * (source.shape()[axis] - 1);
    (reach < 0 ? lowest : highest) += reach;
  }
  const DType bits = bits_dtype(source.dtype());
  const int64_t size = static_cast<int64_t>(itemsize(bits));
  const int64_t byte_offset = static_cast<char*>(source.data()) -
                              static_cast<char*>(source.storage()->data()) + lowest * size;
  const Tensor span(source.storage(), TensorSpec{bits, {highest - lowest + 1}}, {1}, byte_offset,
                    true);

  std::vector<int64_t> offsets;
  offsets.reserve(source.size());
  for_each_offset(source.shape(), source.strides(),
                  [&](int64_t offset) { offsets.push_back(offset - lowest); });
  const Tensor indices =
      Tensor::from_host(offsets.data(), TensorSpec{DType::Int64, {source.size()}}, source.device());
  const Tensor packed = apply("gather", {span, indices}, {{"axis", int64_t{0}}})[0];
  backend(target.device()).copy(target.data(), packed.data(), target.bytes());
}

}  // namespace

void strided_copy(const Tensor& target, const Tensor& source) {
  if (source.device().type == DeviceType::Cpu) {
    copy_on_cpu(target, source);
  } else {
    copy_by_gather(target, source);
  }
}

}  // namespace kerascnn
