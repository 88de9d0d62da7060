// Tensors on a GPU from and to other libraries through `__cuda_array_interface__`, version 3
// (https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html): a dictionary that says
// where the memory is. Unlike DLPack it has no bfloat16, and nobody says when they are done with
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/tensor/tensor.h"

namespace kerascnn {

// The fields of the dictionary.
struct CudaArray {
  uintptr_t data = 0;  // 0 where there are no elements
  bool read_only = false;
  Shape shape;
  std::string typestr;           // "<f4"
  std::optional<Shape> strides;  // in bytes; none for row-major order
  std::optional<intptr_t> stream;
  int version = 3;
};

// A tensor over the array's memory, after the work on its stream. `release` as for
// tensor_from_dlpack(). Throws TypeError for a dtype that is not supported, ValueError for fields
// that make no sense, DeviceError for memory that is not a GPU's.
Tensor tensor_from_cuda_array(const CudaArray& array, std::function<void()> release);

// Can the tensor be described so: is it on a GPU, and not bfloat16?
bool has_cuda_array(const Tensor& tensor);
// The memory is then used by others until it is freed.
CudaArray cuda_array_of(const Tensor& tensor);

}  // namespace kerascnn
