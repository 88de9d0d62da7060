// Every status of CUDA, cuDNN and cuBLASLt goes through one of these. They throw LibraryError with
// the call, the status by name and text, and the library's version. Some errors lose the GPU for
// this process: the first of them is kept, and whatever fails later names it.
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

// Makes the device the current one of the calling thread. Every entry from outside begins with
// this: after an error that lost the GPU it throws at once, and says which error that was.
void use_device(int index);

// Call it after a kernel launch: it reports the launch's own error (a bad grid, too much shared
// memory) and clears it.
void check_launch(std::string_view kernel);

}  // namespace kerascnn::cuda
