#include "core/images/image_plans.h"

namespace kerascnn {
namespace {

constexpr int64_t kMostBytes = int64_t{64} << 20;

}  // namespace

void ImagePlans::add(int64_t height, int64_t width, ImagePlan plan) {
  auto kept = std::make_shared<const ImagePlan>(std::move(plan));
  const std::lock_guard lock(mutex_);
  if (bytes_ > kMostBytes) {
    plans_.clear();
    bytes_ = 0;
  }
  bytes_ += kept->resampler.bytes();
  plans_[{height, width}] = std::move(kept);
}

std::shared_ptr<const ImagePlan> ImagePlans::find(int64_t height, int64_t width) const {
  const std::lock_guard lock(mutex_);
  const auto found = plans_.find({height, width});
  return found == plans_.end() ? nullptr : found->second;
}

}  // namespace kerascnn
