// Where the tiles of Winograd's convolution lie in images.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/backend/cpu/winograd_kernels.h"
#include "core/ops/conv2d.h"

namespace kerascnn::cpu {

inline int64_t tiles_along(int64_t outputs) {
  return (outputs + kWinogradTile - 1) / kWinogradTile;
}

// A convolution of images, as tiles see it. The gradient to the input is the convolution of the
// output's gradient with the kernel turned by 180 degrees, of which inputs and outputs are swapped.
struct WinogradImages {
  int64_t batch, input_height, input_width, input_channels;
  int64_t output_height, output_width, output_channels;
  int64_t pad_top, pad_left;
  bool is_gradient;

  WinogradImages(const Conv2DGeometry& g, bool gradient)
      : batch(g.batch),
        input_height(gradient ? g.output_height : g.input_height),
        input_width(gradient ? g.output_width : g.input_width),
        input_channels(gradient ? g.output_channels : g.input_channels),
        output_height(gradient ? g.input_height : g.output_height),
        output_width(gradient ? g.input_width : g.output_width),
        output_channels(gradient ? g.input_channels : g.output_channels),
        pad_top(gradient ? 2 - g.pad_top : g.pad_top),
        pad_left(gradient ? 2 - g.pad_left : g.pad_left),
        is_gradient(gradient) {}

  int64_t tiles_of_image() const { return tiles_along(output_height) * tiles_along(output_width); }
  int64_t tiles() const { return batch * tiles_of_image(); }
  double waste() const {
    const auto outputs = static_cast<double>(output_height * output_width);
    return static_cast<double>(tiles_of_image() * kWinogradTile * kWinogradTile) / outputs;
  }
};

// Where a tile is.
struct WinogradPlace {
  int64_t image, row, column;  // of the first output

  WinogradPlace(const WinogradImages& images, int64_t tile) {
    const int64_t columns = tiles_along(images.output_width);
    image = tile / images.tiles_of_image();
    const int64_t within = tile % images.tiles_of_image();
    row = within / columns * kWinogradTile;
    column = within % columns * kWinogradTile;
  }
};

// The part of an image of this size that a tile of `side` pixels has from (row, column) on, where
// numbers below 0 lie in the padding.
inline WinogradTile tile_at(int64_t row, int64_t column, int64_t side, int64_t height,
                            int64_t width, int64_t channels) {
  return {std::max<int64_t>(0, -row),
          std::min(side, height - row),
          std::max<int64_t>(0, -column),
          std::min(side, width - column),
          width * channels,
          channels};
}

}  // namespace kerascnn::cpu
