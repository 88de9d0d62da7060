// Kernels of regions of kind columns. Each thread keeps to a few columns, goes down the rows of a
// split and adds up. A block adds up what its threads have, and the last block of some columns to
// finish adds up what the splits left in the workspace. The order is always the same.
#include <algorithm>

#include "core/backend/regions/region_source.h"
#include "core/backend/regions/region_text.h"
#include "core/base/error.h"

namespace kerascnn {
namespace {

// What several splits left is loaded at once, as far as it takes no more 32-bit words.
constexpr int kMostSplitsAtOnce = 2;
constexpr int kMostCellWords = 16;
// Of shared memory, for what warps exchange. 48 KB need no permission; a few bytes are the
// ticket's.
constexpr int kMostSharedBytes = 46 << 10;
constexpr int kWarpLanes = 32;

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
  // The arrays of a thread with a number for each of its columns, to be added up over all threads:
  // sum<i>, and square<i> of moments.
  std::vector<std::string> sums_of(size_t i) const {
    std::vector<std::string> names = {message("sum", i)};
    if (is_moments(code_.reductions[i])) names.push_back(message("square", i));
    return names;
  }
  const char* type_of(size_t i) const { return region_sum_type(code_.reductions[i].dtype); }
  // `text` for each reduction that takes moments.
  template <typename Text>
  std::string each_moments(const Text& text) const {
    std::string all;
    for (size_t i = 0; i < code_.reductions.size(); ++i) {
      if (is_moments(code_.reductions[i])) all += text(i, type_of(i));
    }
    return all;
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
      for (const std::string& name : sums_of(i)) {
        text += message(type_of(i), " ", name, "[", source_.width, "] = {};\n");
      }
    }
    return text + each_moments([&](size_t i, const char* type) {
             return message("Moments<", type, "> moments", i, "[", source_.width, "] = {};\n");
           });
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
    return each_moments([&](size_t i, const char* type) {
      return message("Differences<", type, "> differences", i, "[", source_.width, "] = {};\n");
    });
  }

  std::string take_moments() const {
    return each_moments([&](size_t i, const char*) {
      return message("if (seen > 0) to_moments(differences", i, ", seen, moments", i, ");\n");
    });
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

  // The mean of the first threads is what the moments of all threads of the block are merged
  // around; origin<i> has it.
  std::string exchange_origins() const {
    if (!has_moments()) return "";
    const std::string puts = each_moments([&](size_t i, const char* type) {
      return message(type, " means", i, "[", source_.width, "];\n",
                     each_k(message("means", i, "[k] = moments", i, "[k].mean;\n")),
                     "put_columns(means", i, ", origins", i, " + lane * ", source_.width, ");\n");
    });
    const std::string takes = each_moments([&](size_t i, const char* type) {
      return message(type, " origin", i, "[", source_.width, "];\ntake_columns(origin", i,
                     ", origins", i, " + lane * ", source_.width, ");\nto_sums(moments", i,
                     ", origin", i, ", (", type, ")seen, sum", i, ", square", i, ");\n");
    });
    return "if (own_row == 0) {\n" + puts + "}\n__syncthreads();\n" + takes;
  }

  int origin_bytes() const {
    size_t bytes = 0;
    for (const RegionReduction& each : code_.reductions) {
      if (is_moments(each)) bytes += itemsize(sum_dtype(each)) * source_.width * kWarpLanes;
    }
    return static_cast<int>(bytes);
  }

  // share() gives the writers, each of which has a column, total_<name> of all sums: of as many
  // between two barriers as there is memory for.
  std::string declare_share() const {
    std::string declared, turns, puts, totals;
    int bytes = 0, most_bytes = 0;
    const auto end_turn = [&] {
      turns += message(turns.empty() ? "" : "__syncthreads();\n", puts,
                       "__syncthreads();\nif (is_writer) {\n", totals, "}\n");
      most_bytes = std::max(most_bytes, bytes);
      bytes = 0;
      puts.clear();
      totals.clear();
    };
    for (size_t i = 0; i < code_.reductions.size(); ++i) {
      const int own_bytes = static_cast<int>(itemsize(sum_dtype(code_.reductions[i]))) *
                            source_.width * source_.threads;
      for (const std::string& name : sums_of(i)) {
        if (bytes > 0 && bytes + own_bytes > kMostSharedBytes - origin_bytes()) end_turn();
        const std::string place = message("reinterpret_cast<", type_of(i), "*>(shared + ",
                                          bytes / static_cast<int>(sizeof(double)), ")");
        puts += message("put_sums(", name, ", ", place, ", lane_bits);\n");
        totals += message("total_", name, " = sum_of_warps<", source_.threads, ", ", source_.width,
                          ">(", place, ", lane_bits);\n");
        declared += message(type_of(i), " total_", name, " = 0;\n");
        bytes += own_bytes;
      }
    }
    end_turn();
    return message("alignas(16) __shared__ Wide shared[",
                   most_bytes / static_cast<int>(sizeof(double)), "];\n", declared,
                   "const auto share = [&] {\n", turns, "};\n");
  }

  std::string pack_of(const Cell& cell) const {
    return message(region_tag(sum_dtype(code_.reductions[cell.reduction])), ", ", source_.width);
  }

  // result<i>: the moments of a writer's column, of `rows`.
  std::string take_results(const std::string& rows) const {
    return each_moments([&](size_t i, const char* type) {
      return message("const auto result", i, " = from_sums(base", i, ", total_sum", i,
                     ", total_square", i, ", (", type, ")(", rows, "));\n");
    });
  }

  std::string store_cells() const {
    std::string text = take_results("end - begin");
    for (size_t n = 0; n < cells_.size(); ++n) {
      const size_t i = cells_[n].reduction;
      const std::string value = is_moments(code_.reductions[i])
                                    ? message("result", i, cells_[n].part)
                                    : message("total_sum", i);
      text +=
          message("cells", n, "[(long long)blockIdx.y * columns + own_column] = ", value, ";\n");
    }
    return text;
  }

  // Adds what some splits left to what the thread has of those before; their loads are under way
  // at once. Moments are merged around those of the first split.
  std::string add_cells() const {
    const std::string each_split =
        message("#pragma unroll\nfor (int u = 0; u < ", splits_at_once_,
                "; ++u) {\nconst long long split = first + u * block_rows;\n"
                "if (split >= (long long)gridDim.y) continue;\n");
    std::string declared, loads, additions;
    for (size_t n = 0; n < cells_.size(); ++n) {
      const size_t i = cells_[n].reduction;
      declared += message("Pack<", pack_of(cells_[n]), "> a", n, "[", splits_at_once_, "];\n");
      loads += message("a", n, "[u] = load<", pack_of(cells_[n]), ">(cells", n,
                       ", split * columns + column, ", source_.width, ", true);\n");
      if (!is_moments(code_.reductions[i])) {
        additions +=
            each_k(message("sum", i, "[k] = exact::add(sum", i, "[k], a", n, "[u].get(k));\n"));
      } else if (n > 0 && cells_[n - 1].reduction == i) {
        additions +=
            each_k(message("add_moments(a", n - 1, "[u].get(k), a", n, "[u].get(k), (", type_of(i),
                           ")split_size, from", i, ".get(k), sum", i, "[k], square", i, "[k]);\n"));
      }
    }
    if (has_moments()) {
      additions =
          "const Index before = (Index)split * (Index)split_rows;\n"
          "const Index split_size = rows - before < (Index)split_rows ? rows - before : "
          "(Index)split_rows;\n" +
          additions;
    }
    return declared + each_split + loads + "}\n" + each_split + additions + "}\n";
  }

  std::string write_sums() const {
    std::string text = take_results("num_rows");
    for (size_t o = 0; o < code_.outputs.size(); ++o) {
      if (code_.output_levels[o] == Level::Element) continue;
      const RegionValue& value = code_.outputs[o];
      const RegionReduction& each = code_.reductions[value.index];
      const char* const type = type_of(value.index);
      std::string result = message("total_sum", value.index);
      if (is_moments(each)) {
        result =
            message("result", value.index,
                    value.output == 0 ? ".mean" : message(".deviation / (", type, ")num_rows"));
      } else if (each.kind == RegionSum::Mean) {
        result = message("exact::multiply(", result, ", (", type, ")(1.0 / (double)num_rows))");
      }
      const char* const tag = region_tag(each.dtype);
      text += message("static_cast<", tag, "::Bits*>(o", o,
                      ")[part * columns + own_column] = ", tag, "::bits(", result, ");\n");
    }
    return text;
  }

  // What the splits left, from the first one's cell on: cells<n>.
  std::string declare_cells() const {
    std::string text = message(
        "const long long num_parts = ", code_.parts == 1 ? "1" : "gridDim.x / tiles", ";\n");
    for (size_t n = 0; n < cells_.size(); ++n) {
      const size_t i = cells_[n].reduction;
      text += message(type_of(i), "* const cells", n, " = reinterpret_cast<", type_of(i),
                      "*>(static_cast<char*>(workspace) + (", cells_[n].offset, "ll * num_parts + ",
                      itemsize(sum_dtype(code_.reductions[i])),
                      "ll * part) * (long long)gridDim.y * columns);\n");
    }
    return text;
  }

  // The cell of reduction i that has its means, or its sums.
  size_t first_cell(size_t i) const {
    const auto found = std::find_if(cells_.begin(), cells_.end(),
                                    [&](const Cell& cell) { return cell.reduction == i; });
    return static_cast<size_t>(found - cells_.begin());
  }

  std::string finish() const {
    std::string text = message("const Index own_column = column - lane * ", source_.width,
                               " + (Index)threadIdx.x;\nconst bool is_writer = (int)threadIdx.x < ",
                               source_.width, " << lane_bits && own_column < columns;\n");
    text += each_moments([&](size_t i, const char* type) {
      return message(
          "alignas(16) __shared__ Wide origins_of", i, "[",
          itemsize(sum_dtype(code_.reductions[i])) * source_.width * kWarpLanes / sizeof(double),
          "];\n", type, "* const origins", i, " = reinterpret_cast<", type, "*>(origins_of", i,
          ");\n");
    });
    text += exchange_origins() + declare_share() + "share();\n";
    text += each_moments([&](size_t i, const char* type) {
      return message(type, " base", i, " = is_writer ? origins", i, "[threadIdx.x] : 0;\n");
    });
    text += "if (gridDim.y > 1) {\n" + declare_cells() + "if (is_writer) {\n" + store_cells() +
            "}\nif (!is_last_block(tickets + blockIdx.x, gridDim.y)) return;\n";
    for (size_t i = 0; i < code_.reductions.size(); ++i) {
      for (const std::string& name : sums_of(i)) text += each_k(name + "[k] = 0;\n");
    }
    text += "if (is_inside) {\n";
    text += each_moments([&](size_t i, const char*) {
      const size_t n = first_cell(i);
      return message("const auto from", i, " = load<", pack_of(cells_[n]), ">(cells", n,
                     ", column, ", source_.width, ", true);\n");
    });
    text += message(
                "for (long long first = own_row; first < (long long)gridDim.y; "
                "first += block_rows * ",
                splits_at_once_, ") {\n") +
            add_cells() + "}\n}\nshare();\n";
    text += each_moments([&](size_t i, const char*) {
      return message("if (is_writer) base", i, " = cells", first_cell(i), "[own_column];\n");
    });
    return text + "}\nif (is_writer) {\n" + write_sums() + "}\n}\n";
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
