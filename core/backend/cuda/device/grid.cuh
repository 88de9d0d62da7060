// Where a thread is in a grid that loops over its items, and index arithmetic.
#pragma once

#include <cstdint>

namespace kerascnn::cuda {

__device__ __forceinline__ int64_t first_item() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t item_step() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// Quotient and remainder of sizes that are not negative. Where they fit they are divided in 32
// bits, which is several times faster.
struct Division {
  int64_t quotient;
  int64_t remainder;
};
__device__ __forceinline__ Division divide(int64_t a, int64_t b) {
  Division result;
  if (((a | b) >> 32) == 0) {
    result.quotient = static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
  } else {
    result.quotient = a / b;
  }
  result.remainder = a - result.quotient * b;
  return result;
}

// A divisor that is the same for a whole launch. Numbers below 2^31 are divided by a multiplication
// with it (Granlund and Montgomery, "Division by invariant integers using multiplication", 1994).
class Divisor {
 public:
  explicit Divisor(int64_t value) : value_(value) {
    if (value <= 0 || value >= int64_t{1} << 31) return;
    while ((int64_t{1} << shift_) < value) ++shift_;
    const uint64_t excess = (uint64_t{1} << shift_) - static_cast<uint64_t>(value);
    multiplier_ = static_cast<uint32_t>((excess << 32) / static_cast<uint64_t>(value) + 1);
  }

  // Divides the number and returns the remainder.
  __device__ __forceinline__ int64_t divide(int64_t* number) const {
    if (((*number | value_) >> 31) == 0) {
      const auto dividend = static_cast<uint32_t>(*number);
      const uint32_t quotient = (__umulhi(dividend, multiplier_) + dividend) >> shift_;
      *number = quotient;
      return dividend - quotient * static_cast<uint32_t>(value_);
    }
    const int64_t quotient = *number / value_;
    const int64_t remainder = *number - quotient * value_;
    *number = quotient;
    return remainder;
  }

 private:
  int64_t value_;
  uint32_t multiplier_ = 0;
  int shift_ = 0;
};

}  // namespace kerascnn::cuda
