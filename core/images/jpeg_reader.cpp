#include "core/images/jpeg_reader.h"

#include <vector>

#include "core/base/error.h"

namespace kerascnn {
namespace {

// Longer memory goes back to the system after an image.
constexpr size_t kMostKept = size_t{64} << 20;

// What a thread keeps from one image to the next: fresh memory would come from the system page by
// page, with a lock that all threads share.
struct Scratch {
  std::shared_ptr<const JpegLibrary> library;
  std::unique_ptr<JpegDecoder> decoder;
  std::vector<uint8_t> content, pixels;
  std::vector<float> resizing;
};

thread_local Scratch scratch;

template <typename T>
void keep_short(std::vector<T>& memory) {
  if (memory.capacity() * sizeof(T) > kMostKept) std::vector<T>().swap(memory);
}

JpegDecoder& decoder_of(const std::shared_ptr<const JpegLibrary>& library) {
  if (scratch.library != library) {
    scratch.decoder.reset();
    scratch.decoder = std::make_unique<JpegDecoder>(*library);
    scratch.library = library;
  }
  return *scratch.decoder;
}

}  // namespace

JpegReader::JpegReader(std::shared_ptr<const JpegLibrary> library, int64_t height, int64_t width,
                       UnpackLimits limits)
    : library_(std::move(library)), height_(height), width_(width), limits_(limits) {}

void JpegReader::add_plan(int64_t height, int64_t width, ImagePlan plan) {
  if (plan.resampler.height() != height_ || plan.resampler.width() != width_) {
    throw ValueError(message("JpegReader: images of the batch are ", height_, " x ", width_,
                             ", and the plan makes ", plan.resampler.height(), " x ",
                             plan.resampler.width()));
  }
  plans_.add(height, width, std::move(plan));
}

JpegReader::Result JpegReader::decode(std::string_view content, int64_t most_pixels,
                                      const ImageTarget& target) const {
  const auto* bytes = reinterpret_cast<const uint8_t*>(content.data());
  if (!begins_as_jpeg(content)) return {Outcome::Left};
  JpegDecoder& decoder = decoder_of(library_);
  if (!decoder.begin(bytes, content.size())) return {Outcome::Left};
  const int64_t height = decoder.height(), width = decoder.width();
  if (!limits_.allow(height, width, content.size(), most_pixels)) {
    return {Outcome::Left};
  }
  const std::shared_ptr<const ImagePlan> plan = plans_.find(height, width);
  if (plan == nullptr) return {Outcome::NeedsPlan, height, width};
  scratch.pixels.resize(static_cast<size_t>(plan->height * plan->width * 3));
  if (!decoder.decode(plan->denominator, plan->height, plan->width, scratch.pixels.data())) {
    return {Outcome::Left};
  }
  plan->resampler.run(scratch.pixels.data(), 3, target, scratch.resizing);
  return {Outcome::Made};
}

JpegReader::Result JpegReader::read(const ImageSource& source, int64_t most_pixels,
                                    const ImageTarget& target) const {
  Result result{Outcome::Left};
  if (source.path.empty()) {
    result = decode(source.content, most_pixels, target);
  } else if (const std::optional<std::string_view> content = read_jpeg(source, scratch.content)) {
    result = decode(*content, most_pixels, target);
  }
  keep_short(scratch.content);
  keep_short(scratch.pixels);
  return result;
}

}  // namespace kerascnn
