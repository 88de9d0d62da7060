// Images of data sets from JPEG files: read, decoded and resized, without Python.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/images/jpeg_library.h"
#include "core/images/resample.h"

namespace kerascnn {

// Where the bytes of an image are.
struct ImageSource {
  std::string path;
  int64_t offset = 0;
  int64_t size = -1;         // -1: up to the end of the file
  int64_t changed = -1;      // in nanoseconds: files that were changed at another time are left
  std::string_view content;  // where `path` is empty
};

// Files that unpack to more than `small` bytes and more than `expansion` times their own are left.
struct UnpackLimits {
  int64_t small, expansion;
};

// How images of one size become those of a batch.
struct ImagePlan {
  int denominator;        // decoded at a part of the size: 1, 2, 4 or 8
  int64_t height, width;  // that this gives
  Resampler resampler;
};

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
  using Size = std::pair<int64_t, int64_t>;

  Result decode(std::string_view content, int64_t most_pixels, const ImageTarget& target) const;
  std::shared_ptr<const ImagePlan> plan_for(Size size) const;

  std::shared_ptr<const JpegLibrary> library_;
  int64_t height_, width_;
  UnpackLimits limits_;
  mutable std::mutex mutex_;
  std::map<Size, std::shared_ptr<const ImagePlan>> plans_;
  int64_t plan_bytes_ = 0;
};

}  // namespace kerascnn
