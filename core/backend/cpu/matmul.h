// The sizes of a matmul: batch products of (m, k) and (k, n).
#pragma once

#include "core/backend/backend.h"

namespace kerascnn::cpu {

struct MatmulSizes {
  int64_t batch = 1;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;  // a is stored (k, m)
  bool transpose_b = false;  // b is stored (n, k)
};

MatmulSizes matmul_sizes(const PlanRequest& request);

}  // namespace kerascnn::cpu
