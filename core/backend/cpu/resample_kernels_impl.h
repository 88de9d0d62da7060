// Compiled once for each instruction set; see resample_kernels.h. Each product and each sum is
// rounded to float32, as NumPy does it, so there is no fused multiply-add.
#include <bit>

#include "core/backend/cpu/resample_kernels.h"
#include "core/backend/cpu/simd.h"

namespace kerascnn::cpu::KERASCNN_SIMD {
namespace {

void weigh(const uint8_t* __restrict from, float share, int64_t size, float* __restrict to) {
  for (int64_t i = 0; i < size; ++i) to[i] = static_cast<float>(from[i]) * share;
}

void weigh_and_add(const uint8_t* __restrict from, float share, int64_t size,
                   float* __restrict to) {
  for (int64_t i = 0; i < size; ++i) to[i] += static_cast<float>(from[i]) * share;
}

void weigh_two(const uint8_t* __restrict from, float share, const uint8_t* __restrict other,
               float other_share, int64_t size, float* __restrict to) {
  for (int64_t i = 0; i < size; ++i) {
    to[i] = static_cast<float>(from[i]) * share + static_cast<float>(other[i]) * other_share;
  }
}

// Floats from here on are whole numbers, whose last byte is that of their distance from it.
constexpr float kFirstWhole = 12582912.0f;  // 1.5 * 2^23

void round_to_bytes(const float* __restrict from, int64_t size, uint8_t* __restrict to) {
  for (int64_t i = 0; i < size; ++i) {
    float value = from[i] > 0.0f ? from[i] : 0.0f;
    value = value < 255.0f ? value : 255.0f;
    to[i] = static_cast<uint8_t>(std::bit_cast<uint32_t>(value + kFirstWhole));
  }
}

}  // namespace

const ResampleKernels kResampleKernels = {weigh, weigh_and_add, weigh_two, round_to_bytes};

}  // namespace kerascnn::cpu::KERASCNN_SIMD
