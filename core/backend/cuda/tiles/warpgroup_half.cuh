// Products of 16-bit numbers by warpgroups (see warpgroup.cuh) whose factors are both in shared
// memory.
//
// Factors lie there as copies of tensors write them that have 128 bytes a row and exchange 16 bytes
// at a time ("128B swizzle"): rows of 64 numbers, one after another, of which piece p of row r lies
// at p ^ r % 8. Rows are counted from a multiple of 1,024 bytes. A factor may begin with any row.
//
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout".
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/tiles/warpgroup.cuh"

namespace kerascnn::cuda {

constexpr int kSwizzledRow = 128;         // bytes
constexpr int kSwizzledPeriod = 8 * 128;  // bytes after which the exchanges repeat

// Describes rows from the given one on; adding n goes 16 * n bytes on. Where the rows go along the
// summed axis, they hold all 64 numbers of the other one.
__device__ __forceinline__ uint64_t describe_rows(const void* first) {
  const uint64_t address = __cvta_generic_to_shared(first);
  constexpr uint64_t kSwizzle128 = 1, kUnused = 1;
  return (address >> 4 & 0x3fff) | kUnused << 16 | uint64_t{kSwizzledPeriod} >> 4 << 32 |
         kSwizzle128 << 62;
}

// The same for rows of 32 numbers, 64 bytes, of which piece p of row r lies at p ^ r / 2 % 4,
// counted from a multiple of 512 bytes.
__device__ __forceinline__ uint64_t describe_half_rows(const void* first) {
  const uint64_t address = __cvta_generic_to_shared(first);
  constexpr uint64_t kSwizzle64 = 2, kUnused = 1;
  return (address >> 4 & 0x3fff) | kUnused << 16 | uint64_t{kSwizzledPeriod / 2} >> 4 << 32 |
         kSwizzle64 << 62;
}

// Lists of registers for the instructions below: %0 to %9, %10 to %19 and so on.
#define KERASCNN_FIVE(n, a, b, c, d, e) \
  "%" #n #a ", %" #n #b ", %" #n #c ", %" #n #d ", %" #n #e ", "
#define KERASCNN_TEN(n) KERASCNN_FIVE(n, 0, 1, 2, 3, 4) KERASCNN_FIVE(n, 5, 6, 7, 8, 9)
#define KERASCNN_SIXTY \
  KERASCNN_TEN() KERASCNN_TEN(1) KERASCNN_TEN(2) KERASCNN_TEN(3) KERASCNN_TEN(4) KERASCNN_TEN(5)
#define KERASCNN_FOUR(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define KERASCNN_SIXTEEN(i) \
  KERASCNN_FOUR(i), KERASCNN_FOUR(i + 1), KERASCNN_FOUR(i + 2), KERASCNN_FOUR(i + 3)
#define KERASCNN_SIXTYFOUR(i) \
  KERASCNN_SIXTEEN(i), KERASCNN_SIXTEEN(i + 4), KERASCNN_SIXTEEN(i + 8), KERASCNN_SIXTEEN(i + 12)

// The numbers of the registers behind the sums are those of the inputs, in their order.
#define KERASCNN_MULTIPLY(columns, dtype, registers, left_at, right_at, left_transposed,  \
                          right_transposed, adds_at, ...)                                 \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds_at                          \
               ", 0;\n"                                                                   \
               "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." dtype "." dtype    \
               " "                                                                        \
               "{" registers "}, " left_at ", " right_at ", adds, 1, 1, " left_transposed \
               ", " right_transposed ";\n}\n"                                             \
               : __VA_ARGS__                                                              \
               : "l"(left), "l"(right), "n"(static_cast<int>(kLeftTransposed)),           \
                 "n"(static_cast<int>(kRightTransposed)), "r"(adds_up))
#define KERASCNN_MULTIPLY_136(dtype)                                                            \
  KERASCNN_MULTIPLY(136, dtype, KERASCNN_SIXTY "%60, %61, %62, %63, %64, %65, %66, %67", "%68", \
                    "%69", "%70", "%71", "%72", KERASCNN_SIXTYFOUR(0), KERASCNN_FOUR(16))
#define KERASCNN_MULTIPLY_32(dtype)                                                                \
  KERASCNN_MULTIPLY(32, dtype, KERASCNN_TEN() "%10, %11, %12, %13, %14, %15", "%16", "%17", "%18", \
                    "%19", "%20", KERASCNN_SIXTEEN(0))

#define KERASCNN_MULTIPLY_64(dtype)                                                              \
  KERASCNN_MULTIPLY(64, dtype, KERASCNN_TEN() KERASCNN_TEN(1) KERASCNN_TEN(2) "%30, %31", "%32", \
                    "%33", "%34", "%35", "%36", KERASCNN_SIXTEEN(0), KERASCNN_SIXTEEN(4))

// The first factor from registers.
#define KERASCNN_MULTIPLY_LEFT(columns, dtype, registers, a0, a1, a2, a3, right_at,    \
                               right_transposed, adds_at, ...)                         \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds_at                       \
               ", 0;\n"                                                                \
               "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." dtype "." dtype \
               " "                                                                     \
               "{" registers "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " right_at          \
               ", adds, 1, 1, " right_transposed ";\n}\n"                              \
               : __VA_ARGS__                                                           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right),               \
                 "n"(static_cast<int>(kRightTransposed)), "r"(adds_up))
#define KERASCNN_MULTIPLY_LEFT_64(dtype)                                                       \
  KERASCNN_MULTIPLY_LEFT(64, dtype, KERASCNN_TEN() KERASCNN_TEN(1) KERASCNN_TEN(2) "%30, %31", \
                         "%32", "%33", "%34", "%35", "%36", "%37", "%38", KERASCNN_SIXTEEN(0), \
                         KERASCNN_SIXTEEN(4))
#define KERASCNN_MULTIPLY_LEFT_136(dtype)                                                        \
  KERASCNN_MULTIPLY_LEFT(136, dtype, KERASCNN_SIXTY "%60, %61, %62, %63, %64, %65, %66, %67",    \
                         "%68", "%69", "%70", "%71", "%72", "%73", "%74", KERASCNN_SIXTYFOUR(0), \
                         KERASCNN_FOUR(16))

// Starts sums (64, 8 * kTiles) = a (64, 16) @ b (16, 8 * kTiles), or += where adds_up is not 0.
// `left` describes rows of a with 16 numbers each, or, where it is transposed, 16 rows, one for
// each column of a, with all 64 numbers of it. `right` describes rows, one for each column of b,
// with 16 numbers of it, or, where it is transposed, 16 rows of b. Each of the four warps has 16
// rows of the sums, spread over its lanes as HalfNumbers::multiply() has them. This comes between
// begin_products() and commit_products().
template <typename Half, int kTiles, bool kLeftTransposed, bool kRightTransposed>
__device__ __forceinline__ void multiply_rows(float (&d)[kTiles][4], uint64_t left, uint64_t right,
                                              int adds_up) {
  static_assert(kTiles == 4 || kTiles == 8 || kTiles == 17);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr bool kIsHalf = std::is_same_v<Half, __half>;
  if constexpr (kTiles == 4) {
    if constexpr (kIsHalf) {
      KERASCNN_MULTIPLY_32("f16");
    } else {
      KERASCNN_MULTIPLY_32("bf16");
    }
  } else if constexpr (kTiles == 8) {
    if constexpr (kIsHalf) {
      KERASCNN_MULTIPLY_64("f16");
    } else {
      KERASCNN_MULTIPLY_64("bf16");
    }
  } else {
    if constexpr (kIsHalf) {
      KERASCNN_MULTIPLY_136("f16");
    } else {
      KERASCNN_MULTIPLY_136("bf16");
    }
  }
#else
  (void)d, (void)left, (void)right, (void)adds_up;
  __trap();  // planned for sm_90 only
#endif
}

// The same for a (64, 16) in registers, as HalfNumbers::multiply() has it.
template <typename Half, int kTiles, bool kRightTransposed>
__device__ __forceinline__ void multiply_left(float (&d)[kTiles][4], const LeftFragment& left,
                                              uint64_t right, int adds_up) {
  static_assert(kTiles == 8 || kTiles == 17);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr bool kIsHalf = std::is_same_v<Half, __half>;
  const auto& a = left.words;
  if constexpr (kTiles == 8) {
    if constexpr (kIsHalf) {
      KERASCNN_MULTIPLY_LEFT_64("f16");
    } else {
      KERASCNN_MULTIPLY_LEFT_64("bf16");
    }
  } else {
    if constexpr (kIsHalf) {
      KERASCNN_MULTIPLY_LEFT_136("f16");
    } else {
      KERASCNN_MULTIPLY_LEFT_136("bf16");
    }
  }
#else
  (void)d, (void)left, (void)right, (void)adds_up;
  __trap();  // planned for sm_90 only
#endif
}

#undef KERASCNN_FIVE
#undef KERASCNN_TEN
#undef KERASCNN_SIXTY
#undef KERASCNN_FIFTY_MORE
#undef KERASCNN_FOUR
#undef KERASCNN_SIXTEEN
#undef KERASCNN_SIXTYFOUR
#undef KERASCNN_MULTIPLY
#undef KERASCNN_MULTIPLY_32
#undef KERASCNN_MULTIPLY_64
#undef KERASCNN_MULTIPLY_136
#undef KERASCNN_MULTIPLY_LEFT
#undef KERASCNN_MULTIPLY_LEFT_64
#undef KERASCNN_MULTIPLY_LEFT_136

template <typename Half>
__device__ __forceinline__ uint32_t pack_pair(float first, float second) {
  const Half pair[2] = {store<Half>(first), store<Half>(second)};
  return *reinterpret_cast<const uint32_t*>(pair);
}

// Loads a factor (16, 16) of 16-bit numbers. Its matrices of 8 x 8 are those of the first 8 rows
// and of the second 8, and then the same of the columns behind. Lane 8 * i + r says where row r of
// matrix i is, 16 bytes, or, where it lies transposed, column r.
template <bool kTransposed>
__device__ __forceinline__ LeftFragment load_matrices(const void* from) {
  LeftFragment result;
  auto& words = result.words;
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(from));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  }
  return result;
}

// Stores matrices of 8 x 8 numbers of 16 bits: with g = lane / 4 and t = lane % 4, word i of a lane
// holds matrix i's numbers [g][2t] and [g][2t + 1]. Lane 8 * i + r says where row r of matrix i
// goes, 16 bytes.
__device__ __forceinline__ void store_matrices(void* to, const uint32_t (&words)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
#else
  (void)to, (void)words;
  __trap();  // planned for sm_90 only
#endif
}

// The same transposed: lane 8 * i + c says where column c of matrix i goes.
__device__ __forceinline__ void store_transposed(void* to, const uint32_t (&words)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
#else
  (void)to, (void)words;
  __trap();  // planned for sm_90 only
#endif
}

}  // namespace kerascnn::cuda
