// Loads from shared memory at addresses of 32 bits.
//
// For an access through a pointer the compiler works out where the block's shared memory begins
// (sm_90), and in a loop that is short of registers it does so for each.
#pragma once

#include <cstdint>

#include "core/backend/cuda/device/types.cuh"

namespace kerascnn::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// These are `volatile` so that they stay between the barriers that they are written between.
__device__ __forceinline__ void load_shared(uint16_t& to, uint32_t address) {
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(to) : "r"(address));
}
__device__ __forceinline__ void load_shared(uint32_t& to, uint32_t address) {
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(to) : "r"(address));
}
__device__ __forceinline__ void load_shared(uint32_t (&to)[2], uint32_t address) {
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(address));
}
__device__ __forceinline__ void load_shared(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}

}  // namespace kerascnn::cuda
