// Sizes of Fourier transforms along the last axis, as both backends plan with them.
#pragma once

#include <cstdint>

#include "core/ops/op.h"

namespace kerascnn {

struct FftSizes {
  int64_t lines = 0;   // transforms
  int64_t length = 0;  // of each of them
  // The number of elements in the first half of a transform of real numbers: the others are their
  // conjugates.
  int64_t half() const { return length / 2 + 1; }
  // Is element k of that half its own conjugate, and so real? It stands for itself alone; any other
  // one stands for two.
  bool is_own(int64_t k) const { return k == 0 || 2 * k == length; }
};

// The sizes of a transform of this length whose inputs have this spec.
FftSizes fft_sizes(const TensorSpec& spec, int64_t length);

}  // namespace kerascnn
