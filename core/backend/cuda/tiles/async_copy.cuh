// These are asynchronous copies to shared memory (sm_80 and newer), and the main loop of a block
// over tiles that such copies bring.
#pragma once

#include <cstdint>

namespace kerascnn::cuda {

// Starts copying the first `bytes` of kSize bytes (4, 8 or 16) to shared memory, and zeros for the
// rest.
template <int kSize>
__device__ __forceinline__ void copy_async(void* shared, const void* global, int bytes) {
  static_assert(kSize == 4 || kSize == 8 || kSize == 16);
#if __CUDA_ARCH__ >= 800
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  if constexpr (kSize == 16) {  // not through the first cache
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global),
                 "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(global),
                 "n"(kSize), "r"(bytes)
                 : "memory");
  }
#else
  __trap();
#endif
}

__device__ __forceinline__ void copy_async_16(void* shared, const void* global, bool valid) {
  copy_async<16>(shared, global, valid ? 16 : 0);
}

__device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most kPending of the committed groups are still under way.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

// Runs a block's main loop: start(turn, stage) starts the copies of a turn, and use(stage) works
// with them once they have come. Those of the next kStages - 1 turns are under way meanwhile.
template <int kStages, typename Start, typename Use>
__device__ __forceinline__ void run_stages(int turns, Start start, Use use) {
  for (int turn = 0; turn < kStages - 1; ++turn) {
    if (turn < turns) start(turn, turn);
    commit_copies();
  }
  for (int turn = 0; turn < turns; ++turn) {
    wait_for_copies<kStages - 2>();
    __syncthreads();  // the turn's tiles are complete, and everybody has left the stage filled next
    const int next = turn + kStages - 1;
    if (next < turns) start(next, next % kStages);
    commit_copies();
    use(turn % kStages);
  }
}

}  // namespace kerascnn::cuda
