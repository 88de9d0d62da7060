#include "core/backend/cuda/runtime/fence.h"

#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/waiting.h"

namespace kerascnn::cuda {

CudaFence::CudaFence(Context& context) : context_(context) {
  activate();
  event_ = make_blocking_event();
}

void CudaFence::record() { record_on(context_.quiet_stream()); }

bool CudaFence::passed() {
  activate();
  return has_passed(event_.get());
}

void CudaFence::wait() {
  activate();
  wait_for(event_.get());
}

void CudaFence::record_on(cudaStream_t stream) {
  activate();
  check(cudaEventRecord(event_.get(), stream), "cudaEventRecord");
}

void CudaFence::hold_back(cudaStream_t stream) {
  check(cudaStreamWaitEvent(stream, event_.get(), 0), "cudaStreamWaitEvent");
}

void CudaFence::activate() { use_device(context_.index()); }

}  // namespace kerascnn::cuda
