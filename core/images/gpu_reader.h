// Batches of image files for a GPU: which files it decodes, and the memory of both sides.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "core/images/gpu_images.h"
#include "core/images/image_plans.h"
#include "core/images/image_source.h"
#include "core/images/plain_jpeg.h"

namespace kerascnn {

// What all batches of a data set have in common.
class GpuJpegReader {
 public:
  GpuJpegReader(std::shared_ptr<GpuImageDecoder> decoder, const ImageForm& form,
                UnpackLimits limits);

  const ImageForm& form() const { return form_; }
  // How files of this size are resized from now on. Throws ValueError for a plan that decodes at a
  // part of the size, or gives images of another size than the batch has.
  void add_plan(int64_t height, int64_t width, ImagePlan plan);

 private:
  friend class GpuImageBatch;

  const std::shared_ptr<GpuImageDecoder> decoder_;
  const ImageForm form_;
  const UnpackLimits limits_;
  ImagePlans plans_;
};

// Several threads may fill rows, each of them others, and one decodes them when they are done. Each
// function throws ValueError where another thread is at work on what it needs.
class GpuImageBatch {
 public:
  enum class Outcome : uint8_t { Taken, Left, NeedsPlan };

  struct Result {
    Outcome outcome;
    int64_t height = 0, width = 0;  // of the file, where a plan for them is needed
  };

  GpuImageBatch(std::shared_ptr<GpuJpegReader> reader, int64_t rows);

  const GpuJpegReader& reader() const { return *reader_; }

  // Reads a file that the GPU is to decode. Left, whatever the reason, is what only a decoder that
  // looks at everything may have: what is no plain JPEG file (plain_jpeg.h), cannot be read, or has
  // more pixels than `most_pixels`. What the row had before is gone. Throws ValueError for a row
  // that is not there.
  Result read(int64_t row, const ImageSource& source, int64_t most_pixels);
  // An image that is made already, contiguous and of the form of the batch; it is copied.
  void put(int64_t row, const Tensor& image);
  // The rows that have a file or an image, in their order, one behind the other. Nothing where
  // nvJPEG does not take one of the files: then these rows are empty again, and others have to make
  // them.
  std::optional<Tensor> decode();

 private:
  struct Row {
    std::vector<uint8_t> content;  // of the file
    PlainJpeg file{};
    std::shared_ptr<const ImagePlan> plan;  // where the GPU decodes it
    std::vector<uint8_t> image;             // where the host has made it
  };

  // A row, or all of them, that a call has to itself for as long as this lives.
  class RowUse;
  class BatchUse;

  void check(int64_t row) const;

  const std::shared_ptr<GpuJpegReader> reader_;
  std::vector<Row> rows_;
  std::mutex mutex_;             // of what follows
  std::vector<bool> is_in_use_;  // by the call that fills it
  int64_t rows_in_use_ = 0;
  bool is_decoding_ = false;
};

}  // namespace kerascnn
