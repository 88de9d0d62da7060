// Random numbers of float_kernels.h, compiled once for each instruction set (see simd.h, which has
// to come first).
#pragma once

// clang-format off
#include "core/backend/cpu/simd.h"
// clang-format on

#include "core/backend/cpu/float_kernels.h"
#include "core/ops/host_math.h"

namespace kerascnn::cpu::KERASCNN_SIMD {

namespace {

// Philox on kWidth / 2 blocks at a time, each word in a 64-bit lane; see core/ops/philox.h, whose
// bits these are.
constexpr int kBlocks = kWidth / 2;
typedef uint64_t WideVec __attribute__((vector_size(kWidth * 4)));

// The 64-bit products of the lanes' low halves.
KERASCNN_INLINE WideVec multiply_low(WideVec a, WideVec b) {
#if defined(__AVX512F__)
  // This is the masked form, because GCC 12 warns of an uninitialized operand inside the plain
  // one's header.
  return reinterpret_cast<WideVec>(
      _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<WideVec>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

struct WidePhilox {
  WideVec words[4];  // the low halves count, the high ones are noise
};

KERASCNN_INLINE WidePhilox wide_philox(uint32_t key0, uint32_t key1, WidePhilox counter) {
  const WideVec factor0 = uint64_t{0xD2511F53u} - WideVec{};
  const WideVec factor1 = uint64_t{0xCD9E8D57u} - WideVec{};
  for (int round = 0; round < 10; ++round) {
    const WideVec product0 = multiply_low(counter.words[0], factor0);
    const WideVec product1 = multiply_low(counter.words[2], factor1);
    counter = {{(product1 >> 32) ^ counter.words[1] ^ uint64_t{key0}, product1,
                (product0 >> 32) ^ counter.words[3] ^ uint64_t{key1}, product0}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// The words of kBlocks blocks in the order of the elements.
KERASCNN_INLINE void philox_words(const int64_t* state, uint32_t stream, uint64_t first_block,
                                  uint32_t* words) {
  const uint64_t seed = static_cast<uint64_t>(state[0]);
  WideVec block;
  for (int lane = 0; lane < kBlocks; ++lane)
    block[lane] = first_block + static_cast<uint64_t>(lane);
  const WideVec zero{};
  const WidePhilox random =
      wide_philox(static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                  {{block & uint64_t{0xffffffffu}, block >> 32,
                    zero + uint64_t{static_cast<uint32_t>(static_cast<uint64_t>(state[1]))},
                    zero + uint64_t{stream}}});
  const uint64_t low = 0xffffffffu;
  const WideVec first = (random.words[0] & low) | (random.words[1] << 32);
  const WideVec second = (random.words[2] & low) | (random.words[3] << 32);
  for (int lane = 0; lane < kBlocks; ++lane) {
    const uint64_t pair[2] = {first[lane], second[lane]};
    std::memcpy(words + 4 * lane, pair, sizeof(pair));
  }
}

void random_words(const int64_t* state, uint32_t stream, int64_t first_block, int64_t count,
                  uint32_t* words) {
  constexpr int64_t kElements = 4 * kBlocks;
  for (int64_t at = 0; at < count; at += kElements) {
    uint32_t some[kElements];
    const bool is_whole = count - at >= kElements;
    philox_words(state, stream, static_cast<uint64_t>(first_block + at / 4),
                 is_whole ? words + at : some);
    if (!is_whole) std::memcpy(words + at, some, static_cast<size_t>(count - at) * 4);
  }
}

void uniform(const int64_t* state, uint32_t stream, float low, float high, int64_t first_block,
             int64_t count, float* out) {
  constexpr int64_t kWords = 256;
  uint32_t words[kWords];
  for (int64_t at = 0; at < count; at += kWords) {
    const int64_t some = count - at < kWords ? count - at : kWords;
    random_words(state, stream, first_block + at / 4, some, words);
    for (int64_t i = 0; i < some; ++i) {
      // 24 bits are a number of either sign as well, which vectors convert faster.
      const float unit = static_cast<float>(static_cast<int32_t>(words[i] >> 8)) * 0x1p-24f;
      const float value = __builtin_fmaf(unit, high - low, low);
      out[at + i] = host_math::select(value < high, value, low);
    }
  }
}

void dropout(const float* x, float* out, const int64_t* state, uint32_t stream, uint32_t threshold,
             float scale, int64_t first_block, int64_t count) {
  constexpr int64_t kElements = 4 * kBlocks;
  for (int64_t at = 0; at < count; at += kElements) {
    uint32_t words[kElements];
    philox_words(state, stream, static_cast<uint64_t>(first_block + at / 4), words);
    const int64_t here = count - at < kElements ? count - at : kElements;
    if (here == kElements) {
      for (int64_t i = 0; i < kElements; ++i) {
        out[at + i] = (words[i] >> 8) < threshold ? x[at + i] * scale : 0.0f;
      }
    } else {
      for (int64_t i = 0; i < here; ++i) {
        out[at + i] = (words[i] >> 8) < threshold ? x[at + i] * scale : 0.0f;
      }
    }
  }
}

}  // namespace

}  // namespace kerascnn::cpu::KERASCNN_SIMD
