// Loads that begin before a register is free for what they bring.
//
// Source: PTX ISA, "prefetch".
#pragma once

namespace kerascnn::cuda {

// Has global memory at this address, which must be a tensor's, copied to the second cache (L2).
__device__ __forceinline__ void ask_ahead(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace kerascnn::cuda
