// A point in the work of a device's streams.
#pragma once

#include "core/backend/backend.h"
#include "core/backend/cuda/runtime/handles.h"

namespace kerascnn::cuda {

class Context;

class CudaFence final : public Fence {
 public:
  explicit CudaFence(Context& context);

  void record() override;  // on the context's stream
  bool passed() override;
  void wait() override;

  void record_on(cudaStream_t stream);
  // What is enqueued on the stream from now on waits for this point.
  void hold_back(cudaStream_t stream);

 private:
  void activate();

  Context& context_;
  Event event_;
};

}  // namespace kerascnn::cuda
