// Every status of CUDA, cuDNN and cuBLASLt goes through one of these. They throw LibraryError with
// the call, the status by name and text, and the library's version.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <string_view>

namespace kerascnn::cuda {

// `call` says what was attempted, with the op and shapes where there are any.
void check(cudaError_t status, std::string_view call);
void check(cudnnStatus_t status, std::string_view call);
void check(cublasStatus_t status, std::string_view call);

// Call it after a kernel launch: it reports the launch's own error (a bad grid, too much shared
// memory) and clears it.
void check_launch(std::string_view kernel);

}  // namespace kerascnn::cuda
