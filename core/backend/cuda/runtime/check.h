// Every status of CUDA, cuDNN and cuBLASLt goes through one of these. They throw LibraryError with
// the call, the status by name and text, and the library's version. Some errors lose the GPU for
// this process: the first of them is kept, and whatever fails later names it.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <string>
#include <string_view>

namespace kerascnn::cuda {

// `call` says what was attempted, with the op and shapes where there are any.
void check(cudaError_t status, std::string_view call);
void check(cudnnStatus_t status, std::string_view call);
void check(cublasStatus_t status, std::string_view call);

// Makes the device the current one of the calling thread. Every entry from outside begins with
// this: after an error that lost the GPU it throws at once, and says which error that was.
void use_device(int index);

// CUDA does not go on in a child that fork() makes of a process that has begun to use it. From this
// call on such children are known; in them use_device() throws DeviceError with the reason.
void watch_forks();
bool is_fork();
std::string fork_reason();

// From now on use_device() and whoever waits for a device throw DeviceError with this reason: sums
// with other processes were given up, and what the devices hold may be wrong. The first one counts.
void give_up_devices(const std::string& reason);
// Throws it.
void check_given_up();
// Has it been thrown?
bool is_giving_up_reported();

// Call it after a kernel launch: it reports the launch's own error (a bad grid, too much shared
// memory) and clears it.
void check_launch(std::string_view kernel);

}  // namespace kerascnn::cuda
