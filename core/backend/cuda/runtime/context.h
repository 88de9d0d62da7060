// What kernels need of the device they are planned for: its properties, the stream, library
// handles.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "core/backend/cuda/runtime/handles.h"
#include "core/backend/later_runs.h"

namespace kerascnn::cuda {

// cuDNN on a stream, for one thread at a time as long as this lives.
struct CudnnUse {
  std::unique_lock<std::mutex> lock;
  cudnnHandle_t handle;
};

class Context {
 public:
  explicit Context(int index);

  // The context of the device that is current for the calling thread (Backend::activate() makes one
  // current).
  static Context& current();
  static Context& of_device(int index);  // created on first use, alive until the process ends

  int index() const { return index_; }
  int multiprocessors() const { return properties_.multiProcessorCount; }
  const cudaDeviceProp& properties() const { return properties_; }
  int compute_capability() const { return properties_.major * 10 + properties_.minor; }
  // For putting work on it, or waiting for it: all earlier work is on it already.
  cudaStream_t stream() {
    later_runs_->flush();
    return stream_.get();
  }
  // The same for callers that can't report that waiting steps could not be started: the next call
  // of stream() reports it.
  cudaStream_t quiet_stream() noexcept {
    later_runs_->flush_quietly();
    return stream_.get();
  }
  // Steps that are not on the stream yet.
  LaterRuns& later_runs() { return *later_runs_; }
  // For copies from the host that run beside the work of the stream above.
  cudaStream_t copy_stream();
  // For capturing graphs, by one thread at a time; other threads go on putting work on the stream
  // above.
  cudaStream_t capture_stream();
  std::mutex& capturing() { return capturing_; }
  // May kernels start before what they wait for has ended (sm_90 and newer,
  // KERASCNN_CUDA_EARLY_STARTS)? See device/begin.cuh.
  bool allows_early_starts() const;
  // Is it the stream for work that is launched by itself, which is never captured?
  bool is_own(cudaStream_t stream) const { return stream == stream_.get(); }

  // Both are created on first use: loading cuDNN takes a tenth of a second that not every program
  // needs.
  cublasLtHandle_t cublas_lt();
  CudnnUse use_cudnn(cudaStream_t stream);

 private:
  int index_;
  cudaDeviceProp properties_{};
  Stream stream_;
  std::once_flag copy_stream_made_;  // several threads enqueue copies
  Stream copy_stream_;
  std::once_flag capture_stream_made_;
  Stream capture_stream_;
  std::mutex capturing_;
  std::unique_ptr<LaterRuns> later_runs_;
  std::once_flag cublas_lt_made_;
  CublasLtHandle cublas_lt_;
  std::mutex using_cudnn_;
  CudnnHandle cudnn_;
};

// Writes 13000 as "13.0".
std::string version_text(int version);
// "CUDA runtime 13.0, driver 13.0, cuDNN 9.19.0, cuBLASLt 13.1.0, cuFFT 12.0.0"
std::string library_versions();

}  // namespace kerascnn::cuda
