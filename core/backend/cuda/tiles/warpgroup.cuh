// Products of four warps together on Hopper's tensor cores ("wgmma"), which reach twice the rate of
// what a warp multiplies by itself (fragments.cuh). They exist on compute capability 9.0 alone, in
// code that is compiled for sm_90a; kWarpgroups says whether this code is. Elsewhere each warp
// multiplies the same factors by itself, and the functions that order what warpgroups do are empty.
//
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
#pragma once

#include <cstdint>

#include "core/backend/cuda/tiles/numbers.cuh"

namespace kerascnn::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool kWarpgroups = true;
#else
constexpr bool kWarpgroups = false;
#endif

constexpr int kWarpgroup = 4;  // warps; they begin with a warp whose number is a multiple

// This is where the second factor (8, columns) lies in shared memory. It has two halves of 4 rows;
// a half has blocks of 8 columns, and a block has the 4 rows of a column side by side. A block is
// thus 128 bytes, and a half has columns / 8 blocks.
__device__ __forceinline__ constexpr int place_in_factor(int row, int column, int columns) {
  return row / 4 * columns * 4 + column * 4 + row % 4;
}

// Describes such a factor to the tensor cores. `shared` is a multiple of 16 bytes.
__device__ __forceinline__ uint64_t describe_factor(const float* shared, int columns) {
  const uint64_t address = __cvta_generic_to_shared(shared);
  const uint64_t to_next_rows = static_cast<uint64_t>(columns) * 16, to_next_columns = 128;
  return (address >> 4 & 0x3fff) | to_next_rows >> 4 << 16 | to_next_columns >> 4 << 32;
}

// Every thread that has written what tensor cores or copies of boxes are to read calls this before
// the barrier.
__device__ __forceinline__ void publish_to_async_proxy() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Call it before products whose factors or sums have just been written to registers.
__device__ __forceinline__ void begin_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void commit_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

// Waits until at most kPending of the committed groups are still under way; until then their sums
// and their factors in registers must stay as they are.
template <int kPending>
__device__ __forceinline__ void wait_for_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#endif
}

// Gives registers of the calling warpgroup back, or waits until it can have more: each thread has
// kCount of them from here on, a multiple of 8.
template <int kCount>
__device__ __forceinline__ void give_registers_back() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}
template <int kCount>
__device__ __forceinline__ void take_registers() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}

// Starts sums (64, 8 * kTiles) += a (64, 8) @ b (8, 8 * kTiles) in TF32; each of the four warps has
// 16 rows of a and of the sums, spread over its lanes as Tf32Numbers::multiply() has them.
template <int kTiles>
__device__ __forceinline__ void multiply_warpgroup(float (&d)[kTiles][4], const LeftFragment& left,
                                                   uint64_t b) {
  static_assert(kTiles == 1 || kTiles == 2 || kTiles == 4 || kTiles == 8);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const auto& a = left.words;
  if constexpr (kTiles == 1) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, %8, 1, 1, 1;"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  } else if constexpr (kTiles == 2) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n16k8.f32.tf32.tf32 {%0, %1, %2, %3, %4, %5, %6, %7}, "
        "{%8, %9, %10, %11}, %12, 1, 1, 1;"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
          "+f"(d[1][2]), "+f"(d[1][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  } else if constexpr (kTiles == 4) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k8.f32.tf32.tf32 {%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, 1, 1, 1;"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
          "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  } else {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
        "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
        "%27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, 1, 1, 1;"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
          "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
          "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
          "+f"(d[7][2]), "+f"(d[7][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
#else
  (void)d, (void)left, (void)b;
#endif
}

// Adds a[i] @ factor to sums[i]; the factor has 8 * kTiles columns in shared memory. Where
// warpgroups do it, this comes between begin_products() and commit_products().
template <int kTiles, int kCount>
__device__ __forceinline__ void multiply_factor(float (&sums)[kCount][kTiles][4],
                                                const LeftFragment (&a)[kCount],
                                                const float* factor) {
  if constexpr (kWarpgroups) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      multiply_warpgroup<kTiles>(sums[i], a[i], describe_factor(factor, kTiles * 8));
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const float* of_lane = factor + j * 32 + threadIdx.x % 32;
        const RightFragment b = {{bits(of_lane[0]), bits(of_lane[kTiles * 32])}};
        Tf32Numbers::multiply(sums[i][j], a[i], b);
      }
    }
  }
}

}  // namespace kerascnn::cuda
