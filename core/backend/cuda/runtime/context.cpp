#include "core/backend/cuda/runtime/context.h"

#include <map>
#include <memory>
#include <mutex>

#include "core/backend/cuda/runtime/cufft.h"
#include "core/backend/cuda/runtime/fence.h"
#include "core/base/env.h"
#include "core/base/error.h"

namespace kerascnn::cuda {

Context::Context(int index) : index_(index) {
  use_device(index);
  check(cudaGetDeviceProperties(&properties_, index), "cudaGetDeviceProperties");
  stream_ = make_stream();
  later_runs_ = std::make_unique<LaterRuns>(std::make_unique<CudaFence>(*this),
                                            std::make_unique<CudaFence>(*this));
}

Context& Context::of_device(int index) {
  static std::mutex mutex;
  // These are never destroyed: at process exit the driver may be gone before this library's static
  // objects are.
  static auto* contexts = new std::map<int, std::unique_ptr<Context>>();
  std::lock_guard lock(mutex);
  auto& context = (*contexts)[index];
  if (!context) context = std::make_unique<Context>(index);
  return *context;
}

Context& Context::current() {
  int index = 0;
  check(cudaGetDevice(&index), "cudaGetDevice");
  return of_device(index);
}

cudaStream_t Context::copy_stream() {
  std::call_once(copy_stream_made_, [this] { copy_stream_ = make_stream(); });
  return copy_stream_.get();
}

cudaStream_t Context::capture_stream() {
  std::call_once(capture_stream_made_, [this] { capture_stream_ = make_stream(); });
  return capture_stream_.get();
}

bool Context::allows_early_starts() const {
  return compute_capability() >= 90 && env_flag("KERASCNN_CUDA_EARLY_STARTS", true);
}

cublasLtHandle_t Context::cublas_lt() {
  std::call_once(cublas_lt_made_, [this] {
    cublasLtHandle_t handle = nullptr;
    check(cublasLtCreate(&handle), "cublasLtCreate");
    cublas_lt_ = CublasLtHandle(handle);
  });
  return cublas_lt_.get();
}

CudnnUse Context::use_cudnn(cudaStream_t stream) {
  std::unique_lock lock(using_cudnn_);
  if (!cudnn_) {
    cudnnHandle_t handle = nullptr;
    check(cudnnCreate(&handle), "cudnnCreate");
    cudnn_ = CudnnHandle(handle);
  }
  check(cudnnSetStream(cudnn_.get(), stream), "cudnnSetStream");
  return {std::move(lock), cudnn_.get()};
}

std::string version_text(int version) { return message(version / 1000, ".", version % 1000 / 10); }

std::string library_versions() {
  int driver = 0, runtime = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  const size_t cudnn = cudnnGetVersion();
  const size_t cublas = cublasLtGetVersion();
  return message("CUDA runtime ", version_text(runtime), ", driver ",
                 driver > 0 ? version_text(driver) : "none", ", cuDNN ", cudnn / 10000, ".",
                 cudnn % 10000 / 100, ".", cudnn % 100, ", cuBLASLt ", cublas / 10000, ".",
                 cublas % 10000 / 100, ".", cublas % 100, ", ", cufft_version());
}

}  // namespace kerascnn::cuda
