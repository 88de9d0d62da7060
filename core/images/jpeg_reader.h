// Images of data sets from JPEG files: read, decoded and resized, without Python.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/images/image_plans.h"
#include "core/images/image_source.h"
#include "core/images/jpeg_library.h"
#include "core/images/resample.h"

namespace kerascnn {

class JpegReader {
 public:
  enum class Outcome { Made, Left, NeedsPlan };

  struct Result {
    Outcome outcome;
    int64_t height = 0, width = 0;  // of the file, where a plan for them is needed
  };

  JpegReader(std::shared_ptr<const JpegLibrary> library, int64_t height, int64_t width,
             UnpackLimits limits);

  int64_t height() const { return height_; }  // of the images of a batch
  int64_t width() const { return width_; }

  // How files of this size are resized from now on. Throws ValueError for a plan that gives images
  // of another size than the batch has.
  void add_plan(int64_t height, int64_t width, ImagePlan plan);

  // Makes one image; any number of threads may do so at once. Left, whatever the reason, is what is
  // no whole JPEG file in colors or grey, cannot be read, or has more pixels than `most_pixels`:
  // others have the words for that. `target` may have been written to then.
  Result read(const ImageSource& source, int64_t most_pixels, const ImageTarget& target) const;

 private:
  Result decode(std::string_view content, int64_t most_pixels, const ImageTarget& target) const;

  std::shared_ptr<const JpegLibrary> library_;
  int64_t height_, width_;
  UnpackLimits limits_;
  ImagePlans plans_;
};

}  // namespace kerascnn
