// Kernels of regions of kind columns. Each thread keeps to a few columns, goes down the rows of a
// split and adds up. A block adds up what its threads have, and the last block of some columns to
// finish adds up what the splits left in the workspace, in the order of the splits.
#include <algorithm>

#include "core/backend/regions/region_source.h"
#include "core/backend/regions/region_text.h"
#include "core/base/error.h"

namespace kerascnn {
namespace {

// What several splits left is loaded at once, as far as it takes no more 32-bit words.
constexpr int kMostSplitsAtOnce = 2;
constexpr int kMostCellWords = 16;

DType sum_dtype(const RegionReduction& each) {
  if (!is_floating(each.dtype)) return DType::Int64;
  return each.dtype == DType::Float64 ? DType::Float64 : DType::Float32;
}

class ColumnsText {
 public:
  ColumnsText(const RegionCode& code, int width) : code_(code), text_(code, width) {
    source_.threads = kRegionColumnThreads;
    source_.width = width;
    std::vector<RegionValue> wanted;
    for (size_t i = 0; i < code.outputs.size(); ++i) {
      if (code.output_levels[i] == Level::Element) wanted.push_back(code.outputs[i]);
    }
    for (const RegionReduction& each : code.reductions) wanted.push_back(each.operand);
    needs_ = element_needs(code, wanted);
    source_.depth = region_depth(code, needs_, source_.width);
    place_cells();
    const int words = source_.cell_bytes * source_.width / 4;
    splits_at_once_ = std::clamp(kMostCellWords / words, 1, kMostSplitsAtOnce);
  }

  RegionSource write() {
    source_.text = region_head(code_) + text_.offset_functions() + begin() + go_down() + finish();
    return std::move(source_);
  }

 private:
  static bool is_moments(const RegionReduction& each) { return each.kind == RegionSum::Moments; }

  // A number of a reduction that each split leaves in the workspace for each column.
  struct Cell {
    size_t reduction = 0;
    const char* part = "";  // of the reduction's sum
    int offset = 0;         // bytes of one column and split that come before
  };

  // Wide numbers come first, so that all packs lie at multiples of their size.
  void place_cells() {
    for (const size_t bytes : {8, 4}) {
      for (size_t i = 0; i < code_.reductions.size(); ++i) {
        if (itemsize(sum_dtype(code_.reductions[i])) != bytes) continue;
        std::vector<const char*> parts = {""};
        if (is_moments(code_.reductions[i])) parts = {".mean", ".deviation"};
        for (const char* part : parts) {
          cells_.push_back({i, part, source_.cell_bytes});
          source_.cell_bytes += static_cast<int>(bytes);
        }
      }
    }
  }

  std::string each_k(const std::string& body) const {
    return message("#pragma unroll\nfor (int k = 0; k < ", source_.width, "; ++k) {\n", body,
                   "}\n");
  }
  // sum<i>[k] is what a thread has of reduction i; it is of this type.
  std::string sum_type(size_t i) const {
    const RegionReduction& each = code_.reductions[i];
    const std::string type = region_sum_type(each.dtype);
    return is_moments(each) ? "Moments<" + type + ">" : type;
  }

  std::string begin() const {
    // Moments alone need few registers, and two blocks at once hide the wait for memory.
    const bool is_light = code_.reductions.size() == 1 && has_moments();
    std::string text =
        message("extern \"C\" __global__ void __launch_bounds__(", source_.threads,
                is_light ? ", 2) " : ") ", kRegionFunction, "(", text_.parameters(),
                ", long long num_rows, long long num_columns, int lane_bits, "
                "void* workspace, unsigned* tickets, long long split_rows) {\n"
                "begin_kernel();\n"
                "const Index rows = (Index)num_rows, columns = (Index)num_columns;\n",
                region_place(code_, source_.width), "const int block_rows = ", source_.threads,
                " >> lane_bits;\nconst bool is_inside = column < columns;\n");
    for (size_t i = 0; i < code_.reductions.size(); ++i) {
      text += message(sum_type(i), " sum", i, "[", source_.width, "] = {};\n");
    }
    return text;
  }

  std::string add_up() const {
    std::string text;
    for (size_t i = 0; i < code_.reductions.size(); ++i) {
      const RegionReduction& each = code_.reductions[i];
      const std::string sum = message("sum", i, "[k]");
      const std::string term =
          message("(", region_sum_type(each.dtype), ")", text_.value(each.operand));
      if (is_moments(each)) {
        text += message("add_term(differences", i, "[k], ", term, ", u == 0 && seen == 0);\n");
      } else {
        text += message(sum, " = exact::add(", sum, ", ", term, ");\n");
      }
    }
    return text;
  }

  bool has_moments() const {
    return std::any_of(code_.reductions.begin(), code_.reductions.end(), is_moments);
  }

  // differences<i>[k] is what a thread has of moments i while it goes down the rows.
  std::string declare_differences() const {
    std::string text;
    for (size_t i = 0; i < code_.reductions.size(); ++i) {
      const RegionReduction& each = code_.reductions[i];
      if (!is_moments(each)) continue;
      text += message("Differences<", region_sum_type(each.dtype), "> differences", i, "[",
                      source_.width, "] = {};\n");
    }
    return text;
  }

  std::string take_moments() const {
    std::string text;
    for (size_t i = 0; i < code_.reductions.size(); ++i) {
      if (!is_moments(code_.reductions[i])) continue;
      text += message("if (seen > 0) to_moments(differences", i, ", seen, sum", i, ");\n");
    }
    return text;
  }

  std::string go_down() const {
    const std::string slots = message('[', source_.depth, ']');
    const std::string position =
        "const Index row = first + u * block_rows;\nif (row >= end) continue;\n"
        "const Index at = row * columns + column;\n";
    std::string text = message(
        "const Index begin = part * rows + (Index)blockIdx.y * (Index)split_rows;\n"
        "const Index most = part * rows + rows;\n"
        "const Index end = most - begin < (Index)split_rows ? most : begin + (Index)split_rows;\n",
        has_moments() ? "Index seen = 0;  // rows\n" : "",
        "if (is_inside) {\nconstexpr int count = ", source_.width,
        ";\nconstexpr bool whole = true;\n", text_.once(), text_.columns(), declare_differences());
    text += message("for (Index first = begin + own_row; first < end; first += block_rows * ",
                    source_.depth, ") {\n", text_.declare_packs(needs_, slots),
                    text_.declare_row_packs(slots), "#pragma unroll\nfor (int u = 0; u < ",
                    source_.depth, "; ++u) {\n", position, text_.load_packs(needs_, "[u]"),
                    text_.load_row_packs("[u]"), "}\n", "#pragma unroll\nfor (int u = 0; u < ",
                    source_.depth, "; ++u) {\n", position);
    text += text_.row("[u]", 0) + text_.declare_outputs() +
            each_k(text_.element(needs_, "[u]") + add_up() + text_.put_outputs()) +
            text_.store_outputs() + (has_moments() ? "++seen;\n" : "") + "}\n}\n" + take_moments();
    return text + "}\n";
  }

  // What threads exchange while they merge a reduction.
  std::string exchange_type(const RegionReduction& each) const {
    return message("Exchange<", source_.threads, ", ", source_.width, ", ",
                   region_sum_type(each.dtype), ">");
  }

  std::string declare_exchange() const {
    size_t most_bytes = 0;
    for (const RegionReduction& each : code_.reductions) {
      most_bytes = std::max(most_bytes, itemsize(sum_dtype(each)));
    }
    const int wide = most_bytes == sizeof(double) ? 1 : 2;  // numbers in a Wide
    return message("constexpr int exchanged = (int)sizeof(Exchange<", source_.threads, ", ",
                   source_.width, ", Wide>) / (int)sizeof(Wide) / ", wide,
                   ";\n__shared__ Wide shared[exchanged];\n");
  }

  // Merges the sums of a block's threads, which belong to `total` rows; all threads of a column
  // have the result.
  std::string merge() const {
    std::string text;
    for (size_t i = 0; i < code_.reductions.size(); ++i) {
      const RegionReduction& each = code_.reductions[i];
      const char* const type = region_sum_type(each.dtype);
      // Numbers of another size lie elsewhere in the same memory.
      if (i > 0 && sum_dtype(each) != sum_dtype(code_.reductions[i - 1])) {
        text += "__syncthreads();\n";
      }
      text += message(is_moments(each) ? "merge_moments(sum" : "add_rows(sum", i,
                      is_moments(each) ? message(", (", type, ")seen, (", type, ")total") : "",
                      ", *reinterpret_cast<", exchange_type(each), "*>(shared), lanes);\n");
    }
    return text;
  }

  std::string pack_of(const Cell& cell) const {
    return message(region_tag(sum_dtype(code_.reductions[cell.reduction])), ", ", source_.width);
  }

  std::string store_cells() const {
    std::string text;
    for (size_t n = 0; n < cells_.size(); ++n) {
      const Cell& cell = cells_[n];
      const char* const tag = region_tag(sum_dtype(code_.reductions[cell.reduction]));
      text += message("Pack<", pack_of(cell), "> a", n, ";\n",
                      each_k(message('a', n, ".put(k, ", tag, "::bits(sum", cell.reduction, "[k]",
                                     cell.part, "));\n")),
                      "store<", pack_of(cell), ">(cells", n, ", split * columns + column, ",
                      source_.width, ", true, a", n, ");\n");
    }
    return text;
  }

  // Adds what some splits left to what the thread has of those before; their loads are under way
  // at once.
  std::string add_cells() const {
    const std::string each_split =
        message("#pragma unroll\nfor (int u = 0; u < ", splits_at_once_,
                "; ++u) {\nconst long long split = first + u * block_rows;\n"
                "if (split >= (long long)gridDim.y) continue;\n");
    std::string declared, loads, additions;
    for (size_t n = 0; n < cells_.size(); ++n) {
      const size_t i = cells_[n].reduction;
      const RegionReduction& each = code_.reductions[i];
      declared += message("Pack<", pack_of(cells_[n]), "> a", n, "[", splits_at_once_, "];\n");
      loads += message("a", n, "[u] = load<", pack_of(cells_[n]), ">(cells", n,
                       ", split * columns + column, ", source_.width, ", true);\n");
      if (!is_moments(each)) {
        additions +=
            each_k(message("sum", i, "[k] = exact::add(sum", i, "[k], a", n, "[u].get(k));\n"));
      } else if (n > 0 && cells_[n - 1].reduction == i) {
        const char* const type = region_sum_type(each.dtype);
        additions += message("append_moments(sum", i, ", a", n - 1, "[u], a", n, "[u], (", type,
                             ")own, (", type, ")seen);\n");
      }
    }
    if (has_moments()) {
      additions =
          "const Index before = (Index)split * (Index)split_rows;\n"
          "const Index own = rows - before < (Index)split_rows ? rows - before : "
          "(Index)split_rows;\n" +
          additions + "seen += own;\n";
    }
    return declared + each_split + loads + "}\n" + each_split + additions + "}\n";
  }

  std::string write_sums() const {
    std::string text;
    for (size_t o = 0; o < code_.outputs.size(); ++o) {
      if (code_.output_levels[o] == Level::Element) continue;
      const RegionValue& value = code_.outputs[o];
      const RegionReduction& each = code_.reductions[value.index];
      const std::string type = region_sum_type(each.dtype);
      std::string result = message("sum", value.index, "[k]");
      if (is_moments(each)) {
        result = value.output == 0 ? result + ".mean"
                                   : message(result, ".deviation / (", type, ")num_rows");
      } else if (each.kind == RegionSum::Mean) {
        result = message("exact::multiply(", result, ", (", type, ")(1.0 / (double)num_rows))");
      }
      const char* const tag = region_tag(each.dtype);
      text += message("static_cast<", tag, "::Bits*>(o", o,
                      ")[part * columns + column + k] = ", tag, "::bits(", result, ");\n");
    }
    return each_k(text);
  }

  // A block merges what its threads have, and the last one what the splits left: the same code, as
  // a kernel of some microseconds waits for each line of instructions that it has not run yet.
  std::string finish() const {
    std::string cells;
    for (size_t n = 0; n < cells_.size(); ++n) {
      cells +=
          message("void* const cells", n, " = static_cast<char*>(workspace) + (", cells_[n].offset,
                  "ll * num_parts + ", itemsize(sum_dtype(code_.reductions[cells_[n].reduction])),
                  "ll * part) * (long long)gridDim.y * columns;\n");
    }
    std::string text = declare_exchange();
    if (has_moments()) text += "Index total = end - begin;\n";
    text +=
        message("const bool is_writer = is_inside && own_row == 0;\n",
                "const long long num_parts = ", code_.parts == 1 ? "1" : "gridDim.x / tiles", ";\n",
                cells, "#pragma unroll 1\nfor (bool is_last = gridDim.y == 1;;) {\n", merge(),
                "if (is_last) break;\nif (is_writer) {\n", "const long long split = blockIdx.y;\n",
                store_cells(), "}\nis_last = is_last_block(tickets + blockIdx.x, gridDim.y);\n",
                "if (!is_last) return;\n");
    for (size_t i = 0; i < code_.reductions.size(); ++i) {
      text += each_k(message("sum", i, "[k] = {};\n"));
    }
    if (has_moments()) text += "seen = 0;\ntotal = rows;\n";
    text += message(
                "if (is_inside) {\nfor (long long first = own_row; first < (long long)gridDim.y; "
                "first += block_rows * ",
                splits_at_once_, ") {\n") +
            add_cells() + "}\n}\n}\n";
    return text + "if (is_writer) {\n" + write_sums() + "}\n}\n";
  }

  const RegionCode& code_;
  RegionText text_;
  ElementNeeds needs_;
  RegionSource source_;
  std::vector<Cell> cells_;
  int splits_at_once_ = 1;
};

}  // namespace

RegionSource columns_source(const RegionCode& code, int max_width) {
  int width = region_width(code, max_width);
  while (code.columns % width != 0) width /= 2;
  return ColumnsText(code, width).write();
}

}  // namespace kerascnn
