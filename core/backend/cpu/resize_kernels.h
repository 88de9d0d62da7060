// Inner loops of images of another size, for the widest vectors of the machine.
#pragma once

#include <cstdint>

#include "core/backend/cpu/cpu_features.h"

namespace kerascnn::cpu {

// New pixels of a row, of which each is the sum of neighbouring pixels of a line.
template <typename T>
struct LinePixels {
  int64_t pixels;
  const int32_t* firsts;  // of each new pixel: the first pixel of the line
  const int32_t* counts;  // and their number
  const T* shares;        // (pixels, most)
  int64_t most;
  int64_t channels;  // of a pixel in the line, which has kLineRoom numbers behind the last one
  int64_t step;      // from one new pixel to the next
  int64_t room;      // so many numbers, from the first new pixel on, may be written
};
// Vectors may be read beyond the end of a line.
constexpr int64_t kLineRoom = 16;

template <typename T>
struct ResizeLoops {
  // to (size) = the sum of shares[t] times row t, `step` numbers after the row before; count > 0.
  void (*weigh_rows)(const T* from, int64_t step, const T* shares, int64_t count, int64_t size,
                     T* to);
  // Numbers between the channels of one new pixel and the next, and behind the last one as far as
  // there is room, may be overwritten where step == channels.
  void (*weigh_pixels)(const LinePixels<T>& sizes, const T* line, T* to);
};

struct ResizeKernels {
  const char* name;  // "avx512", "avx2", "plain"
  ResizeLoops<float> floats;
  ResizeLoops<double> doubles;

  const ResizeLoops<float>& loops(float) const { return floats; }
  const ResizeLoops<double>& loops(double) const { return doubles; }
};

KERASCNN_KERNEL_VARIANTS(ResizeKernels, resize_kernels)

}  // namespace kerascnn::cpu
