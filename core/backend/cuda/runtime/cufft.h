// Plans of cuFFT. Its library is opened with the first plan, so that programs without transforms
// don't need it.
#pragma once

#include <cuda_runtime_api.h>
#include <cufft.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace kerascnn::cuda {

// Transforms of `lines` contiguous lines of `length` elements.
class CufftPlan {
 public:
  // `op` is for errors. Throws LibraryError where there is no cuFFT, and names the remedy.
  CufftPlan(std::string op, cufftType type, int64_t length, int64_t lines);
  ~CufftPlan();
  CufftPlan(const CufftPlan&) = delete;
  CufftPlan& operator=(const CufftPlan&) = delete;

  int64_t workspace_bytes() const { return workspace_bytes_; }
  // `inverse` matters where input and output are complex; these may then be the same memory.
  // Neither direction has a factor. Complex input may be overwritten.
  void run(void* input, void* output, bool inverse, void* workspace, cudaStream_t stream);

 private:
  std::string op_;
  cufftType type_;
  cufftHandle handle_ = 0;
  int64_t workspace_bytes_ = 0;
  std::mutex mutex_;  // a plan holds the stream and the workspace of its next run
};

// "cuFFT 12.0.0", or "no cuFFT" where it can't be opened.
std::string cufft_version();

}  // namespace kerascnn::cuda
