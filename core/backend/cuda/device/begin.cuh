// How kernels begin that may be started before what they depend on has ended (sm_90 and newer,
// "programmatic dependent launch").
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "core/backend/cuda/runtime/check.h"
#include "core/backend/cuda/runtime/context.h"

namespace kerascnn::cuda {

// Every kernel that make_early_kernel or make_summing_kernel launches first, or that launch_waiting
// launches, begins with this, before it touches memory. It waits until all kernels that the launch
// depends on have ended and their writes can be seen; where the launch was an ordinary one it
// returns at once. Then it lets the next kernel start, and wait in turn. The order of these two
// matters: a kernel that still reads what this one overwrites has ended before the next one starts,
// so that no cache of a multiprocessor can hold old values for it.
__device__ __forceinline__ void begin_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The same, with loads around it: load number i comes before the wait where bit i of `settled` says
// that nothing which may still run writes what it reads, else after it. Loads before the wait do
// not lengthen the chain of kernels.
template <typename... Loads>
__device__ __forceinline__ void begin_kernel(uint32_t settled, Loads... loads) {
#pragma unroll 1  // code once, whenever it runs
  for (int turn = 0; turn < 2; ++turn) {
    if (turn == 1) begin_kernel();
    int number = 0;
    ((((settled >> number++ & 1) != 0) == (turn == 0) ? loads() : void()), ...);
  }
}

// Launches a kernel that begins with begin_kernel(); where `early` says so, it starts while the one
// before it on the stream still runs.
template <typename... P, typename... A>
void launch_waiting(void (*kernel)(P...), dim3 grid, dim3 block, cudaStream_t stream, bool early,
                    A&&... args) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, std::forward<A>(args)...), "cudaLaunchKernelEx");
}

// The same; the kernel starts early wherever the device allows it.
template <typename... P, typename... A>
void launch_early(void (*kernel)(P...), dim3 grid, dim3 block, cudaStream_t stream, A&&... args) {
  launch_waiting(kernel, grid, block, stream, Context::current().allows_early_starts(),
                 std::forward<A>(args)...);
}

}  // namespace kerascnn::cuda
