// Vectors of floats as wide as the file that includes this is compiled for. The same source is
// compiled for AVX-512, for AVX2 and for whatever the compiler does by default, each time in a
// namespace of its own, so that the linker never takes a function of one instruction set for that
// of another. Include it in such files only (*_avx512.cpp, *_avx2.cpp and their plain sibling).
#pragma once

#include <cstdint>
#include <cstring>

#define KERASCNN_STRING_OF(name) #name
#define KERASCNN_STRING(name) KERASCNN_STRING_OF(name)

#if defined(__AVX512F__)
#include <immintrin.h>
#define KERASCNN_SIMD avx512
#elif defined(__AVX2__)
#include <immintrin.h>
#define KERASCNN_SIMD avx2
#else
#define KERASCNN_SIMD plain
#endif

namespace kerascnn::cpu::KERASCNN_SIMD {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
constexpr int kRegisters = 32;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
constexpr int kRegisters = 16;
#else
constexpr int kWidth = 4;
constexpr int kRegisters = 16;
#endif

typedef float Vec __attribute__((vector_size(kWidth * 4)));
typedef int32_t IntVec __attribute__((vector_size(kWidth * 4)));
typedef uint8_t ByteVec __attribute__((vector_size(kWidth)));
// For unaligned loads and stores of types that may alias anything.
typedef float LooseVec __attribute__((vector_size(kWidth * 4), aligned(4), may_alias));
typedef uint8_t LooseByteVec __attribute__((vector_size(kWidth), aligned(1), may_alias));

#define KERASCNN_INLINE inline __attribute__((always_inline))

KERASCNN_INLINE Vec splat(float value) { return value - Vec{}; }
KERASCNN_INLINE Vec load(const float* from) { return *reinterpret_cast<const LooseVec*>(from); }
KERASCNN_INLINE void store(float* to, Vec value) { *reinterpret_cast<LooseVec*>(to) = value; }

// The first `count` elements, 0 < count <= kWidth; the others are 0.
KERASCNN_INLINE Vec load_part(const float* from, int64_t count) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1u), from);
#else
  Vec value{};
  std::memcpy(&value, from, static_cast<size_t>(count) * sizeof(float));
  return value;
#endif
}

KERASCNN_INLINE void store_part(float* to, Vec value, int64_t count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << count) - 1u), value);
#else
  std::memcpy(to, &value, static_cast<size_t>(count) * sizeof(float));
#endif
}

// The first `count` elements, or all where there are more.
KERASCNN_INLINE Vec load_some(const float* from, int64_t count) {
  return count >= kWidth ? load(from) : load_part(from, count);
}

KERASCNN_INLINE void store_some(float* to, Vec value, int64_t count) {
  if (count >= kWidth) {
    store(to, value);
  } else {
    store_part(to, value, count);
  }
}

KERASCNN_INLINE Vec fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

// The sum of all lanes, by halves.
KERASCNN_INLINE float sum_lanes(Vec value) {
  typedef float Four __attribute__((vector_size(16)));
  Four parts[kWidth / 4];
  std::memcpy(parts, &value, sizeof(parts));
  for (int half = kWidth / 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) parts[i] += parts[i + half];
  }
  return (parts[0][0] + parts[0][2]) + (parts[0][1] + parts[0][3]);
}

KERASCNN_INLINE ByteVec load_bytes(const uint8_t* from, int64_t count) {
  if (count >= kWidth) return *reinterpret_cast<const LooseByteVec*>(from);
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  return reinterpret_cast<ByteVec>(
      _mm_maskz_loadu_epi8(static_cast<__mmask16>((1u << count) - 1u), from));
#else
  ByteVec value{};
  std::memcpy(&value, from, static_cast<size_t>(count));
  return value;
#endif
}

KERASCNN_INLINE void store_bytes(uint8_t* to, ByteVec value, int64_t count) {
  if (count >= kWidth) {
    *reinterpret_cast<LooseByteVec*>(to) = value;
    return;
  }
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  _mm_mask_storeu_epi8(to, static_cast<__mmask16>((1u << count) - 1u),
                       reinterpret_cast<__m128i>(value));
#else
  std::memcpy(to, &value, static_cast<size_t>(count));
#endif
}

// NaN wins over everything, and the first of equal maxima over the others.
KERASCNN_INLINE void take_larger(Vec value, IntVec position, Vec& largest, IntVec& best) {
  const IntVec take = ~(value <= largest) & (largest == largest);
  largest = take ? value : largest;
  best = take ? position : best;
}

// The result has a bit for each lane of a comparison's result; it is set where the lane is true.
KERASCNN_INLINE uint32_t lanes_of(IntVec truth) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask(reinterpret_cast<__m512i>(truth));
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps(reinterpret_cast<__m256>(truth)));
#else
  uint32_t lanes = 0;
  for (int lane = 0; lane < kWidth; ++lane) lanes |= (truth[lane] != 0 ? 1u : 0u) << lane;
  return lanes;
#endif
}

// Stores the chosen lanes one after another; needs room for kWidth elements.
KERASCNN_INLINE void store_lanes(int32_t* to, IntVec value, uint32_t lanes) {
#if defined(__AVX512F__)
  _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(static_cast<__mmask16>(lanes),
                                                      reinterpret_cast<__m512i>(value)));
#else
  for (; lanes != 0; lanes &= lanes - 1) *to++ = value[__builtin_ctz(lanes)];
#endif
}

KERASCNN_INLINE void store_lanes(float* to, Vec value, uint32_t lanes) {
#if defined(__AVX512F__)
  _mm512_storeu_ps(to, _mm512_maskz_compress_ps(static_cast<__mmask16>(lanes), value));
#else
  for (; lanes != 0; lanes &= lanes - 1) *to++ = value[__builtin_ctz(lanes)];
#endif
}

// Picks those of the 2 * kWidth numbers in `low` and then `high` that `index` (modulo 2 * kWidth)
// names.
KERASCNN_INLINE Vec look_up(Vec low, Vec high, IntVec index) {
#if defined(__AVX512F__)
  return _mm512_permutex2var_ps(low, reinterpret_cast<__m512i>(index), high);
#elif defined(__AVX2__)
  const auto at = reinterpret_cast<__m256i>(index);
  const __m256 is_high = _mm256_castsi256_ps(_mm256_slli_epi32(at, 28));
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, at), _mm256_permutevar8x32_ps(high, at),
                          is_high);
#else
  Vec found{};
  for (int lane = 0; lane < kWidth; ++lane) {
    const int32_t at = index[lane] & (2 * kWidth - 1);
    found[lane] = at < kWidth ? low[at] : high[at - kWidth];
  }
  return found;
#endif
}

}  // namespace kerascnn::cpu::KERASCNN_SIMD
