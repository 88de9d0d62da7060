// Kernels of regions of kind rows: some lanes of a warp, a warp or a block share a row. The inputs
// of the row stay in registers, and values are computed from them again between the reductions.
// Where registers have no room for the inputs, these are read again.
#include <algorithm>
#include <optional>

#include "core/backend/regions/region_source.h"
#include "core/backend/regions/region_text.h"
#include "core/base/ceil_div.h"
#include "core/base/error.h"

namespace kerascnn {
namespace {

constexpr int64_t kWarpColumns = 1024;
constexpr int kWarp = 32;
constexpr int kMostThreads = 1024;
constexpr int kUsualThreads = 256;
constexpr int kLongThreads = 512;  // of rows that are read again
// A thread may have so many 32-bit words of a row's inputs.
constexpr int kMostWordsOfRows = 64;
constexpr int kMostWordsOfLargeBlocks = 32;
constexpr double kMostWaste = 1.2;  // places in the threads' registers for each element
constexpr int kFewBytes = 8;        // fewer at once are worth other geometries
constexpr int kFewestLanes = 4;     // of these
constexpr int kMostElements = 32;   // of a thread in these

struct RowGeometry {
  int width = 1;
  int lanes = 1;
  int depth = 1;  // pieces of `width` elements of a thread
  double waste() const { return static_cast<double>(width) * lanes * depth; }
};

RowGeometry geometry_of_width(int64_t columns, int width) {
  RowGeometry g;
  g.width = width;
  const int64_t pieces = columns / width;
  if (columns <= kWarpColumns) {
    while (g.lanes < kWarp && g.lanes < pieces) g.lanes *= 2;
  } else {
    const int64_t depth = pieces <= kUsualThreads ? 1 : 2;
    const int64_t warps = ceil_div(ceil_div(pieces, depth), kWarp);
    g.lanes = static_cast<int>(std::min<int64_t>(warps * kWarp, kMostThreads));
  }
  g.depth = static_cast<int>(ceil_div(pieces, g.lanes));
  return g;
}

bool is_well_filled(const RowGeometry& g, int64_t columns) {
  return g.waste() <= kMostWaste * static_cast<double>(columns);
}

// One in which lanes have more pieces each, and load several elements at once.
std::optional<RowGeometry> geometry_of_few_lanes(int64_t columns, int widest, int bytes) {
  if (columns > kWarpColumns) return std::nullopt;
  for (int width = widest; width * bytes >= kFewBytes; width /= 2) {
    for (int lanes = kWarp / 2; lanes >= kFewestLanes; lanes /= 2) {
      const RowGeometry g{width, lanes, static_cast<int>(ceil_div(columns / width, lanes))};
      if (g.depth * width <= kMostElements && is_well_filled(g, columns)) return g;
    }
  }
  return std::nullopt;
}

// The widest geometry whose pieces fill the lanes well. The smallest element has so many bytes.
RowGeometry row_geometry(int64_t columns, int widest, int bytes) {
  while (columns % widest != 0) widest /= 2;
  RowGeometry best = geometry_of_width(columns, widest);
  for (int width = widest; width > 0 && !is_well_filled(best, columns); width /= 2) {
    const RowGeometry g = geometry_of_width(columns, width);
    if (g.waste() < best.waste()) best = g;
  }
  if (best.width * bytes >= kFewBytes) return best;
  return geometry_of_few_lanes(columns, widest, bytes).value_or(best);
}

class RowsText {
 public:
  RowsText(const RegionCode& code, const RowGeometry& g) : code_(code), text_(code, g.width) {
    source_.width = g.width;
    source_.lanes = g.lanes;
    source_.depth = g.depth;
    source_.threads = g.lanes > kWarp ? g.lanes : kUsualThreads;
    std::vector<RegionValue> wanted;
    for (size_t i = 0; i < code.outputs.size(); ++i) {
      if (code.output_levels[i] == Level::Element) outputs_.push_back(code.outputs[i]);
    }
    wanted = outputs_;
    for (const RegionReduction& each : code.reductions) wanted.push_back(each.operand);
    needs_ = element_needs(code, wanted);
    held_ = needs_;
    int words = 0;
    for (size_t i = 0; i < code.loads.size(); ++i) {
      // Inputs of columns are the same for all rows, so the cache holds them.
      if (code.loads[i].reading == RegionReading::PerColumn) held_.loads[i] = false;
      const int bytes = g.width * g.depth * static_cast<int>(itemsize(code.loads[i].dtype));
      if (held_.loads[i]) words += std::max(g.depth, bytes / 4);
    }
    const bool is_large = source_.threads > kLongThreads;
    source_.holds_row = words <= (is_large ? kMostWordsOfLargeBlocks : kMostWordsOfRows);
    if (!source_.holds_row && source_.lanes > kWarp) {
      source_.lanes = source_.threads = kLongThreads;
    }
  }

  RegionSource write() {
    const int rows = source_.threads / source_.lanes;
    std::string text = message(
        "extern \"C\" __global__ void __launch_bounds__(", source_.threads, ") ", kRegionFunction,
        "(", text_.parameters(),
        ", long long num_rows, long long num_columns) {\nbegin_kernel();\n"
        "const Index rows = (Index)num_rows, columns = (Index)num_columns;\n"
        "const int lane = (int)threadIdx.x % ",
        source_.lanes, ";\n", text_.once(), "for (Index first = (Index)blockIdx.x * ", rows,
        "; first < rows; first += (Index)gridDim.x * ", rows,
        ") {\nconst bool is_inside = first + (int)threadIdx.x / ", source_.lanes,
        " < rows;\nconst Index row = is_inside ? first + (int)threadIdx.x / ", source_.lanes,
        " : rows - 1;\n", text_.declare_row_packs(""), text_.load_row_packs(""));
    if (source_.holds_row) {
      text += text_.declare_packs(held_, message('[', source_.depth, ']'));
      text += pieces(text_.load_packs(held_, "[j]"));
    }
    text += text_.row("", 0);
    for (int stage = 0; stage < code_.num_stages; ++stage) {
      text += reduce(stage) + text_.row("", stage + 1);
    }
    text += write_outputs() + "}\n}\n";
    source_.text = region_head(code_) + text_.offset_functions() + text;
    return std::move(source_);
  }

 private:
  // Writes the body for each piece of the row that the thread has.
  std::string pieces(const std::string& body) const {
    const std::string piece = message(source_.lanes * source_.width);
    const std::string end = source_.holds_row ? message("j < ", source_.depth)
                                              : message("(Index)j * ", piece, " < columns");
    return message(source_.holds_row ? "#pragma unroll\n" : "#pragma unroll 2\n",
                   "for (int j = 0; ", end, "; ++j) {\nconst Index column = (Index)j * ", piece,
                   " + lane * ", source_.width, ";\nconst Index at = row * columns + column;\n",
                   "constexpr int count = ", source_.width, ";\nconstexpr bool whole = true;\n",
                   "if (is_inside && column < columns) {\n", body, "}\n}\n");
  }

  // The statements of elements that these values need, before `behind`, within a loop over k.
  std::string elements(const ElementNeeds& needs, const std::string& behind) const {
    const std::string slot = source_.holds_row ? "[j]" : "";
    return message("#pragma unroll\nfor (int k = 0; k < ", source_.width, "; ++k) {\n",
                   text_.element(needs, slot), behind, "}\n");
  }

  // Loads that these need and no register holds.
  std::string loads(ElementNeeds needs) const {
    for (size_t i = 0; source_.holds_row && i < needs.loads.size(); ++i) {
      if (held_.loads[i]) needs.loads[i] = false;
    }
    return text_.declare_packs(needs, "") + text_.load_packs(needs, "");
  }

  static const char* combination(RegionSum kind) {
    if (kind == RegionSum::Maximum) return "Maximum()";
    return kind == RegionSum::Minimum ? "Minimum()" : "Add()";
  }

  // The value that changes nothing.
  static std::string neutral(const RegionReduction& each) {
    if (each.kind == RegionSum::Sum || each.kind == RegionSum::Mean) return "0";
    const bool is_max = each.kind == RegionSum::Maximum;
    if (!is_floating(each.dtype)) {
      return is_max ? "(long long)0x8000000000000000ull" : "0x7fffffffffffffffll";
    }
    return is_max ? "-__uint_as_float(0x7f800000u)" : "__uint_as_float(0x7f800000u)";
  }

  std::string reduce(int stage) const {
    std::vector<RegionValue> operands;
    std::string text, add, merge;
    for (size_t i = 0; i < code_.reductions.size(); ++i) {
      const RegionReduction& each = code_.reductions[i];
      if (each.stage != stage) continue;
      operands.push_back(each.operand);
      const char* const type = region_sum_type(each.dtype);
      const char* const combine = combination(each.kind);
      text += message(type, " sum", i, " = ", neutral(each), ";\n");
      add += message("sum", i, " = ", combine, "(sum", i, ", (", type, ")",
                     text_.value(each.operand), ");\n");
      std::string result = message("merge_lanes<", source_.lanes, ">(sum", i, ", ", combine, ")");
      if (each.kind == RegionSum::Mean) {
        result = message("exact::multiply(", result, ", (", type, ")(1.0 / (double)num_columns))");
      }
      const char* const tag = region_tag(each.dtype);
      merge += message("const ", region_type(each.dtype), " s", i, " = ", tag, "::value(", tag,
                       "::bits(", result, "));\n");
    }
    const ElementNeeds needs = element_needs(code_, operands);
    return text + pieces(loads(needs) + elements(needs, add)) + merge;
  }

  std::string write_outputs() const {
    std::string text;
    if (!outputs_.empty()) {
      const ElementNeeds needs = element_needs(code_, outputs_);
      text += pieces(loads(needs) + text_.declare_outputs() + elements(needs, text_.put_outputs()) +
                     text_.store_outputs());
    }
    std::string of_rows;
    for (size_t o = 0; o < code_.outputs.size(); ++o) {
      if (code_.output_levels[o] == Level::Element) continue;
      of_rows += message("static_cast<", region_tag(code_.outputs[o].dtype), "::Bits*>(o", o,
                         ")[row] = ", text_.bits(code_.outputs[o]), ";\n");
    }
    if (of_rows.empty()) return text;
    return text + "if (is_inside && lane == 0) {\n" + of_rows + "}\n";
  }

  const RegionCode& code_;
  RegionText text_;
  std::vector<RegionValue> outputs_;  // of elements
  ElementNeeds needs_;
  ElementNeeds held_;  // loads of the row itself
  RegionSource source_;
};

}  // namespace

RegionSource rows_source(const RegionCode& code, int max_width) {
  const RowGeometry g =
      row_geometry(code.columns, region_width(code, max_width), region_item_bytes(code));
  return RowsText(code, g).write();
}

}  // namespace kerascnn
