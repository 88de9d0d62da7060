// Inner loops of the gradient of a depthwise convolution to its kernel, on float32, for the widest
// vectors of the machine. Images are packed first: a vector of channels for each pixel, with the
// padding around the image.
#pragma once

#include <cstdint>

#include "core/backend/cpu/cpu_features.h"

namespace kerascnn::cpu {

// Gradients of a row of outputs, and what the taps of some rows of the kernel see of the image.
// Steps are in vectors.
struct DepthwiseRow {
  int64_t pixels;      // of the gradients, a multiple of kDepthwisePixels
  int64_t step;        // in the image, from one output to the next
  int64_t tap_step;    // from one column of the kernel to the next
  int64_t tap_row;     // from one row of the kernel to the next
  int64_t kernel_row;  // in the sums
};
constexpr int64_t kDepthwisePixels = 4;

// Some rows and columns of the kernel, whose sums stay in registers.
struct DepthwisePiece {
  int rows, columns;
};
constexpr int kMostDepthwiseRows = 3;
constexpr int kMostDepthwiseColumns = 8;

struct DepthwiseKernels {
  const char* name;  // "avx512", "avx2", "plain"
  int width;         // floats in a vector
  int most_sums;     // vectors of a piece

  // out (pixels, width) = `count` channels of pixels that are `step` floats apart, and zeros.
  void (*pack)(const float* from, int64_t pixels, int64_t step, int64_t count, float* out);
  // sums (rows, columns, width) += the gradients times the pixels under each tap.
  void (*sum_row)(const DepthwisePiece& piece, const DepthwiseRow& row, const float* image,
                  const float* gradients, float* sums);
};

KERASCNN_KERNEL_VARIANTS(DepthwiseKernels, depthwise_kernels)

}  // namespace kerascnn::cpu
