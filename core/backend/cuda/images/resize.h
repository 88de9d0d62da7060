// Resizing the images of a batch on a GPU, with the bits that resizing on the host has
// (core/images/resample.h).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/images/gpu_images.h"

namespace kerascnn::cuda {

// An axis of a resized image: where its taps begin in a table of words, and how many a pixel has.
struct ResizeAxis {
  int64_t indices, shares;
  int64_t taps;
};

struct ResizeImage {
  const uint8_t* pixels;  // interleaved colors
  int64_t pitch;          // bytes of a row
  ResizeAxis rows, columns;
  void* target;  // in the form of the batch
};

// Both tables are on the device. Shares are the words of floats.
void resize_images(const ResizeImage* images, int64_t count, const int32_t* words,
                   const ImageForm& form, cudaStream_t stream);

}  // namespace kerascnn::cuda
