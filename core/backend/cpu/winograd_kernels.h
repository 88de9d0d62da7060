// The transforms of Winograd's convolution F(4 x 4, 3 x 3) (Lavin and Gray, 2015,
// arXiv:1509.09308): tiles of 4 x 4 outputs come from 36 products for each pair of channels, where
// taking them one by one needs 144. Vectors go along the channels, of which there are multiples of
// kWinogradChannels.
#pragma once

#include <cstdint>

#include "core/backend/cpu/cpu_features.h"

namespace kerascnn::cpu {

constexpr int64_t kWinogradTile = 4;        // outputs of a tile, in each direction
constexpr int64_t kWinogradInputs = 6;      // inputs of a tile, in each direction
constexpr int64_t kWinogradPositions = 36;  // products of a tile
constexpr int64_t kWinogradChannels = 16;

// The part of an image that a tile reads or writes: rows [first_row, last_row) of the tile and
// columns alike lie in the image. `image` is where the tile's element (0, 0) would be.
struct WinogradTile {
  int64_t first_row, last_row, first_column, last_column;
  int64_t row_step;  // of the image; its pixels are `channels` elements apart
  int64_t channels;
};

struct WinogradKernels {
  // out[p * position_step + c] = the transform of the inputs, 0 outside of the image.
  void (*transform_inputs)(const WinogradTile& tile, const float* image, float* out,
                           int64_t position_step);
  // Writes the outputs of products[p * position_step + c]. Returns whether all are finite.
  bool (*transform_outputs)(const WinogradTile& tile, const float* products, int64_t position_step,
                            float* image);
  // out[p * position_step + k] = the transform of kernel[t * tap_step + k], taps t in rows. With
  // `turned` the taps are in the opposite order.
  void (*transform_kernel)(const float* kernel, int64_t tap_step, int64_t filters, bool turned,
                           float* out, int64_t position_step);
  // The same for the gradient to the kernel. Of the outputs' gradients: six values of four.
  void (*transform_gradients)(const WinogradTile& tile, const float* image, float* out,
                              int64_t position_step);
  // Of the products' sums back to taps. Returns whether all are finite.
  bool (*transform_sums)(const float* sums, int64_t position_step, int64_t filters, float* kernel,
                         int64_t tap_step);
};

KERASCNN_KERNEL_VARIANTS(WinogradKernels, winograd_kernels)

}  // namespace kerascnn::cpu
