// Philox 4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3" (SC 2011), and the conversions of its words. This header is the one
// implementation for C++ and CUDA: uniform numbers and keep decisions are the same bits on every
// device.
//
// Element i of a call takes word i % 4 of the block with the key {seed low, seed high} and the
// counter {i / 4 low, i / 4 high, state counter low, stream}.
#pragma once

#ifndef __CUDACC_RTC__
#include <cmath>
#include <cstdint>
#endif

#include "core/base/host_device.h"

namespace kerascnn {

// Sources that are compiled at run time include nothing, and draw keep decisions only.
#ifdef __CUDACC_RTC__
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;
#endif

struct PhiloxBlock {
  uint32_t words[4];
};

KERASCNN_HOST_DEVICE PhiloxBlock philox(uint32_t key0, uint32_t key1, PhiloxBlock counter) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter.words[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter.words[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.words[1] ^ key0,
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.words[3] ^ key1,
                static_cast<uint32_t>(product0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// The words of the elements 4 * block ... 4 * block + 3. `state` is the random state {seed,
// counter}.
KERASCNN_HOST_DEVICE PhiloxBlock philox_block(const int64_t* state, uint32_t stream,
                                              uint64_t block) {
  const uint64_t seed = static_cast<uint64_t>(state[0]);
  return philox(static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                {{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                  static_cast<uint32_t>(static_cast<uint64_t>(state[1])), stream}});
}

// An element is kept (bernoulli: is 1) where (word >> 8) < threshold, which is (word >> 8) / 2^24 <
// p.
KERASCNN_HOST_DEVICE bool philox_keep(uint32_t word, uint32_t threshold) {
  return (word >> 8) < threshold;
}

#ifndef __CUDACC_RTC__

// A number in [0, 1) of 24 bits for float (which 16-bit types are rounded from) or 32 bits for
// double.
KERASCNN_HOST_DEVICE float philox_unit_float(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}
KERASCNN_HOST_DEVICE double philox_unit_double(uint32_t word) {
  return static_cast<double>(word) * 0x1p-32;
}

// A number in [low, high). One fma, so that no compiler contracts it on one device only; the
// rounded result may reach `high`, which then becomes `low`.
KERASCNN_HOST_DEVICE float philox_uniform(uint32_t word, float low, float high) {
  const float value = std::fma(philox_unit_float(word), high - low, low);
  return value < high ? value : low;
}
KERASCNN_HOST_DEVICE double philox_uniform(uint32_t word, double low, double high) {
  const double value = std::fma(philox_unit_double(word), high - low, low);
  return value < high ? value : low;
}

// What philox_keep() takes for a probability.
inline uint32_t philox_threshold(double probability) {
  return static_cast<uint32_t>(std::ceil(probability * 0x1p24));
}

// Two standard normal numbers from two words (Box and Muller, 1958), in the precision of Real:
// words 0 and 1 of a block give its elements 0 and 1, words 2 and 3 its elements 2 and 3.
template <typename Real>
KERASCNN_HOST_DEVICE void philox_normal_pair(uint32_t word0, uint32_t word1, Real& even,
                                             Real& odd) {
  const Real u = static_cast<Real>((word0 >> 8) + 1u) * static_cast<Real>(0x1p-24);
  const Real theta = static_cast<Real>(6.283185307179586476925286766559) *
                     (static_cast<Real>(word1 >> 8) * static_cast<Real>(0x1p-24));
  const Real radius = std::sqrt(static_cast<Real>(-2) * std::log(u));
  even = radius * std::cos(theta);
  odd = radius * std::sin(theta);
}

#endif

}  // namespace kerascnn
