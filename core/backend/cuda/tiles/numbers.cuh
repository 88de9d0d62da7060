// These are the kinds of numbers that tensor cores multiply, and the products of a warp (sm_80 and
// newer).
//
// Both factors lie in words of 32 bits, two numbers of a 16-bit dtype or one of TF32. Spread over a
// warp in words, tiles of all kinds look alike, and only the instruction differs.
//
// Source: PTX ISA, "Matrix Fragments for mma.m16n8k8" and "mma.m16n8k16 with floating point type".
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/backend/cuda/device/types.cuh"

namespace kerascnn::cuda {

// Tensor cores read the upper 19 bits of a float and drop the rest, which makes every number a
// little smaller: by 2^-11 / m on average, with the mantissa m between 1 and 2. This factor takes
// the bias away, keeps what TF32 holds exactly as it is, and lets infinities and NaN through. It is
// one instruction; rounding to the nearest takes five.
__device__ __forceinline__ float unbiased_tf32(float value) {
  return value * (1.0f + 0x1p-11f * 0.69f);
}
__device__ __forceinline__ float2 unbiased_tf32(float2 v) {
  return {unbiased_tf32(v.x), unbiased_tf32(v.y)};
}
__device__ __forceinline__ float4 unbiased_tf32(float4 v) {
  return {unbiased_tf32(v.x), unbiased_tf32(v.y), unbiased_tf32(v.z), unbiased_tf32(v.w)};
}

// Gives the word of a number that has been through unbiased_tf32().
__device__ __forceinline__ uint32_t bits(float value) { return __float_as_uint(value); }

__device__ __forceinline__ uint32_t to_tf32(float value) { return bits(unbiased_tf32(value)); }

// Gives the nearest number of TF32, as bits of a float.
__device__ __forceinline__ uint32_t nearest_tf32(float value) {
  uint32_t bits = 0;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
#else
  __trap();  // planned for sm_80 and newer only
#endif
  return bits;
}

// What a lane holds of a tile of each factor. With g = lane / 4 and t = lane % 4, these are the
// words a[g][t], a[g + 8][t], a[g][t + 4], a[g + 8][t + 4] of the first factor (16 rows, 8 words),
// and b[t][g], b[t + 4][g] of the second one (8 words, 8 columns).
struct alignas(16) LeftFragment {
  uint32_t words[4];
};
struct RightFragment {
  uint32_t words[2];
};

// Each kind of numbers says which dtype T they come from, how many of them a word has, what memory
// holds of each of them, and how tiles are multiplied: d (16, 8) += a @ b, of which a lane holds
// d[g][2t], d[g][2t + 1], d[g + 8][2t], d[g + 8][2t + 1].
struct Tf32Numbers {
  using T = float;
  using Stored = uint32_t;
  static constexpr int kPerWord = 1;

  static __device__ __forceinline__ Stored stored(float value) { return nearest_tf32(value); }

  static __device__ __forceinline__ void multiply(float (&d)[4], const LeftFragment& a,
                                                  const RightFragment& b) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b.words[0]),
          "r"(b.words[1]));
#else
    __trap();  // planned for sm_80 and newer only
#endif
  }
};

// Half is __half or __nv_bfloat16.
template <typename Half>
struct HalfNumbers {
  using T = Half;
  using Stored = Half;
  static constexpr int kPerWord = 2;

  static __device__ __forceinline__ Stored stored(float value) { return store<T>(value); }

  static __device__ __forceinline__ void multiply(float (&d)[4], const LeftFragment& a,
                                                  const RightFragment& b) {
#if __CUDA_ARCH__ >= 800
    if constexpr (std::is_same_v<T, __half>) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
          "{%8, %9}, {%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b.words[0]),
            "r"(b.words[1]));
    } else {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
          "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b.words[0]),
            "r"(b.words[1]));
    }
#else
    __trap();  // planned for sm_80 and newer only
#endif
  }
};

// For float32 where TF32 is not allowed: a number is the sum of one of TF32 and a rest. Of their
// products only that of the rests is left out, which is 2^-22 of the whole at the most. Infinities
// make NaN.
struct SplitNumbers {
  using T = float;
  using Stored = uint32_t;
  static constexpr int kPerWord = 1;

  static __device__ __forceinline__ Stored stored(float value) { return __float_as_uint(value); }

  static __device__ __forceinline__ void multiply(float (&d)[4], const LeftFragment& a,
                                                  const RightFragment& b) {
    const auto& [a0, a1, a2, a3] = a.words;
    const auto& [b0, b1] = b.words;
    const LeftFragment upper_a = {{upper(a0), upper(a1), upper(a2), upper(a3)}};
    const RightFragment upper_b = {{upper(b0), upper(b1)}};
    const LeftFragment rest_a = {{rest(a0), rest(a1), rest(a2), rest(a3)}};
    const RightFragment rest_b = {{rest(b0), rest(b1)}};
    Tf32Numbers::multiply(d, rest_a, upper_b);
    Tf32Numbers::multiply(d, upper_a, rest_b);
    Tf32Numbers::multiply(d, upper_a, upper_b);
  }

 private:
  // Rounds to the nearest. A NaN may get lost here, but then it is in the rest.
  static __device__ __forceinline__ uint32_t upper(uint32_t bits) {
    return (bits + 0x1000u) & 0xffffe000u;
  }
  static __device__ __forceinline__ uint32_t rest(uint32_t bits) {
    return __float_as_uint(__uint_as_float(bits) - __uint_as_float(upper(bits)));
  }
};

}  // namespace kerascnn::cuda
