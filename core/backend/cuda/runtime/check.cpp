#include "core/backend/cuda/runtime/check.h"

#include <pthread.h>

#include <atomic>

#include "core/base/error.h"

namespace kerascnn::cuda {
namespace {

// After such faults, which CUDA's reference lists, every later call of the process fails.
bool loses_device(cudaError_t status) {
  switch (status) {
    case cudaErrorAssert:
    case cudaErrorContained:
    case cudaErrorECCUncorrectable:
    case cudaErrorExternalDevice:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorMisalignedAddress:
    case cudaErrorMpsClientTerminated:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorTensorMemoryLeak:
      return true;
    default:
      return false;
  }
}

constexpr std::string_view kWaysOut =
    ". Tensors and weights there are gone, what is on the host can be saved. Start the process "
    "again: `fit` goes on from the last checkpoint of BackupAndRestore. KERASCNN_CUDA_GRAPHS=0 "
    "launches kernels one by one, which names the one that fails, and KERASCNN_CHECK_KERNELS=1 "
    "finds what writes beside its output";

// The text of the error that lost the GPU. It is never freed: calls at the process' end ask for it.
std::atomic<const std::string*> loss{nullptr};

// Why sums with other processes were given up; never freed either.
std::atomic<const std::string*> giving_up{nullptr};
std::atomic<bool> is_reported{false};

std::atomic<bool> is_forked{false};

[[noreturn]] void throw_lost(std::string_view before) {
  throw LibraryError(message(
      before, "the GPU is lost to this process since an error before: ", *loss.load(), kWaysOut));
}

[[noreturn]] void throw_failure(std::string text, cudaError_t status) {
  if (loss.load() != nullptr) throw_lost(message(text, "; "));
  if (!loses_device(status)) throw LibraryError(text);
  const auto* const kept = new std::string(text);
  const std::string* none = nullptr;
  if (!loss.compare_exchange_strong(none, kept)) delete kept;  // another thread met it first
  throw LibraryError(message(text, ". The GPU is lost to this process", kWaysOut));
}

// Libraries have statuses of their own for a GPU that is lost, and CUDA says why it is.
cudaError_t state_of_device() {
  size_t free_bytes = 0, total_bytes = 0;
  const cudaError_t status = cudaMemGetInfo(&free_bytes, &total_bytes);
  (void)cudaGetLastError();
  return status;
}

}  // namespace

void check(cudaError_t status, std::string_view call) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // so that the next call does not report this error again
  int version = 0;
  (void)cudaRuntimeGetVersion(&version);
  throw_failure(
      message(call, ": CUDA error ", cudaGetErrorName(status), " (", cudaGetErrorString(status),
              "), CUDA runtime ", version / 1000, ".", version % 1000 / 10),
      status);
}

void check(cudnnStatus_t status, std::string_view call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw_failure(
      message(call, ": cuDNN error ", cudnnGetErrorString(status), ", cuDNN ", cudnnGetVersion()),
      state_of_device());
}

void check(cublasStatus_t status, std::string_view call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw_failure(message(call, ": cuBLASLt error ", cublasLtGetStatusName(status), " (",
                        cublasLtGetStatusString(status), "), cuBLASLt ", cublasLtGetVersion()),
                state_of_device());
}

void use_device(int index) {
  if (is_fork()) throw DeviceError(message("cuda:", index, " can't be used: ", fork_reason()));
  check_given_up();
  if (loss.load(std::memory_order_relaxed) != nullptr) throw_lost("");
  check(cudaSetDevice(index), "cudaSetDevice");
}

void watch_forks() {
  static const int once = pthread_atfork(nullptr, nullptr, [] { is_forked = true; });
  (void)once;
}

bool is_fork() { return is_forked.load(std::memory_order_relaxed); }

std::string fork_reason() {
  return "this process was forked from one that had begun to use CUDA, which does not go on in a "
         "child; start processes by \"spawn\" or \"forkserver\", as "
         "multiprocessing.get_context(\"spawn\") does, or compute on the device \"cpu\" here";
}

void give_up_devices(const std::string& reason) {
  const auto* const kept = new std::string(reason);
  const std::string* none = nullptr;
  if (!giving_up.compare_exchange_strong(none, kept)) delete kept;
}

void check_given_up() {
  const std::string* const reason = giving_up.load(std::memory_order_relaxed);
  if (reason == nullptr) return;
  is_reported = true;
  throw DeviceError(*reason);
}

bool is_giving_up_reported() { return is_reported; }

void check_launch(std::string_view kernel) { check(cudaGetLastError(), kernel); }

}  // namespace kerascnn::cuda
