#include "core/images/plain_jpeg.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/ceil_div.h"

namespace kerascnn {
namespace {

// The second bytes of markers, as the standard (ITU-T T.81) names them.
enum Marker : uint8_t {
  kStuffed = 0x00,
  kBaseline = 0xc0,     // SOF0
  kHuffman = 0xc4,      // DHT
  kRestart = 0xd0,      // RST0 to RST7
  kBegin = 0xd8,        // SOI
  kEnd = 0xd9,          // EOI
  kScan = 0xda,         // SOS
  kQuantizer = 0xdb,    // DQT
  kInterval = 0xdd,     // DRI
  kApplication = 0xe0,  // APP0 to APP15
  kAdobe = 0xee,
  kComment = 0xfe,  // COM
};

constexpr int64_t kBlock = 8;
constexpr int64_t kMostPixels = 16384;  // of a side
constexpr size_t kMostComponents = 3;
constexpr size_t kTables = 4, kBaselineTables = 2;

// Bytes of a file, read from the front; nothing is read behind their end.
class Bytes {
 public:
  explicit Bytes(std::string_view content) : content_(content) {}

  size_t left() const { return content_.size() - at_; }
  size_t at() const { return at_; }
  // 0 behind the end, which whoever counts on the value rules out by left().
  uint8_t next() { return left() > 0 ? static_cast<uint8_t>(content_[at_++]) : uint8_t{0}; }
  int64_t next_two() {
    const int64_t high = next();
    return high << 8 | next();
  }
  // The next bytes; fewer where there are not as many.
  Bytes take(size_t count) {
    Bytes taken(content_.substr(at_, count));
    at_ += taken.left();
    return taken;
  }
  // Goes to the next 0xff and behind it; false where there is none.
  bool find_marker() {
    const void* found = left() > 0 ? std::memchr(content_.data() + at_, 0xff, left()) : nullptr;
    if (found == nullptr) return false;
    at_ = static_cast<size_t>(static_cast<const char*>(found) - content_.data()) + 1;
    return true;
  }
  bool begin_with(std::string_view text) const { return content_.substr(at_, text.size()) == text; }

 private:
  std::string_view content_;
  size_t at_ = 0;
};

struct Component {
  uint8_t id = 0, across = 0, down = 0, quantizer = 0;
};

class Parser {
 public:
  explicit Parser(std::string_view content) : content_(content), bytes_(content) {}

  std::optional<PlainJpeg> parse() {
    if (bytes_.next() != 0xff || bytes_.next() != kBegin) return {};
    while (true) {
      if (bytes_.left() < 4 || bytes_.next() != 0xff) return {};
      const uint8_t marker = bytes_.next();
      const int64_t length = bytes_.next_two() - 2;
      if (length < 0 || bytes_.left() < static_cast<size_t>(length)) return {};
      Bytes segment = bytes_.take(static_cast<size_t>(length));
      if (!take(marker, segment)) return {};
      if (marker == kScan) break;
    }
    if (!pass_codes()) return {};
    return PlainJpeg{height_, width_, content_.substr(0, bytes_.at())};
  }

 private:
  // False for a segment that no plain file has.
  bool take(uint8_t marker, Bytes& segment) {
    switch (marker) {
      case kBaseline:
        return take_frame(segment);
      case kHuffman:
        return take_huffman(segment);
      case kQuantizer:
        return take_quantizers(segment);
      case kInterval:
        if (segment.left() != 2) return false;
        interval_ = segment.next_two();
        return true;
      case kScan:
        return take_scan(segment);
      case kAdobe:
        return take_adobe(segment);
      default:
        return marker == kComment || (marker >= kApplication && marker < kApplication + 16);
    }
  }

  bool take_frame(Bytes& segment) {
    if (count_ != 0 || segment.left() < 6) return false;
    const uint8_t bits = segment.next();
    height_ = segment.next_two();
    width_ = segment.next_two();
    count_ = segment.next();
    if (bits != 8 || height_ < 1 || height_ > kMostPixels || width_ < 1 || width_ > kMostPixels ||
        (count_ != 1 && count_ != kMostComponents) || segment.left() != 3 * count_) {
      return false;
    }
    for (size_t i = 0; i < count_; ++i) {
      Component& component = components_[i];
      component.id = segment.next();
      const uint8_t sampling = segment.next();
      component.across = sampling >> 4, component.down = sampling & 15;
      component.quantizer = segment.next();
      const bool may_be_twice = i == 0 && count_ == kMostComponents;
      const uint8_t most = may_be_twice ? 2 : 1;
      // Other numbers than these can mean RGB.
      const bool has_usual_id = count_ == 1 || component.id == i + 1;
      if (component.across < 1 || component.across > most || component.down < 1 ||
          component.down > most || component.quantizer >= kTables || !has_usual_id) {
        return false;
      }
    }
    return true;
  }

  bool take_huffman(Bytes& segment) {
    if (segment.left() == 0) return false;
    while (segment.left() > 0) {
      const uint8_t head = segment.next();
      const size_t kind = head >> 4, number = head & 15;
      if (kind > 1 || number >= kBaselineTables || segment.left() < 16) return false;
      size_t symbols = 0;
      int64_t code = 0;
      for (int length = 1; length <= 16; ++length) {
        const int64_t codes = segment.next();
        symbols += static_cast<size_t>(codes);
        code += codes;
        // No code may be all ones.
        if (codes > 0 && code >= int64_t{1} << length) return false;
        code <<= 1;
      }
      if (symbols == 0 || segment.left() < symbols) return false;
      Bytes values = segment.take(symbols);
      while (values.left() > 0) {
        if (!is_symbol(kind, values.next())) return false;
      }
      has_codes_[kind][number] = true;
    }
    return true;
  }

  // Of DC: how many bits a difference has. Of AC: how many zeros and how many bits.
  static bool is_symbol(size_t kind, uint8_t value) {
    if (kind == 0) return value <= 11;
    const int zeros = value >> 4, bits = value & 15;
    return bits == 0 ? zeros == 0 || zeros == 15 : bits <= 10;
  }

  bool take_quantizers(Bytes& segment) {
    if (segment.left() == 0) return false;
    while (segment.left() > 0) {
      const uint8_t head = segment.next();
      // One byte each, the upper half of the head being 0.
      if (head >= kTables || segment.left() < kBlock * kBlock) return false;
      for (int64_t i = 0; i < kBlock * kBlock; ++i) {
        if (segment.next() == 0) return false;
      }
      has_quantizer_[head] = true;
    }
    return true;
  }

  // Adobe's programs say whether three components are YCbCr.
  bool take_adobe(Bytes segment) {
    if (!segment.begin_with("Adobe")) return true;
    if (segment.left() < 12) return false;
    segment.take(11);
    has_adobe_ = true;
    adobe_transform_ = segment.next();
    return true;
  }

  bool take_scan(Bytes& segment) {
    if (count_ == 0 || segment.left() != 4 + 2 * count_ || segment.next() != count_) return false;
    if (has_adobe_ && adobe_transform_ != (count_ == 1 ? 0 : 1)) return false;
    for (size_t i = 0; i < count_; ++i) {
      const uint8_t id = segment.next(), tables = segment.next();
      const size_t dc = tables >> 4, ac = tables & 15;
      if (id != components_[i].id || dc >= kBaselineTables || ac >= kBaselineTables ||
          !has_codes_[0][dc] || !has_codes_[1][ac] || !has_quantizer_[components_[i].quantizer]) {
        return false;
      }
    }
    // All coefficients at once, with all of their bits.
    return segment.next() == 0 && segment.next() == 63 && segment.next() == 0;
  }

  // Goes behind the end of the codes, and of the file.
  bool pass_codes() {
    const int64_t across = components_[0].across, down = components_[0].down;
    const int64_t units = ceil_div(width_, kBlock * across) * ceil_div(height_, kBlock * down);
    const int64_t blocks = units * (count_ == 1 ? 1 : across * down + 2);
    int64_t restarts = interval_ > 0 ? ceil_div(units, interval_) - 1 : 0;
    const size_t begin = bytes_.at();
    uint8_t next_restart = kRestart;
    while (bytes_.find_marker()) {
      const uint8_t marker = bytes_.next();
      if (marker == kStuffed && bytes_.left() > 0) continue;
      if (marker == kEnd) {
        // Each block has two codes at least, of a bit or more.
        const auto size = static_cast<int64_t>(bytes_.at() - begin) - 2;
        return restarts == 0 && blocks <= 4 * size;
      }
      if (marker != next_restart || restarts == 0) return false;
      --restarts;
      next_restart = static_cast<uint8_t>(kRestart + (marker + 1) % 8);
    }
    return false;
  }

  const std::string_view content_;
  Bytes bytes_;
  int64_t height_ = 0, width_ = 0, interval_ = 0;
  size_t count_ = 0;  // of components; 0 before the frame
  std::array<Component, kMostComponents> components_{};
  std::array<std::array<bool, kBaselineTables>, 2> has_codes_{};
  std::array<bool, kTables> has_quantizer_{};
  bool has_adobe_ = false;
  uint8_t adobe_transform_ = 0;
};

}  // namespace

std::optional<PlainJpeg> plain_jpeg(std::string_view content) { return Parser(content).parse(); }

}  // namespace kerascnn
