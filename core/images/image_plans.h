// How images of each size become those of a batch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "core/images/resample.h"

namespace kerascnn {

struct ImagePlan {
  int denominator;        // decoded at a part of the size: 1, 2, 4 or 8
  int64_t height, width;  // that this gives
  Resampler resampler;
};

// Plans by the size of the image; any number of threads may ask at once. Where they take much
// memory, those of all sizes are forgotten, and asked for again.
class ImagePlans {
 public:
  void add(int64_t height, int64_t width, ImagePlan plan);
  std::shared_ptr<const ImagePlan> find(int64_t height, int64_t width) const;  // null without one

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<int64_t, int64_t>, std::shared_ptr<const ImagePlan>> plans_;
  int64_t bytes_ = 0;
};

}  // namespace kerascnn
