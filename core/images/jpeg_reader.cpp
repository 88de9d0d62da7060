#include "core/images/jpeg_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "core/base/error.h"

namespace kerascnn {
namespace {

// Plans for images of so many sizes are kept.
constexpr int64_t kMostPlanBytes = int64_t{64} << 20;
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

class Descriptor {
 public:
  explicit Descriptor(const char* path) : number_(open(path, O_RDONLY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  operator int() const { return number_; }

 private:
  int number_;
};

bool read_all(int descriptor, int64_t offset, int64_t size, uint8_t* to) {
  while (size > 0) {
    const ssize_t count = pread(descriptor, to, static_cast<size_t>(size), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    offset += count, size -= count, to += count;
  }
  return true;
}

constexpr std::array<uint8_t, 3> kJpeg = {0xff, 0xd8, 0xff};

bool is_jpeg(const uint8_t* content) { return std::equal(kJpeg.begin(), kJpeg.end(), content); }

// The bytes of a JPEG file, in memory of this thread; nothing where they cannot be read.
std::optional<std::string_view> content_of(const ImageSource& source) {
  constexpr auto kFirst = static_cast<int64_t>(kJpeg.size());
  const Descriptor descriptor(source.path.c_str());
  struct stat status;
  if (descriptor < 0 || fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return {};
  const int64_t changed = status.st_mtim.tv_sec * int64_t{1000000000} + status.st_mtim.tv_nsec;
  if (source.changed >= 0 && source.changed != changed) return {};
  const int64_t left = status.st_size - source.offset;
  const int64_t size = source.size < 0 ? left : source.size;
  if (source.offset < 0 || size > left || size <= kFirst) return {};
  // Files of other formats are not read as a whole.
  std::array<uint8_t, kJpeg.size()> first;
  if (!read_all(descriptor, source.offset, kFirst, first.data()) || !is_jpeg(first.data())) {
    return {};
  }
  scratch.content.resize(static_cast<size_t>(size));
  if (!read_all(descriptor, source.offset, size, scratch.content.data())) return {};
  return std::string_view(reinterpret_cast<const char*>(scratch.content.data()),
                          scratch.content.size());
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
  auto kept = std::make_shared<const ImagePlan>(std::move(plan));
  const std::lock_guard lock(mutex_);
  if (plan_bytes_ > kMostPlanBytes) {
    plans_.clear();
    plan_bytes_ = 0;
  }
  plan_bytes_ += kept->resampler.bytes();
  plans_[{height, width}] = std::move(kept);
}

std::shared_ptr<const ImagePlan> JpegReader::plan_for(Size size) const {
  const std::lock_guard lock(mutex_);
  const auto found = plans_.find(size);
  return found == plans_.end() ? nullptr : found->second;
}

JpegReader::Result JpegReader::decode(std::string_view content, int64_t most_pixels,
                                      const ImageTarget& target) const {
  const auto* bytes = reinterpret_cast<const uint8_t*>(content.data());
  if (content.size() <= kJpeg.size() || !is_jpeg(bytes)) return {Outcome::Left};
  JpegDecoder& decoder = decoder_of(library_);
  if (!decoder.begin(bytes, content.size())) return {Outcome::Left};
  const Size size{decoder.height(), decoder.width()};
  const int64_t pixels = size.first * size.second, stored = static_cast<int64_t>(content.size());
  const bool is_bomb = 3 * pixels > limits_.small && 3 * pixels > limits_.expansion * stored;
  if (pixels > most_pixels || is_bomb) return {Outcome::Left};
  const std::shared_ptr<const ImagePlan> plan = plan_for(size);
  if (plan == nullptr) return {Outcome::NeedsPlan, size.first, size.second};
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
  } else if (const std::optional<std::string_view> content = content_of(source)) {
    result = decode(*content, most_pixels, target);
  }
  keep_short(scratch.content);
  keep_short(scratch.pixels);
  return result;
}

}  // namespace kerascnn
