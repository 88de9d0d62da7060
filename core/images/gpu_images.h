// Images of data sets decoded on a GPU by nvJPEG, which the CUDA library opens
// (core/backend/cuda/images/image_decoder.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/images/resample.h"
#include "core/tensor/tensor.h"

namespace kerascnn {

// The images of a batch: in colors, as float32 or as uint8.
struct ImageForm {
  int64_t height, width;
  DType dtype;
  bool channels_first;

  TensorSpec batch(int64_t rows) const {
    return {dtype, channels_first ? Shape{rows, 3, height, width} : Shape{rows, height, width, 3}};
  }
};

// A file for a row of a batch. It stays where it is until the batch is decoded.
struct GpuJpeg {
  std::string_view content;  // see plain_jpeg()
  int64_t height, width;
  const Resampler* resampler;
  int64_t row;
};

// A row that the host has made.
struct HostImage {
  const void* data;
  int64_t row;
};

class GpuImageDecoder {
 public:
  virtual ~GpuImageDecoder() = default;

  // A batch of so many rows, each of which is one of these. It is done when this returns, whatever
  // other work the device has; any number of threads may call this at once. Nothing where nvJPEG
  // does not take one of the files. Throws LibraryError where it fails for another reason.
  virtual std::optional<Tensor> decode(int64_t rows, std::span<const GpuJpeg> files,
                                       std::span<const HostImage> made) = 0;
};

class GpuImages {
 public:
  virtual ~GpuImages() = default;

  // Opens nvJPEG, a file or a name, and returns its version. Throws LibraryError with the remedy.
  virtual std::string open(const std::string& library) = 0;
  // For a device of this number, after nvJPEG was opened.
  virtual std::shared_ptr<GpuImageDecoder> make_decoder(int device, const ImageForm& form) = 0;
};

constexpr const char* kGpuImagesSymbol = "kerascnn_cuda_images";  // GpuImages* (*)()

// Throws DeviceError, with the reason and the remedy, where there is no GPU or no CUDA library.
GpuImages& gpu_images();

}  // namespace kerascnn
