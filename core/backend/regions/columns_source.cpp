// Kernels of regions of kind columns. Each thread keeps to a few columns, goes down the rows of a
// split and adds up. A block adds up what its threads have, and the last block of some columns to
// finish adds up what the splits left in the workspace, in the order of the splits.
#include <algorithm>

#include "core/backend/regions/region_source.h"
#include "core/backend/regions/region_text.h"
#include "core/base/error.h"

namespace kerascnn {
namespace {

constexpr int kMergedAtOnce = 4;  // columns of which the threads of a block share their sums

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
    for (const RegionReduction& each : code.reductions) source_.num_cells += num_cells(each);
  }

  RegionSource write() {
    source_.text = region_head(code_) + text_.offset_functions() + begin() + go_down() + finish();
    return std::move(source_);
  }

 private:
  static bool is_moments(const RegionReduction& each) { return each.kind == RegionSum::Moments; }
  static int num_cells(const RegionReduction& each) { return is_moments(each) ? 3 : 1; }

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
    std::string text = message("extern \"C\" __global__ void __launch_bounds__(", source_.threads,
                               ") ", kRegionFunction, "(", text_.parameters(),
                               ", long long num_rows, long long num_columns, int lane_bits, "
                               "void* workspace, unsigned* tickets, long long split_rows) {\n"
                               "begin_kernel();\n"
                               "const Index rows = (Index)num_rows, columns = (Index)num_columns;\n"
                               "const int lanes = 1 << lane_bits;\n"
                               "const int lane = (int)threadIdx.x & (lanes - 1);\n"
                               "const int own_row = (int)threadIdx.x >> lane_bits;\n"
                               "const int block_rows = ",
                               source_.threads,
                               " >> lane_bits;\n"
                               "const Index column = (((Index)blockIdx.x << lane_bits) + lane) * ",
                               source_.width, ";\nconst bool is_inside = column < columns;\n");
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
        text += message("terms", i, "[u][k] = ", term, ";\n");
      } else {
        text += message(sum, " = exact::add(", sum, ", ", term, ");\n");
      }
    }
    return text;
  }

  bool has_moments() const {
    return std::any_of(code_.reductions.begin(), code_.reductions.end(), is_moments);
  }

  // terms<i>[u][k] is what reduction i reads of row u. Moments take the rows of a turn together:
  // that is one division and one chain of dependent operations for each turn rather than for each
  // row.
  std::string declare_terms() const {
    std::string text;
    for (size_t i = 0; i < code_.reductions.size(); ++i) {
      const RegionReduction& each = code_.reductions[i];
      if (!is_moments(each)) continue;
      text += message(region_sum_type(each.dtype), " terms", i, "[", source_.depth, "][",
                      source_.width, "];\n");
    }
    return text.empty() ? text : text + "int num_terms = 0;\n";
  }

  std::string add_terms() const {
    std::string text;
    for (size_t i = 0; i < code_.reductions.size(); ++i) {
      if (is_moments(code_.reductions[i])) {
        text += message("add_terms(sum", i, ", terms", i, ", num_terms, seen);\n");
      }
    }
    return text.empty() ? text : text + "seen += num_terms;\n";
  }

  std::string go_down() const {
    const std::string slots = message('[', source_.depth, ']');
    const std::string position =
        "const Index row = first + u * block_rows;\nif (row >= end) continue;\n"
        "const Index at = row * columns + column;\n";
    std::string text = message(
        "if (is_inside) {\nconstexpr int count = ", source_.width,
        ";\nconstexpr bool whole = true;\n", text_.once(), text_.columns(),
        "const Index begin = (Index)blockIdx.y * (Index)split_rows;\n"
        "const Index end = rows - begin < (Index)split_rows ? rows : begin + (Index)split_rows;\n");
    if (has_moments()) text += "int seen = 0;  // rows\n";
    text += message("for (Index first = begin + own_row; first < end; first += block_rows * ",
                    source_.depth, ") {\n", text_.declare_packs(needs_, slots),
                    text_.declare_row_packs(slots), "#pragma unroll\nfor (int u = 0; u < ",
                    source_.depth, "; ++u) {\n", position, text_.load_packs(needs_, "[u]"),
                    text_.load_row_packs("[u]"), "}\n", declare_terms(),
                    "#pragma unroll\nfor (int u = 0; u < ", source_.depth, "; ++u) {\n", position);
    if (has_moments()) text += "num_terms = u + 1;\n";
    text += text_.row("[u]", 0) + text_.declare_outputs() +
            each_k(text_.element(needs_, "[u]") + add_up() + text_.put_outputs()) +
            text_.store_outputs() + "}\n" + add_terms() + "}\n";
    for (size_t i = 0; i < code_.reductions.size(); ++i) {
      if (is_moments(code_.reductions[i])) text += each_k(message("sum", i, "[k].count = seen;\n"));
    }
    return text + "}\n";
  }

  // Merges the sums of a block's threads; all threads of a column have the result.
  std::string merge() const {
    const int group = std::min(source_.width, kMergedAtOnce);
    std::string text;
    size_t most_bytes = 0;
    for (size_t i = 0; i < code_.reductions.size(); ++i) {
      const RegionReduction& each = code_.reductions[i];
      const size_t bytes = each.dtype == DType::Float64 || is_integer(each.dtype) ? 8 : 4;
      most_bytes = std::max(most_bytes, bytes * static_cast<size_t>(num_cells(each)));
      text += message("#pragma unroll\nfor (int g = 0; g < ", source_.width, "; g += ", group,
                      ") {\n", sum_type(i), " some[", group, "];\n#pragma unroll\n",
                      "for (int k = 0; k < ", group, "; ++k) some[k] = sum", i, "[g + k];\n",
                      "merge_rows<", source_.threads, ">(some, reinterpret_cast<", sum_type(i),
                      "*>(shared), lanes, ", is_moments(each) ? "Merge()" : "Add()",
                      ");\n#pragma unroll\nfor (int k = 0; k < ", group, "; ++k) sum", i,
                      "[g + k] = some[k];\n}\n");
    }
    const size_t words = most_bytes * static_cast<size_t>(group * source_.threads) / 8;
    return message("__shared__ Wide shared[", words, "];\nconst auto merge = [&]() {\n", text,
                   "};\n");
  }

  // One number of reduction i, where `split` left it.
  std::string cell(size_t i, int number) const {
    return message("static_cast<", region_sum_type(code_.reductions[i].dtype),
                   "*>(static_cast<void*>(cells + ((", number,
                   " * (long long)gridDim.y + split) * columns + column + k)))[0]");
  }

  std::string visit_cells(bool writes) const {
    std::string text;
    int number = 0;
    for (size_t i = 0; i < code_.reductions.size(); ++i) {
      const std::string sum = message("sum", i, "[k]");
      const RegionReduction& each = code_.reductions[i];
      if (is_moments(each)) {
        const char* const parts[] = {"count", "mean", "deviation"};
        std::string read = message("const ", sum_type(i), " part = {");
        for (const char* part : parts) {
          if (writes) text += message(cell(i, number), " = ", sum, ".", part, ";\n");
          read += cell(i, number++) + ", ";
        }
        if (!writes) text += message("{\n", read, "};\n", sum, " = Merge()(", sum, ", part);\n}\n");
      } else if (writes) {
        text += message(cell(i, number++), " = ", sum, ";\n");
      } else {
        text += message(sum, " = Add()(", sum, ", ", cell(i, number++), ");\n");
      }
    }
    return each_k(text);
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
        result =
            value.output == 0 ? result + ".mean" : result + ".deviation / " + result + ".count";
      } else if (each.kind == RegionSum::Mean) {
        result = message("exact::multiply(", result, ", (", type, ")(1.0 / (double)num_rows))");
      }
      const char* const tag = region_tag(each.dtype);
      text += message("static_cast<", tag, "::Bits*>(o", o, ")[column + k] = ", tag, "::bits(",
                      result, ");\n");
    }
    return each_k(text);
  }

  std::string finish() const {
    std::string text = merge() + "merge();\nconst bool is_writer = is_inside && own_row == 0;\n";
    text += "if (gridDim.y > 1) {\nWide* const cells = static_cast<Wide*>(workspace);\n";
    text += "if (is_writer) {\nconst long long split = blockIdx.y;\n" + visit_cells(true) + "}\n";
    text += "if (!is_last_block(tickets + blockIdx.x, gridDim.y)) return;\n";
    for (size_t i = 0; i < code_.reductions.size(); ++i) {
      text += each_k(message("sum", i, "[k] = {};\n"));
    }
    text +=
        "if (is_inside) {\n#pragma unroll 4\n"
        "for (long long split = own_row; split < (long long)gridDim.y; split += block_rows) {\n" +
        visit_cells(false) + "}\n}\nmerge();\n}\n";
    return text + "if (is_writer) {\n" + write_sums() + "}\n}\n";
  }

  const RegionCode& code_;
  RegionText text_;
  ElementNeeds needs_;
  RegionSource source_;
};

}  // namespace

RegionSource columns_source(const RegionCode& code, int max_width) {
  int width = region_width(code, max_width);
  while (code.columns % width != 0) width /= 2;
  return ColumnsText(code, width).write();
}

}  // namespace kerascnn
