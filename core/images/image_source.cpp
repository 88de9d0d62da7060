#include "core/images/image_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace kerascnn {
namespace {

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

}  // namespace

bool UnpackLimits::allow(int64_t height, int64_t width, size_t stored, int64_t most_pixels) const {
  const int64_t pixels = height * width;
  const bool is_bomb = 3 * pixels > small && 3 * pixels > expansion * static_cast<int64_t>(stored);
  return pixels <= most_pixels && !is_bomb;
}

bool begins_as_jpeg(std::string_view content) {
  return content.size() > kJpeg.size() && is_jpeg(reinterpret_cast<const uint8_t*>(content.data()));
}

std::optional<std::string_view> read_jpeg(const ImageSource& source, std::vector<uint8_t>& memory) {
  constexpr auto kFirst = static_cast<int64_t>(kJpeg.size());
  if (source.offset < 0) return {};
  const Descriptor descriptor(source.path.c_str());
  struct stat status;
  if (descriptor < 0 || fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return {};
  const int64_t changed = status.st_mtim.tv_sec * int64_t{1000000000} + status.st_mtim.tv_nsec;
  if (source.changed >= 0 && source.changed != changed) return {};
  const int64_t left = status.st_size - source.offset;
  const int64_t size = source.size < 0 ? left : source.size;
  if (size > left || size <= kFirst) return {};
  // Files of other formats are not read as a whole.
  std::array<uint8_t, kJpeg.size()> first;
  if (!read_all(descriptor, source.offset, kFirst, first.data()) || !is_jpeg(first.data())) {
    return {};
  }
  memory.resize(static_cast<size_t>(size));
  if (!read_all(descriptor, source.offset, size, memory.data())) return {};
  return std::string_view(reinterpret_cast<const char*>(memory.data()), memory.size());
}

}  // namespace kerascnn
