// What kernels need of the device they are planned for: its properties, the stream, library
// handles.
#pragma once

#include <memory>
#include <mutex>

#include "core/backend/cuda/runtime/handles.h"
#include "core/backend/later_runs.h"

namespace kerascnn::cuda {

class Context {
 public:
  explicit Context(int index);

  // Of the device that is current for the calling thread (Backend::activate() makes one current).
  static Context& current();
  static Context& of_device(int index);  // created on first use, alive until the process ends

  int index() const { return index_; }
  int multiprocessors() const { return properties_.multiProcessorCount; }
  const cudaDeviceProp& properties() const { return properties_; }
  int compute_capability() const { return properties_.major * 10 + properties_.minor; }
  // To put work on, or to wait for: what was to be done before is on it.
  cudaStream_t stream() {
    later_runs_->flush();
    return stream_.get();
  }
  // Steps that are not on the stream yet.
  LaterRuns& later_runs() { return *later_runs_; }
  // For copies from the host that run beside the work of the stream above.
  cudaStream_t copy_stream();
  // May kernels start before what they wait for has ended (sm_90 and newer,
  // KERASCNN_CUDA_EARLY_STARTS)? See device/begin.cuh.
  bool allows_early_starts() const;

  // Created on first use: loading cuDNN takes a tenth of a second that not every program needs.
  cublasLtHandle_t cublas_lt();
  cudnnHandle_t cudnn();

 private:
  int index_;
  cudaDeviceProp properties_{};
  Stream stream_;
  std::once_flag copy_stream_made_;  // several threads enqueue copies
  Stream copy_stream_;
  std::unique_ptr<LaterRuns> later_runs_;
  CublasLtHandle cublas_lt_;
  CudnnHandle cudnn_;
};

}  // namespace kerascnn::cuda
