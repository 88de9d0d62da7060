// Resizing one image on the host, for data sets of image files.
#pragma once

#include <cstdint>

#include "core/tensor/tensor.h"

namespace kerascnn {

// For each pixel of a new axis: the pixels of the old one that it is made of, and their shares.
// Both are (new size, taps), of int32 and float32.
struct AxisTaps {
  Tensor indices, shares;
};

// An image (height, width, channels) of uint8 as float32 in another size: first rows are weighted
// and added, then columns of what that gives, each in the order of the taps and rounded to float32
// after each operation, as NumPy does it. All tensors are contiguous and on the host. Throws
// ValueError for shapes, dtypes or indices that do not fit.
Tensor resample_image(const Tensor& pixels, const AxisTaps& rows, const AxisTaps& columns);

}  // namespace kerascnn
