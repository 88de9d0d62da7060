// Some output rows of an image and the input rows that they read, which a block keeps in shared
// memory with their padding as zeros: loops over taps have no bounds to check.
//
// A tap is one (row, column, input channel) of the kernel, numbered as they lie in memory.
#pragma once

#include "core/backend/cuda/convolution/convolution.cuh"
#include "core/backend/cuda/launch.h"

namespace kerascnn::cuda {

struct Band {
  int rows, bands_of_image, input_rows, pitch;

  // `in_pairs`: numbers are read two at a time, the second one possibly behind a row.
  Band(const Conv& c, int rows, bool in_pairs = false)
      : rows(rows),
        bands_of_image(static_cast<int>(ceil_div(c.output_height, rows))),
        input_rows((rows - 1) * c.stride_height + (c.kernel_height - 1) * c.dilation_height + 1),
        pitch(
            ((c.output_width - 1) * c.stride_width + (c.kernel_width - 1) * c.dilation_width + 1) *
            c.input_channels) {
    if (in_pairs) pitch = pitch / 2 * 2 + 2;
  }

  int64_t bytes(int64_t item) const { return int64_t{input_rows} * pitch * item; }
};

// Where a tap reads, from the first number of an output's patch in a band.
__device__ __forceinline__ int place_of_tap(const Conv& c, const Band& band, int tap) {
  const int channel = tap % c.input_channels;
  const int column = tap / c.input_channels % c.kernel_width;
  const int row = tap / c.input_channels / c.kernel_width;
  return row * c.dilation_height * band.pitch + column * c.dilation_width * c.input_channels +
         channel;
}

// Copies the input rows of a band to shared memory, each number as `convert` gives it. Waits for
// nobody.
template <typename T, typename Stored, typename Convert>
__device__ __forceinline__ void load_band(const T* __restrict__ x, Stored* tile, const Conv& c,
                                          const Band& band, int64_t image, int first_row,
                                          Convert convert) {
  const int top = first_row * c.stride_height - c.pad_top;
  const int shift = c.pad_left * c.input_channels;
  const int width = c.input_width * c.input_channels;
  for (int r = threadIdx.x / 32; r < band.input_rows; r += kThreads / 32) {
    const int row = top + r;
    const bool is_row = row >= 0 && row < c.input_height;
    const T* source = x + (image * c.input_height + (is_row ? row : 0)) * width;
#pragma unroll 8
    for (int j = threadIdx.x % 32; j < band.pitch; j += 32) {
      const int at = j - shift;
      tile[r * band.pitch + j] =
          is_row && at >= 0 && at < width ? convert(source[at]) : convert(T(0.0f));
    }
  }
}

}  // namespace kerascnn::cuda
