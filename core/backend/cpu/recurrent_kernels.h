// Recurrent cells over whole sequences on float32, for the widest vectors of the machine.
//
// A call works on rows of the batch from the first step to the last one, and on no other rows, so
// threads that share the batch need not wait for each other in between.
#pragma once

#include <cstdint>

#include "core/backend/cpu/cpu_features.h"
#include "core/ops/recurrent.h"

namespace kerascnn::cpu {

// Units are filled up to multiples of this, which every vector's width divides.
constexpr int64_t kUnitAlignment = 16;
inline int64_t padded_units(const RecurrentSizes& sizes) {
  return (sizes.units + kUnitAlignment - 1) / kUnitAlignment * kUnitAlignment;
}
// The distance between rows in the scratch memory of gates' gradients: a little more than a row
// takes, because rows 4096 bytes apart would compete for one set of the cache.
inline int64_t gradient_row(const RecurrentSizes& sizes) {
  return sizes.gates() * sizes.units + 2 * kUnitAlignment;
}

// Memory for the states of all rows. Each array but the last has (batch, padded units) numbers.
struct RecurrentScratch {
  const float* packed;  // the recurrent kernel as `pack` or `pack_transposed` wrote it
  float* h[2];          // the hidden state, in turn; its gradient is in the first
  float* c;             // the cell state, or its gradient
  float* gradients;     // of the gates in a step, (batch, gradient_row)
};

struct RecurrentKernels {
  const char* name;  // "avx512", "avx2", "plain"

  // Blocks [first, last) of kUnitAlignment units of the recurrent kernel, in the order in which
  // forward and backward read it; `packed` has gates * units * padded_units floats.
  void (*pack)(const RecurrentSizes& sizes, const float* kernel, float* packed, int64_t first,
               int64_t last);
  void (*pack_transposed)(const RecurrentSizes& sizes, const float* kernel, float* packed,
                          int64_t first, int64_t last);
  void (*forward)(const RecurrentSizes& sizes, const RecurrentForward<float>& buffers,
                  const RecurrentScratch& scratch, int64_t first_row, int64_t last_row);
  void (*backward)(const RecurrentSizes& sizes, const RecurrentBackward<float>& buffers,
                   const RecurrentScratch& scratch, int64_t first_row, int64_t last_row);
};

KERASCNN_KERNEL_VARIANTS(RecurrentKernels, recurrent_kernels)

}  // namespace kerascnn::cpu
