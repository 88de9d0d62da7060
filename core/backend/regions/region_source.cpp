#include "core/backend/regions/region_source.h"

#include <algorithm>

#include "core/backend/regions/region_text.h"
#include "core/base/error.h"

namespace kerascnn {
namespace {

constexpr int kAccessBytes = 16;
constexpr int kMaxWidth = 8;
// So many 32-bit words may wait for memory in registers.
constexpr int kMostWords = 32;
constexpr int kMostDepth = 4;
// Up to this size positions have 32 bits, with room for the step of a whole grid.
constexpr int64_t kMostNarrowSize = int64_t{1} << 30;

}  // namespace

int region_item_bytes(const RegionCode& code) {
  size_t smallest = 8;
  for (const RegionLoad& load : code.loads) {
    const bool is_transposed =
        load.reading == RegionReading::Strided &&
        std::none_of(load.strides.begin(), load.strides.end(), [](int64_t s) { return s == 0; });
    if (load.reading == RegionReading::InOrder || is_transposed) {
      smallest = std::min(smallest, itemsize(load.dtype));
    }
  }
  for (size_t i = 0; i < code.outputs.size(); ++i) {
    if (code.output_levels[i] == Level::Element) {
      smallest = std::min(smallest, itemsize(code.outputs[i].dtype));
    }
  }
  return static_cast<int>(smallest);
}

int region_width(const RegionCode& code, int max_width) {
  return std::min({kAccessBytes / region_item_bytes(code), kMaxWidth, max_width});
}

int region_depth(const RegionCode& code, const ElementNeeds& needs, int width) {
  int words = 0;
  for (size_t i = 0; i < code.loads.size(); ++i) {
    if (!needs.loads[i]) continue;
    words += std::max(1, width * static_cast<int>(itemsize(code.loads[i].dtype)) / 4);
  }
  int depth = kMostDepth;
  while (depth > 1 && depth * words > kMostWords) depth /= 2;
  return depth;
}

std::string region_place(const RegionCode& code, int width) {
  const std::string place = message(
      "const int lanes = 1 << lane_bits;\n"
      "const int lane = (int)threadIdx.x & (lanes - 1);\n"
      "const int own_row = (int)threadIdx.x >> lane_bits;\n");
  if (code.parts == 1) {
    return place + message(
                       "constexpr Index part = 0;\n"
                       "const Index column = (((Index)blockIdx.x << lane_bits) + lane) * ",
                       width, ";\n");
  }
  return place +
         message("const unsigned tiles = (unsigned)((columns + (", width, " << lane_bits) - 1) / (",
                 width,
                 " << lane_bits));\nconst Index part = (Index)(blockIdx.x / tiles);\n"
                 "const Index column = (((Index)(blockIdx.x % tiles) << lane_bits) + lane) * ",
                 width, ";\n");
}

std::string region_head(const RegionCode& code) {
  const bool is_narrow = code.rows * code.columns < kMostNarrowSize;
  return region_prelude() + message("typedef ", is_narrow ? "int" : "long long", " Index;\n");
}

RegionSource region_source(const RegionCode& code, int max_width) {
  RegionSource source = code.kind == RegionKind::Map    ? map_source(code, max_width)
                        : code.kind == RegionKind::Rows ? rows_source(code, max_width)
                                                        : columns_source(code, max_width);
  source.kind = code.kind;
  source.by_column = code.by_column;
  source.parts = code.parts;
  source.constants = code.constants;
  return source;
}

}  // namespace kerascnn
