// JPEG files of the plainest kind, for decoders that check less of a file than libjpeg does.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kerascnn {

struct PlainJpeg {
  int64_t height, width;
  std::string_view content;  // from the first marker to the last one, without what is behind it
};

// What most cameras and programs write, whole and without contradictions; nothing for any other
// file:
//
// - baseline: 8 bits, Huffman codes, one scan with all components, at most 16384 pixels high and
//   wide, which is what engines for JPEG files take;
// - grey, or YCbCr with the chroma at full or half height and width;
// - all tables that are used are there and valid;
// - between the codes there are no markers but restarts, in their order and as many as the header
//   says, and the end, and there are enough bytes for the shortest codes.
//
// The codes themselves are not decoded: some of them may still be wrong.
std::optional<PlainJpeg> plain_jpeg(std::string_view content);

}  // namespace kerascnn
