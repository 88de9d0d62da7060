// What libkerascnn finds in this library after it has opened it.
#include <map>
#include <memory>
#include <mutex>

#include "core/backend/cuda/runtime/check.h"
#include "core/backend/cuda/runtime/cuda_backend.h"
#include "core/backend/cuda/runtime/nccl.h"
#include "core/backend/cuda/runtime/nvrtc.h"
#include "core/base/core_interface.h"
#include "core/base/error.h"

namespace kerascnn::cuda {
namespace {

int count_devices(std::string* reason) {
  if (is_fork()) {
    *reason = fork_reason();
    return 0;
  }
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) {
    watch_forks();
    return count;
  }
  (void)cudaGetLastError();
  int driver = 0, runtime = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  const std::string built =
      "kerascnn's CUDA library uses the CUDA runtime " + version_text(runtime);
  if (status == cudaErrorInsufficientDriver && driver == 0) {
    *reason = "no NVIDIA driver was found (" + built +
              "); install a driver for CUDA 13 or newer, or use the device \"cpu\"";
  } else if (status == cudaErrorInsufficientDriver) {
    *reason = "the NVIDIA driver supports CUDA " + version_text(driver) + ", but " + built +
              "; install a newer driver";
  } else if (status == cudaSuccess || status == cudaErrorNoDevice) {
    *reason =
        "the driver reports no GPU (" + built + "); check nvidia-smi and CUDA_VISIBLE_DEVICES";
  } else {
    *reason =
        message("cudaGetDeviceCount failed with ", cudaGetErrorName(status), " (",
                cudaGetErrorString(status), "; ", built, ", driver ", version_text(driver), ")");
    if (status == cudaErrorInitializationError) {
      *reason += "; was this process forked after a library, such as PyTorch, had begun with CUDA?";
    }
  }
  return 0;
}

int device_count() {
  std::string reason;
  return count_devices(&reason);
}

std::string unavailable_reason() {
  std::string reason;
  count_devices(&reason);
  return reason;
}

Backend& backend_of(int index) {
  static std::mutex mutex;
  // These are never destroyed: see Context::of_device.
  static auto* backends = new std::map<int, std::unique_ptr<CudaBackend>>();
  std::lock_guard lock(mutex);
  auto& backend = (*backends)[index];
  if (!backend) backend = std::make_unique<CudaBackend>(index);
  return *backend;
}

std::string nvrtc_state() {
  try {
    return nvrtc_version();
  } catch (const LibraryError& error) {
    return error.what();
  }
}

}  // namespace
}  // namespace kerascnn::cuda

extern "C" __attribute__((visibility("default"))) const kerascnn::CudaPlugin*
kerascnn_cuda_plugin() {
  static const kerascnn::CudaPlugin plugin = {
      kerascnn::cuda::device_count,      kerascnn::cuda::unavailable_reason,
      kerascnn::cuda::backend_of,        kerascnn::cuda::library_versions,
      kerascnn::cuda::start_compile_for, kerascnn::cuda::nvrtc_state,
      kerascnn::cuda::nccl_collectives};
  return &plugin;
}

extern "C" __attribute__((visibility("default"))) const char* kerascnn_cuda_interface() {
  return kerascnn::kCoreInterface;
}
