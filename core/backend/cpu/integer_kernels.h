// Products of int8 matrices, for the widest vectors of the machine. Elements are widened to 16 bits
// and packed in pairs along the inner axis, because vectors multiply such pairs and add the two
// products in 32 bits: nothing is lost on the way.
#pragma once

#include <cstdint>

#include "core/backend/cpu/cpu_features.h"
#include "core/backend/cpu/gemm.h"

namespace kerascnn::cpu {

struct IntegerKernels {
  const char* name;  // "avx512", "avx2", "plain"
  int64_t panel;     // columns of the second matrix that are packed side by side

  // Rows [first, last) of a (m, k) as pairs: row i is the words from i * ((k + 1) / 2) on.
  void (*pack_rows)(MatrixView<int8_t> a, int64_t k, uint32_t* packed, int64_t first, int64_t last);
  // Panels [first, last) of b (k, n): panel p is the words from p * panel * ((k + 1) / 2) on, pairs
  // of one place of k side by side; columns from n on are 0.
  void (*pack_panels)(MatrixView<int8_t> b, int64_t k, int64_t n, uint32_t* packed, int64_t first,
                      int64_t last);
  // c, rows c_step apart, = `rows` packed rows times the `columns` <= panel of one packed panel.
  void (*multiply)(const uint32_t* a, const uint32_t* b, int64_t rows, int64_t columns,
                   int64_t pairs, int32_t* c, int64_t c_step);
};

KERASCNN_KERNEL_VARIANTS(IntegerKernels, integer_kernels)

}  // namespace kerascnn::cpu
