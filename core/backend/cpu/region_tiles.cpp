#include "core/backend/cpu/region_tiles.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/backend/cpu/reductions.h"
#include "core/base/error.h"
#include "core/graph/passes/rewriter.h"
#include "core/graph/region_program.h"
#include "core/ops/definitions.h"

namespace kerascnn::cpu {

namespace {

// Elements of a tile. So few that all registers stay in the second-level cache, so many that
// decoding the steps costs little.
constexpr int64_t kTileSize = 2048;
// Columns of a tile, of kind columns.
constexpr int64_t kMostColumns = 512;
constexpr int64_t kColumnTileSize = 4096;

Tiling tiling_of(const Region& region) {
  Tiling tiling{.rows = region.rows, .columns = region.columns, .outer = region.outer};
  const bool sums_columns = region.kind == RegionKind::Columns;
  const bool is_whole = region.kind == RegionKind::Rows && tiling.columns <= kMostWholeRow;
  const int64_t most = sums_columns ? kMostColumns : kTileSize;
  const int64_t size = sums_columns ? kColumnTileSize : kTileSize;
  tiling.tile_columns = tiling.columns;
  if (tiling.columns > most && !is_whole) {
    const int64_t pieces = (tiling.columns + most - 1) / most;
    tiling.tile_columns = align_up((tiling.columns + pieces - 1) / pieces);
  }
  // Pieces of rows are of one row each.
  if (!sums_columns && tiling.tile_columns < tiling.columns) return tiling;
  const int64_t rows = tiling.rows / tiling.outer;
  tiling.tile_rows = std::clamp<int64_t>(size / tiling.tile_columns, 1, rows);
  return tiling;
}

Reduction reduction_of(const OpDef* op) {
  if (op == &op_reduce_max) return Reduction::Max;
  if (op == &op_reduce_min) return Reduction::Min;
  return op == &op_column_moments ? Reduction::Moments : Reduction::Sum;
}

bool is_plain(DType dtype) {
  return dtype == DType::Float32 || dtype == DType::Float64 || dtype == DType::Int64;
}

int64_t register_itemsize(RegisterKind kind) { return kind == RegisterKind::Float ? 4 : 8; }

class TileBuilder {
 public:
  explicit TileBuilder(const Region& region)
      : region_(region), body_(*region.body), graph_(*body_.graph) {
    program_.kind = region.kind;
    program_.tiling = tiling_of(region);
    program_.name = region_name(region);
    for (size_t i = 0; i < body_.inputs.size(); ++i) {
      if (body_.inputs[i] != kNoValue) inputs_[body_.inputs[i]] = static_cast<int>(i);
    }
  }

  TileProgram build() {
    const std::vector<bool> needed = needed_values(graph_, body_.outputs);
    for (const Node& node : graph_.nodes()) {
      const bool is_needed = std::any_of(node.outputs.begin(), node.outputs.end(),
                                         [&](ValueId id) { return needed[id]; });
      if (!is_needed || node.op == &op_broadcast_to || node.op == &op_reshape) continue;
      add_node(node);
    }
    for (size_t k = 0; k < body_.outputs.size(); ++k) add_output(static_cast<int>(k));
    find_integer_stores();
    copy_stored_inputs();
    find_row_operands();
    find_direct_outputs();
    place_registers();
    make_passes();
    return std::move(program_);
  }

 private:
  using Kind = TileStep::Kind;

  const TensorSpec& spec(ValueId id) const { return graph_.value(id).spec; }
  bool is_over_domain(ValueId id) const { return spec(id).shape == region_.domain; }
  TileRegister& at(int number) { return program_.registers[number]; }

  int add_register(DType dtype, bool is_row, int level) {
    program_.registers.push_back(
        {.kind = register_kind(dtype), .is_row = is_row, .level = level, .offset = -1});
    return static_cast<int>(program_.registers.size()) - 1;
  }

  // The value before it was broadcast.
  ValueId source_of(ValueId id) const {
    while (const Node* node = producer(graph_, id, op_broadcast_to)) id = node->inputs[0];
    return id;
  }

  int read_over_domain(ValueId id) {
    const ValueId source = source_of(id);
    if (const auto found = tiles_.find(source); found != tiles_.end()) return found->second;
    int result = -1;
    if (inputs_.contains(source) && !is_of_rows(spec(source).shape)) {
      result = load(source, region_.domain, false, spec(source).dtype);
    } else if (graph_.value(source).kind == ValueKind::Constant) {
      result = fill(source);
    } else {
      const int row = read_row(source, spec(source).shape);
      result = add_register(spec(source).dtype, false, at(row).level);
      TileStep step{.kind = Kind::Spread, .to = result};
      step.from[0] = row;
      steps_.push_back(std::move(step));
    }
    return tiles_[source] = result;
  }

  // As a value of this shape, which has one element for each row.
  int read_row(ValueId id, Shape shape) {
    id = source_of(id);
    while (const Node* node = producer(graph_, id, op_reshape)) {
      shape = spec(node->inputs[0]).shape;
      id = source_of(node->inputs[0]);
    }
    if (graph_.value(id).kind == ValueKind::Constant) return fill(id);
    if (!inputs_.contains(id)) {
      if (const auto found = rows_.find({id, {}}); found != rows_.end()) return found->second;
      return tiles_.at(id);  // rows of one element
    }
    const auto found = rows_.find({id, shape});
    if (found != rows_.end()) return found->second;
    return rows_[{id, shape}] = load(id, shape, true, spec(id).dtype);
  }

  int fill(ValueId id) {
    if (const auto found = filled_.find(id); found != filled_.end()) return found->second;
    TileStep step{.kind = Kind::Fill, .to = add_register(spec(id).dtype, false, 0)};
    step.dtype = spec(id).dtype;
    step.number = uniform_constant(graph_, id).value();
    program_.fixed.push_back(step);
    return filled_[id] = step.to;
  }

  // Is an input of this shape the same for all rows of the domain?
  bool is_of_columns(const Shape& shape) const {
    int64_t columns = 1;
    size_t axes = 0;  // the last ones, which make a row
    while (axes < region_.domain.size() && columns < region_.columns) {
      columns *= region_.domain[region_.domain.size() - ++axes];
    }
    return columns == region_.columns &&
           num_elements(shape) ==
               num_elements(Shape(shape.end() - static_cast<int64_t>(std::min(axes, shape.size())),
                                  shape.end()));
  }

  // Does an input of this shape have one element for each row of the domain?
  bool is_of_rows(const Shape& shape) const {
    if (region_.columns < kShortRow || shape.size() != region_.domain.size()) return false;
    int64_t columns = 1;
    size_t axis = shape.size();
    while (axis > 0 && columns < region_.columns) columns *= region_.domain[--axis];
    return columns == region_.columns && num_elements(shape) == region_.rows &&
           std::equal(shape.begin(), shape.begin() + static_cast<int64_t>(axis),
                      region_.domain.begin());
  }

  // `as` is the tensor's dtype, or float32 for a tensor of integers.
  int load(ValueId id, const Shape& shape, bool is_row, DType as) {
    TileStep step{.kind = Kind::Load, .to = add_register(as, is_row, 0)};
    step.dtype = spec(id).dtype;
    step.tensor = inputs_.at(id);
    step.geometry = broadcast_geometry(shape, {&spec(id), 1});
    step.is_direct = is_plain(step.dtype) && as == step.dtype && step.geometry.is_contiguous(0) &&
                     (is_row || program_.tiling.is_contiguous());
    // Tiles that are pieces of rows are of other columns each; those of sums have theirs.
    const bool has_pieces = program_.kind != RegionKind::Columns &&
                            program_.tiling.tile_columns < program_.tiling.columns;
    const bool is_fixed =
        !step.is_direct && !is_row &&
        (num_elements(spec(id).shape) == 1 || (is_of_columns(spec(id).shape) && !has_pieces));
    const int result = step.to;
    (is_fixed ? program_.fixed : steps_).push_back(std::move(step));
    return result;
  }

  void add_node(const Node& node) {
    const bool is_element = node.op->is_elementwise;
    if (is_element) {
      add_element_op(node);
    } else if (region_.kind == RegionKind::Rows) {
      TileStep step = reduction_step(node, Kind::Reduce);
      step.to = add_register(step.dtype, true, at(step.from[0]).level + 1);
      rows_[{node.outputs[0], {}}] = step.to;
      steps_.push_back(std::move(step));
    } else {
      TileStep step = reduction_step(node, Kind::Sum);
      if (step.reduction == Reduction::Moments) ++program_.num_accumulators;
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        results_[node.outputs[i]] = {.dtype = spec(node.outputs[i]).dtype,
                                     .reduction = step.reduction,
                                     .accumulator = step.accumulator,
                                     .is_variance = i == 1,
                                     .divisor = step.number};
      }
      steps_.push_back(std::move(step));
    }
  }

  TileStep reduction_step(const Node& node, Kind kind) {
    TileStep step{.kind = kind};
    step.from[0] = read_over_domain(node.inputs[0]);
    step.dtype = spec(node.outputs[0]).dtype;
    step.reduction = reduction_of(node.op);
    const bool is_mean = node.op == &op_reduce_mean || step.reduction == Reduction::Moments;
    const int64_t count = kind == Kind::Reduce ? region_.columns : region_.rows / region_.outer;
    step.number = is_mean ? static_cast<double>(count) : 1;
    step.accumulator = program_.num_accumulators++;
    return step;
  }

  void add_element_op(const Node& node) {
    const ValueId result = node.outputs[0];
    const bool is_row = !is_over_domain(result);
    const ValueId source = source_of(node.inputs[0]);
    if (node.op == &op_cast && !is_row && inputs_.contains(source) &&
        !is_floating(spec(source).dtype) && spec(result).dtype == DType::Float32) {
      tiles_[result] = load(source, region_.domain, false, DType::Float32);
      return;
    }
    TileStep step{.kind = Kind::Compute};
    int level = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      step.from[i] =
          is_row ? read_row(node.inputs[i], spec(result).shape) : read_over_domain(node.inputs[i]);
      level = std::max(level, at(step.from[i]).level);
    }
    step.instruction = element_instruction(graph_, node);
    const DType from = step.instruction.operand_dtype;
    // Registers of 16-bit numbers are as wide as those of float32.
    const bool is_copy = step.instruction.op == ElementOp::cast &&
                         register_kind(from) == RegisterKind::Float &&
                         spec(result).dtype == DType::Float32;
    step.to = is_copy ? step.from[0] : add_register(spec(result).dtype, is_row, level);
    if (is_row) {
      rows_[{result, {}}] = step.to;
    } else {
      tiles_[result] = step.to;
    }
    if (!is_copy) steps_.push_back(std::move(step));
  }

  void add_output(int k) {
    const ValueId id = body_.outputs[k];
    if (const auto found = results_.find(id); found != results_.end()) {
      program_.results.push_back(found->second);
      program_.results.back().output = k;
      return;
    }
    TileStep step{.kind = Kind::Store};
    const bool is_row = !is_over_domain(id);
    if (is_row &&
        (region_.kind != RegionKind::Rows || num_elements(spec(id).shape) != region_.rows)) {
      throw ValueError(message("region: output ", k, " of shape ", shape_string(spec(id).shape),
                               " is not of the domain ", shape_string(region_.domain),
                               " nor has it one element for each of its rows"));
    }
    // Of one element to a row, a reduction's result may have the domain's shape too.
    step.from[0] = is_row ? read_row(id, spec(id).shape) : read_over_domain(id);
    step.dtype = spec(id).dtype;
    step.tensor = k;
    step.is_row = is_row;
    // As soon as it is there, but not over what is yet to be read: of maps, an output may have an
    // input's memory.
    auto place = steps_.end();
    if (region_.kind != RegionKind::Map) {
      while (place != steps_.begin() && std::prev(place)->to != step.from[0]) --place;
      if (place == steps_.begin()) place = steps_.end();  // it is one of the fixed ones
    }
    steps_.insert(place, std::move(step));
  }

  bool is_cast_to_integers(const TileStep& step) {
    return step.kind == Kind::Compute && step.instruction.op == ElementOp::cast &&
           at(step.from[0]).kind == RegisterKind::Float &&
           is_integer(step.instruction.result_dtype) &&
           step.instruction.result_dtype != DType::Int64;
  }

  // Casts from floats to fewer than 64 bits are left to the storing where nothing else reads their
  // results.
  void find_integer_stores() {
    for (size_t i = 0; i < steps_.size();) {
      const int made = steps_[i].to, from = steps_[i].from[0];
      const auto reads = [&](const TileStep& step) {
        return std::find(step.from, step.from + 3, made) != step.from + 3;
      };
      const bool is_left = is_cast_to_integers(steps_[i]) &&
                           std::all_of(steps_.begin(), steps_.end(), [&](const TileStep& step) {
                             return step.kind == Kind::Store || !reads(step);
                           });
      if (!is_left) {
        ++i;
        continue;
      }
      for (TileStep& step : steps_) {
        if (reads(step)) step.from[0] = from;
      }
      steps_.erase(steps_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  // Of maps, an output may have an input's memory. With several outputs an input that is stored as
  // it is, or as integers, is copied before: the output stored before it may be there.
  void copy_stored_inputs() {
    const auto is_store = [](const TileStep& step) { return step.kind == Kind::Store; };
    if (region_.kind != RegionKind::Map ||
        std::count_if(steps_.begin(), steps_.end(), is_store) < 2) {
      return;
    }
    for (TileStep& load : steps_) {
      if (load.kind != Kind::Load) continue;
      for (const TileStep& store : steps_) {
        if (is_store(store) && store.from[0] == load.to) load.is_direct = false;
      }
    }
  }

  // Some ops take a number for each row as it is. What only they read is not spread over tiles.
  void find_row_operands() {
    if (region_.columns < kShortRow) return;
    std::map<int, int> rows_of;  // what registers of tiles are spread from
    for (TileStep& step : steps_) {
      if (step.kind == Kind::Spread) rows_of[step.to] = step.from[0];
      if (step.kind != Kind::Compute || at(step.to).is_row || step.from[1] < 0 ||
          step.from[2] >= 0 || step.instruction.operand_dtype != DType::Float32 ||
          step.instruction.result_dtype != DType::Float32) {
        continue;
      }
      const auto op = static_cast<int>(step.instruction.op);
      for (int k : {1, 0}) {
        const auto found = rows_of.find(step.from[k]);
        const RowLoop loop =
            k == 1 ? element_loops().with_rows[op] : element_loops().with_rows_first[op];
        if (found == rows_of.end() || rows_of.contains(step.from[1 - k]) || loop == nullptr)
          continue;
        step.from[k] = found->second;
        step.row_loop = loop;
        step.matrix = 1 - k;
        break;
      }
    }
    std::erase_if(steps_, [&](const TileStep& spread) {
      return spread.kind == Kind::Spread &&
             std::none_of(steps_.begin(), steps_.end(), [&](const TileStep& step) {
               return std::find(step.from, step.from + 3, spread.to) != step.from + 3;
             });
    });
  }

  // Of maps, an output may have the memory of an input that is still to be read: only what is
  // computed last of all is computed there, and nothing where an output is an input.
  size_t first_direct_step() {
    if (region_.kind != RegionKind::Map) return 0;
    size_t first = steps_.size();
    for (size_t i = 0; i < steps_.size(); ++i) {
      const TileStep& step = steps_[i];
      if (step.kind == Kind::Compute) first = i;
      const bool stores_input =
          step.kind == Kind::Store &&
          std::any_of(steps_.begin(), steps_.end(), [&](const TileStep& each) {
            return each.kind == Kind::Load && each.to == step.from[0];
          });
      if (stores_input) return steps_.size();
    }
    return first;
  }

  // What is computed last for an output can be computed in its memory.
  void find_direct_outputs() {
    if (!program_.tiling.is_contiguous()) return;
    for (size_t i = first_direct_step(); i < steps_.size(); ++i) {
      TileStep& step = steps_[i];
      if (step.kind != Kind::Compute || at(step.to).is_row) continue;
      const auto store = std::find_if(steps_.begin(), steps_.end(), [&](const TileStep& each) {
        return each.kind == Kind::Store && each.from[0] == step.to && is_plain(each.dtype);
      });
      if (store == steps_.end()) continue;
      step.tensor = store->tensor;
      step.dtype = store->dtype;
      steps_.erase(store);
    }
  }

  // Registers of tiles share memory where one ends before the other begins.
  void place_registers() {
    std::vector<size_t> last_use(program_.registers.size(), 0);
    for (size_t i = 0; i < steps_.size(); ++i) {
      for (int from : steps_[i].from) {
        if (from >= 0) last_use[from] = i;
      }
    }
    int64_t bytes = 0;
    const auto place = [&](int64_t elements, RegisterKind kind) {
      const int64_t offset = bytes;
      bytes += align_up(elements * register_itemsize(kind));
      return offset;
    };
    const int64_t tile_size = program_.tiling.tile_size();
    for (const TileStep& step : program_.fixed) {
      at(step.to).offset = place(tile_size, at(step.to).kind);
    }
    std::map<RegisterKind, std::vector<int64_t>> free;
    for (size_t i = 0; i < steps_.size(); ++i) {
      const TileStep& step = steps_[i];
      // What ends here first: a result of the same kind may take its place, element by element.
      for (int k = 0; k < 3; ++k) {
        const int from = step.from[k];
        const bool is_first = std::find(step.from, step.from + k, from) == step.from + k;
        if (from < 0 || !is_first || last_use[from] != i || at(from).is_row) continue;
        if (at(from).offset < 0 || is_fixed(from)) continue;
        free[at(from).kind].push_back(at(from).offset);
      }
      if (step.to < 0 || step.is_direct || (step.kind == Kind::Compute && step.tensor >= 0)) {
        continue;
      }
      TileRegister& made = at(step.to);
      std::vector<int64_t>& places = free[made.kind];
      if (made.is_row) {
        made.offset = place(program_.tiling.tile_rows, made.kind);
      } else if (!places.empty()) {
        made.offset = places.back();
        places.pop_back();
      } else {
        made.offset = place(tile_size, made.kind);
      }
    }
    program_.register_bytes = bytes;
  }

  bool is_fixed(int number) const {
    return std::any_of(program_.fixed.begin(), program_.fixed.end(),
                       [&](const TileStep& step) { return step.to == number; });
  }

  bool is_step_of_rows(const TileStep& step) {
    if (step.kind == Kind::Store) return step.is_row;
    return step.kind != Kind::Reduce && step.to >= 0 && at(step.to).is_row;
  }

  void make_passes() {
    const bool has_pieces =
        program_.kind == RegionKind::Rows && program_.tiling.tile_columns < program_.tiling.columns;
    if (!has_pieces) {
      program_.passes.resize(1);
      program_.passes[0].of_tiles = std::move(steps_);
      return;
    }
    int last = 0;
    for (const TileRegister& each : program_.registers) last = std::max(last, each.level);
    program_.passes.resize(static_cast<size_t>(last) + 1);
    for (int level = 0; level <= last; ++level) fill_pass(level, level == last);
  }

  // Of a level are the reductions of what it is the first one to know, of the last one all outputs.
  void fill_pass(int level, bool is_last) {
    std::vector<bool> needed(program_.registers.size(), false);
    std::vector<TileStep>& tiles = program_.passes[level].of_tiles;
    for (size_t i = steps_.size(); i-- > 0;) {
      const TileStep& step = steps_[i];
      if (is_step_of_rows(step)) {
        const int of = step.to >= 0 ? step.to : step.from[0];
        if (at(of).level == level) program_.passes[level].of_rows.push_back(step);
        continue;
      }
      bool is_needed = false;
      if (step.kind == Kind::Reduce) {
        is_needed = at(step.from[0]).level == level;
      } else {
        const bool stores =
            step.kind == Kind::Store || (step.kind == Kind::Compute && step.tensor >= 0);
        is_needed = (stores && is_last) || (step.to >= 0 && needed[step.to]);
      }
      if (!is_needed) continue;
      tiles.push_back(step);
      for (int from : step.from) {
        if (from >= 0) needed[from] = true;
      }
    }
    std::reverse(tiles.begin(), tiles.end());
    std::reverse(program_.passes[level].of_rows.begin(), program_.passes[level].of_rows.end());
  }

  const Region& region_;
  const Body& body_;
  const Graph& graph_;
  TileProgram program_;
  std::vector<TileStep> steps_;
  std::map<ValueId, int> inputs_;                  // their numbers
  std::map<ValueId, int> tiles_;                   // registers of values as elements of the domain
  std::map<std::pair<ValueId, Shape>, int> rows_;  // as elements of rows; inputs by the shape read
  std::map<ValueId, int> filled_;
  std::map<ValueId, ColumnResult> results_;
};

}  // namespace

TileProgram make_tile_program(const Region& region) { return TileBuilder(region).build(); }

}  // namespace kerascnn::cpu
