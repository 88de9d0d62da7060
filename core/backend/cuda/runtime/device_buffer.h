// A small piece of device memory that belongs to a planned kernel (tickets, tables), zeroed at
// creation. A kernel that writes to one keeps state, which make_kernel has to be told.
#pragma once

#include <cstdint>

#include "core/backend/cuda/runtime/check.h"

namespace kerascnn::cuda {

class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t bytes) {
    check(cudaMalloc(&data_, bytes), "cudaMalloc of a kernel's buffer");
    check(cudaMemset(data_, 0, bytes), "cudaMemset of a kernel's buffer");
    // Kernels run on a stream of their own, which does not wait for this one.
    check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }
  ~DeviceBuffer() { (void)cudaFree(data_); }  // waits for kernels that still use it
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

}  // namespace kerascnn::cuda
