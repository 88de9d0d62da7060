// Inner loops of normalization on float32, for the widest vectors of the machine. Arrays are (rows,
// width), and factors have an element for each of the columns.
#pragma once

#include <cstdint>

#include "core/backend/cpu/cpu_features.h"

namespace kerascnn::cpu {

// y = (x - mean) * scale + shift. `rest` is what the mean has beyond float32: where it is large
// beside the differences, these would lose digits.
struct NormalizedColumns {
  const float* mean;
  const float* rest;
  const float* scale;
  const float* shift;
};

// gx = scale * (gy - level - (x - mean) * slope).
struct NormalizedGradients {
  const float* mean;
  const float* scale;
  const float* level;
  const float* slope;
};

struct ChannelKernels {
  const char* name;  // "avx512", "avx2", "plain"

  void (*normalize)(const NormalizedColumns& columns, const float* x, int64_t rows, int64_t width,
                    float* y);
  // sums (width) += those of x - shift, squares (width) += those of its square, of columns.
  void (*sum_moments)(const float* x, const float* shift, int64_t rows, int64_t width, double* sums,
                      double* squares);
  // sums (width) += those of gy, products (width) += those of gy * (x - mean), of columns.
  void (*sum_gradients)(const float* gy, const float* x, const float* mean, int64_t rows,
                        int64_t width, double* sums, double* products);
  void (*normalize_grad)(const NormalizedGradients& columns, const float* gy, const float* x,
                         int64_t rows, int64_t width, float* gx);
};

KERASCNN_KERNEL_VARIANTS(ChannelKernels, channel_kernels)

}  // namespace kerascnn::cpu
