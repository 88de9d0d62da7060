#include "core/backend/cuda/runtime/check.h"

#include "core/base/error.h"

namespace kerascnn::cuda {
namespace {

// After such faults the context is unusable: every later call fails the same way.
bool is_sticky(cudaError_t status) {
  return status == cudaErrorIllegalAddress || status == cudaErrorLaunchFailure ||
         status == cudaErrorMisalignedAddress || status == cudaErrorAssert ||
         status == cudaErrorHardwareStackError || status == cudaErrorIllegalInstruction;
}

}  // namespace

void check(cudaError_t status, std::string_view call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // so that the next call does not report this error again
  int version = 0;
  cudaRuntimeGetVersion(&version);
  std::string text =
      message(call, ": CUDA error ", cudaGetErrorName(status), " (", cudaGetErrorString(status),
              "), CUDA runtime ", version / 1000, ".", version % 1000 / 10);
  if (is_sticky(status)) {
    text +=
        ". The GPU context of this process is lost: save what is on the host and start the "
        "process again; KERASCNN_CUDA_GRAPHS=0 launches kernels one by one, which names the "
        "one that fails";
  }
  throw LibraryError(text);
}

void check(cudnnStatus_t status, std::string_view call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw LibraryError(
      message(call, ": cuDNN error ", cudnnGetErrorString(status), ", cuDNN ", cudnnGetVersion()));
}

void check(cublasStatus_t status, std::string_view call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw LibraryError(message(call, ": cuBLASLt error ", cublasLtGetStatusName(status), " (",
                             cublasLtGetStatusString(status), "), cuBLASLt ",
                             cublasLtGetVersion()));
}

void check_launch(std::string_view kernel) { check(cudaGetLastError(), kernel); }

}  // namespace kerascnn::cuda
