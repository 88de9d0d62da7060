// The bytes of image files, as data sets ask for them: whole files, or parts of archives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

  // May an image of this size be decoded from a file of `stored` bytes?
  bool allow(int64_t height, int64_t width, size_t stored, int64_t most_pixels) const;
};

bool begins_as_jpeg(std::string_view content);

// The bytes of the JPEG file at a path, in `memory`; nothing where they cannot be read or are of
// another format, of which no more than the beginning is read.
std::optional<std::string_view> read_jpeg(const ImageSource& source, std::vector<uint8_t>& memory);

}  // namespace kerascnn
