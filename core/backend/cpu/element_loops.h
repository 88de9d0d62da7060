// Loops of single ops over float32 elements, compiled for the widest vectors of the machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/backend/cpu/cpu_features.h"
#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/memory_ahead.h"
#include "core/ops/element_ops.h"

namespace kerascnn::cpu {

// out[i] = op(a[i], b[i], p0, p1) of element_functions.h; b is not read where the op has one
// operand. out may be the memory of a or b. The bits are those of the functions applied one by one.
using ElementLoop = void (*)(const float* a, const float* b, float* out, int64_t count, float p0,
                             float p1);

// The same for elements of type T: float, or a 16-bit type, which is widened block by block and
// rounded once. b is null where the op has one operand. Memory is asked for some blocks ahead.
template <typename T>
void run_element_loop(ElementLoop loop, const T* a, const T* b, T* out, int64_t count, float p0,
                      float p1) {
  for_each_block_ahead(count, a, b, out, [&](int64_t i, int64_t some) {
    const T* const some_b = b == nullptr ? nullptr : b + i;
    if constexpr (std::is_same_v<T, float>) {
      loop(a + i, some_b, out + i, some, p0, p1);
    } else {
      float wide_a[kAheadBlock], wide_b[kAheadBlock];
      widen(a + i, wide_a, some);
      if (b != nullptr) widen(some_b, wide_b, some);
      loop(wide_a, wide_b, wide_a, some, p0, p1);
      narrow(wide_a, out + i, some);
    }
  });
}

// Comparisons and other ops whose result is a truth value, 0 or 1. It is a 64-bit integer, as fused
// groups keep them.
using ConditionLoop = void (*)(const float* a, const float* b, int64_t* out, int64_t count);

// out (rows, columns) = op of a matrix, which may be the memory of out, and of one number for each
// of its rows.
using RowLoop = void (*)(const float* matrix, const float* numbers, float* out, int64_t rows,
                         int64_t columns);

// The loops are indexed by the op's number; an op that has no such loop has null.
struct ElementLoops {
  ElementLoop of[kNumElementOps];
  // The numbers of rows are the second operand, or the first one.
  RowLoop with_rows[kNumElementOps], with_rows_first[kNumElementOps];
  ConditionLoop conditions[kNumElementOps];
  void (*where)(const int64_t* condition, const float* a, const float* b, float* out,
                int64_t count);
};

KERASCNN_KERNEL_VARIANTS(ElementLoops, element_loops)

// Null for ops whose result is not float32, and for `power`.
inline ElementLoop element_loop(ElementOp op) { return element_loops().of[static_cast<int>(op)]; }

}  // namespace kerascnn::cpu
