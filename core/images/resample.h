// Resizing one image on the host, for data sets of image files.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor/tensor.h"

namespace kerascnn {

// For each pixel of a new axis: the pixels of the old one that it is made of, and their shares.
// Both are (new size, taps), of int32 and float32.
struct AxisTaps {
  Tensor indices, shares;
};

// The same of a resampler: both (size, taps), one row behind the other.
struct TapsView {
  const int32_t* indices;
  const float* shares;
  int64_t size, taps;
};

// Where a resized image goes: contiguous, as float32, or as uint8, which is the nearest of those.
struct ImageTarget {
  void* data;
  DType dtype;
  bool channels_first = false;
};

// Resizes images of one size to another.
class Resampler {
 public:
  // For images (height, width, any channels); keeps copies of the taps, which are contiguous and on
  // the host. Throws ValueError for shapes, dtypes or indices that do not fit.
  Resampler(const AxisTaps& rows, const AxisTaps& columns, int64_t height, int64_t width);

  int64_t height() const { return rows_.size; }  // of the resized image
  int64_t width() const { return columns_.size; }
  int64_t bytes() const;  // of the taps
  TapsView rows() const { return rows_.view(); }
  TapsView columns() const { return columns_.view(); }

  // First rows are weighted and added, then columns of what that gives, each in the order of the
  // taps and rounded to float32 after each operation, as NumPy does it. `scratch` is used meanwhile
  // and may be kept for the next image.
  void run(const uint8_t* pixels, int64_t channels, const ImageTarget& target,
           std::vector<float>& scratch) const;

 private:
  struct Axis {
    Axis(const AxisTaps& taps, int64_t old_size, const char* name);
    TapsView view() const { return {indices.data(), shares.data(), size, taps}; }

    std::vector<int32_t> indices;
    std::vector<float> shares;
    int64_t size, taps;
    int64_t begin, end;  // what is read of the old axis
  };

  void weigh_rows(const uint8_t* pixels, int64_t y, int64_t channels, float* line) const;
  void weigh_columns(const float* line, int64_t channels, float* to) const;

  Axis rows_, columns_;
  int64_t old_width_;
};

// An image (height, width, channels) of uint8 as float32 in another size. It is contiguous and on
// the host. Throws ValueError for shapes, dtypes or indices that do not fit.
Tensor resample_image(const Tensor& pixels, const AxisTaps& rows, const AxisTaps& columns);

}  // namespace kerascnn
