// Permission to launch a kernel with more than 48 KiB of dynamic shared memory.
#pragma once

#include "core/backend/cuda/runtime/context.h"

namespace kerascnn::cuda {

// Allows launches with as much as a block can have, rather than what one plan needs: the permission
// belongs to the function, and a later plan that needs less would take it from an earlier one.
template <typename Function>
void allow_most_shared_memory(Function* kernel) {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  const auto fixed = static_cast<int>(attributes.sharedSizeBytes);
  const auto most = static_cast<int>(Context::current().properties().sharedMemPerBlockOptin);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most - fixed),
        "cudaFuncSetAttribute");
}

}  // namespace kerascnn::cuda
