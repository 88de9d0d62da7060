// Tensor-core products of float32 matrices in TF32, and asynchronous copies to shared memory (sm_80
// and newer).
#pragma once

#include <cstdint>

namespace kerascnn::cuda {

// Tensor cores read the upper 19 bits of a float and drop the rest, which makes every number a
// little smaller: by 2^-11 / m on average, with the mantissa m between 1 and 2. This factor takes
// the bias away, keeps what TF32 holds exactly as it is, and lets infinities and NaN through. It is
// one instruction; rounding to the nearest takes five.
__device__ __forceinline__ float unbiased_tf32(float value) {
  return value * (1.0f + 0x1p-11f * 0.69f);
}

__device__ __forceinline__ uint32_t to_tf32(float value) {
  return __float_as_uint(unbiased_tf32(value));
}

// The nearest number of TF32, as bits of a float.
__device__ __forceinline__ uint32_t nearest_tf32(float value) {
  uint32_t bits = 0;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
#else
  __trap();  // planned for sm_80 and newer only
#endif
  return bits;
}

// d (16, 8) += a (16, 8) @ b (8, 8), spread over a warp. Lane l, with g = l / 4 and t = l % 4,
// holds a[g][t], a[g + 8][t], a[g][t + 4], a[g + 8][t + 4]; b[t][g], b[t + 4][g]; d[g][2t], d[g][2t
// + 1], d[g + 8][2t], d[g + 8][2t + 1].
__device__ __forceinline__ void multiply_tf32(float (&d)[4], const uint32_t (&a)[4],
                                              const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();  // planned for sm_80 and newer only
#endif
}

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

}  // namespace kerascnn::cuda
