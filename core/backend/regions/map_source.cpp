// Kernels of regions of kind map.
#include "core/backend/regions/region_source.h"
#include "core/backend/regions/region_text.h"
#include "core/base/error.h"

namespace kerascnn {
namespace {

// Each thread keeps to `width` columns and goes down the rows.
std::string by_column(const RegionCode& code, const RegionText& text, const ElementNeeds& needs,
                      const RegionSource& s) {
  const std::string slots = message('[', s.depth, ']');
  return message(
      ", long long num_rows, long long num_columns, int lane_bits) {\n"
      "begin_kernel();\n"
      "const Index rows = (Index)num_rows, columns = (Index)num_columns;\n",
      region_place(code, s.width),
      "if (column >= columns) return;\nconstexpr int count = ", s.width,
      ";\nconstexpr bool whole = true;\n", text.once(), text.columns(),
      "const Index end = part * rows + rows;\nconst Index block_rows = ", s.threads,
      " >> lane_bits;\nconst Index step = block_rows * ", s.depth,
      " * (Index)gridDim.y;\nfor (Index first = part * rows + block_rows * ", s.depth,
      " * (Index)blockIdx.y + own_row; first < end; first += step) {\n",
      text.declare_packs(needs, slots), text.declare_row_packs(slots),
      "#pragma unroll\nfor (int u = 0; u < ", s.depth,
      "; ++u) {\nconst Index row = first + u * block_rows;\nif (row >= end) continue;\n"
      "const Index at = row * columns + column;\n",
      text.load_packs(needs, "[u]"), text.load_row_packs("[u]"),
      "}\n#pragma unroll\nfor (int u = 0; u < ", s.depth,
      "; ++u) {\nconst Index row = first + u * block_rows;\nif (row >= end) continue;\n"
      "const Index at = row * columns + column;\n",
      text.row("[u]", 0), text.declare_outputs(), "#pragma unroll\nfor (int k = 0; k < ", s.width,
      "; ++k) {\n", text.element(needs, "[u]"), text.put_outputs(), "}\n", text.store_outputs(),
      "}\n}\n}\n");
}

// Threads take elements one after another, whatever columns these are in.
std::string in_a_row(const RegionText& text, const ElementNeeds& needs, const RegionSource& s,
                     bool has_tail) {
  const std::string slots = message('[', s.depth, ']');
  const std::string piece = message(s.threads * s.width);
  const std::string full = message(s.width);
  const std::string count =
      has_tail ? "const int count = size - at < " + full + " ? (int)(size - at) : " + full +
                     ";\nconst bool whole = count == " + full + ";\n"
               : "constexpr int count = " + full + ";\nconstexpr bool whole = true;\n";
  const std::string position =
      message("const Index at = first + u * ", piece, ";\nif (at >= size) continue;\n", count);
  return message(
      ", long long num_elements) {\n"
      "begin_kernel();\n"
      "const Index size = (Index)num_elements;\n",
      text.once(), "const Index step = (Index)gridDim.x * ", s.depth, " * ", piece,
      ";\nfor (Index first = (Index)blockIdx.x * ", s.depth, " * ", piece,
      " + (Index)threadIdx.x * ", s.width, "; first < size; first += step) {\n",
      text.declare_packs(needs, slots), "#pragma unroll\nfor (int u = 0; u < ", s.depth,
      "; ++u) {\n", position, text.load_packs(needs, "[u]"),
      "}\n#pragma unroll\nfor (int u = 0; u < ", s.depth, "; ++u) {\n", position,
      text.declare_outputs(), "#pragma unroll\nfor (int k = 0; k < ", s.width, "; ++k) {\n",
      text.element(needs, "[u]"), text.put_outputs(), "}\n", text.store_outputs(), "}\n}\n}\n");
}

}  // namespace

RegionSource map_source(const RegionCode& code, int max_width) {
  RegionSource source;
  source.threads = kRegionElementThreads;
  source.width = region_width(code, max_width);
  while (code.by_column && code.columns % source.width != 0) source.width /= 2;
  const RegionText text(code, source.width);
  const ElementNeeds needs = element_needs(code, code.outputs);
  source.depth = region_depth(code, needs, source.width);
  source.text = region_head(code) + text.offset_functions() +
                message("extern \"C\" __global__ void __launch_bounds__(", source.threads, ") ",
                        kRegionFunction, "(", text.parameters()) +
                (code.by_column
                     ? by_column(code, text, needs, source)
                     : in_a_row(text, needs, source, code.rows * code.columns % source.width != 0));
  return source;
}

}  // namespace kerascnn
