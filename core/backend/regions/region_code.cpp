#include "core/backend/regions/region_code.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "core/base/error.h"
#include "core/ops/definitions.h"
#include "core/ops/geometry.h"
#include "core/ops/philox.h"

namespace kerascnn {
namespace {

constexpr int kFewestPartInputs = 2;
constexpr int64_t kNarrowest = 2;  // columns must be a multiple of it for threads to keep to them

Level join(Level a, Level b) {
  if (a == Level::Once || a == b) return b;
  if (b == Level::Once) return a;
  return Level::Element;
}

// Ops whose results may be a product that an addition takes in, and that may begin with such an
// addition. Left out are ops that only choose, and those of which the text rounds each step by
// itself.
bool may_contract(ElementOp op) {
  switch (op) {
    case ElementOp::add:
    case ElementOp::subtract:
    case ElementOp::multiply:
    case ElementOp::square:
    case ElementOp::divide:
    case ElementOp::reciprocal:
    case ElementOp::sqrt:
    case ElementOp::rsqrt:
    case ElementOp::maximum:
    case ElementOp::minimum:
    case ElementOp::where:
    case ElementOp::negative:
    case ElementOp::absolute:
    case ElementOp::sign:
    case ElementOp::floor:
    case ElementOp::ceil:
    case ElementOp::round:
    case ElementOp::clip:
    case ElementOp::cast:
    case ElementOp::relu:
    case ElementOp::relu_grad:
    case ElementOp::clipped_relu:
    case ElementOp::clipped_relu_grad:
      return false;
    default:
      return !element_result_is_bool(op);
  }
}

class Lowering {
 public:
  Lowering(const Region& region, Specs inputs)
      : region_(region), graph_(*region.body->graph), specs_(inputs) {
    code_.kind = region.kind;
    code_.rows = region.rows;
    code_.columns = region.columns;
    for (const TensorSpec& input : inputs) code_.inputs.push_back(input.dtype);
    const std::vector<ValueId>& ids = region.body->inputs;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] != kNoValue) input_of_[ids[i]] = i;
    }
    code_.parts = region.kind == RegionKind::Map ? parts_of_map() : region.outer;
    code_.by_column =
        region.kind == RegionKind::Columns || code_.parts > 1 ||
        (region.kind == RegionKind::Map && region.columns % kNarrowest == 0 && has_column_input());
  }

  RegionCode lower() {
    const std::vector<bool> needed = needed_values(graph_, region_.body->outputs);
    for (const Node& node : graph_.nodes()) {
      if (std::any_of(node.outputs.begin(), node.outputs.end(),
                      [&](ValueId id) { return needed[id]; })) {
        lower_node(node);
      }
    }
    for (const ValueId id : region_.body->outputs) {
      code_.outputs.push_back(value_of(id, 0));
      // A result of rows that is broadcast to the domain has its elements. One of columns, which is
      // only known after the last row, can have the domain's shape where that has a single row.
      const bool is_of_rows = region_.kind == RegionKind::Rows;
      const bool is_element = shape(id) == region_.domain && (is_of_rows || !is_reduced(id));
      const Level narrow = is_of_rows ? Level::Row : Level::Column;
      code_.output_levels.push_back(is_element ? Level::Element : narrow);
    }
    mark_seals();
    return std::move(code_);
  }

 private:
  const Shape& shape(ValueId id) const { return graph_.value(id).spec.shape; }

  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw ValueError(message("region ", region_name(region_), ": ", parts...));
  }

  bool has_column_input() const {
    for (const TensorSpec& spec : specs_) {
      if (num_elements(spec.shape) == region_.columns && !spec.shape.empty() &&
          spec.shape.back() == region_.columns && region_.rows > 1) {
        return true;
      }
    }
    return false;
  }

  // In how many parts of the rows inputs of a map have a value for each column. A single such input
  // costs less to read again for each element than threads lose that keep to columns.
  int64_t parts_of_map() const {
    if (region_.columns % kNarrowest != 0) return 1;
    std::map<int64_t, int> inputs;  // by the number of parts
    for (const TensorSpec& spec : specs_) {
      if (!broadcasts_to(spec.shape, region_.domain)) continue;  // it is transposed
      const BroadcastGeometry g = broadcast_geometry(region_.domain, {&spec, 1});
      if (g.extents.size() != 3 || !is_of_parts(g, g.extents[0])) continue;
      if (!is_worth_parts(g.extents[0], g.extents[1], region_.columns)) continue;
      if (++inputs[g.extents[0]] == kFewestPartInputs) return g.extents[0];
    }
    return 1;
  }

  bool is_of_parts(const BroadcastGeometry& g, int64_t parts) const {
    return parts > 1 && g.extents == Shape{parts, region_.rows / parts, region_.columns} &&
           g.strides[0] == Shape{region_.columns, 0, 1};
  }

  bool is_reduced(ValueId id) const {
    const auto found = values_.find(id);
    return found != values_.end() && found->second.source == RegionValue::Source::Reduction;
  }

  // How many axes a value of this shape lacks: the reduced ones, for a row value that does not keep
  // them.
  size_t left_out(const Shape& result) const {
    const bool is_short = region_.kind == RegionKind::Rows &&
                          result.size() < region_.domain.size() &&
                          region_.is_row_shape(result, false);
    return is_short ? region_.domain.size() - result.size() : 0;
  }

  // For an input, `left_out` counts the axes behind its own.
  RegionValue value_of(ValueId id, size_t left_out) {
    if (const auto found = values_.find(id); found != values_.end()) return found->second;
    if (const auto found = input_of_.find(id); found != input_of_.end()) {
      return load(found->second, left_out);
    }
    const Value& value = graph_.value(id);
    if (value.kind != ValueKind::Constant || graph_.constants()[value.source].size() != 1) {
      fail("value %", id, " is no input, and no constant of one element");
    }
    const Tensor& tensor = graph_.constants()[value.source];
    return values_[id] = constant(tensor.data(), tensor.dtype());
  }

  RegionValue constant(const void* data, DType dtype) {
    uint64_t bits = 0;
    std::memcpy(&bits, data, itemsize(dtype));
    code_.constants.push_back(bits);
    code_.constant_dtypes.push_back(dtype);
    return {RegionValue::Source::Constant, code_.constants.size() - 1, 0, dtype, Level::Once};
  }
  RegionValue integer(int64_t value) { return constant(&value, DType::Int64); }
  // In what numbers of the dtype are computed in.
  RegionValue number(double value, DType dtype) {
    if (dtype == DType::Float64) return constant(&value, dtype);
    const auto narrow = static_cast<float>(value);
    return constant(&narrow, DType::Float32);
  }

  RegionValue load(size_t input, size_t left_out) {
    const auto [found, is_new] = load_of_.try_emplace({input, left_out}, code_.loads.size());
    if (is_new) code_.loads.push_back(make_load(input, left_out));
    const RegionLoad& load = code_.loads[found->second];
    return {RegionValue::Source::Load, found->second, 0, load.dtype, load.level};
  }

  RegionLoad make_load(size_t input, size_t left_out) const {
    RegionLoad load;
    load.input = input;
    load.dtype = specs_[input].dtype;
    Shape from = specs_[input].shape;
    from.resize(from.size() + left_out, 1);
    const TensorSpec spec{load.dtype, from};
    const BroadcastGeometry g = broadcast_geometry(region_.domain, {&spec, 1});
    const bool has_rows = region_.kind == RegionKind::Rows || code_.by_column;
    const Shape matrix = {region_.rows, region_.columns};
    const auto is_matrix = [&](int64_t row_stride, int64_t column_stride) {
      return g.extents == matrix && g.strides[0] == Shape{row_stride, column_stride};
    };
    if (g.is_scalar(0)) {
      load.reading = RegionReading::Scalar;
      load.level = Level::Once;
    } else if (g.is_contiguous(0)) {
      load.reading = RegionReading::InOrder;
    } else if (is_matrix(0, 1) && (code_.by_column || region_.kind == RegionKind::Rows)) {
      load.reading = RegionReading::PerColumn;
      load.level = code_.by_column ? Level::Column : Level::Element;
    } else if (is_of_parts(g, code_.parts)) {
      load.reading = RegionReading::PerColumnOfPart;
      load.level = Level::Column;
    } else if (is_matrix(1, 0) && has_rows) {
      load.reading = RegionReading::PerRow;
      load.level = Level::Row;
    } else {
      load.reading = RegionReading::Strided;
      load.extents = g.extents;
      load.strides = g.strides[0];
      // The value is the same along a row, which is whole in the last of the merged axes.
      if (has_rows && g.strides[0].back() == 0 && g.extents.back() % region_.columns == 0) {
        load.level = Level::Row;
      }
    }
    return load;
  }

  void lower_node(const Node& node) {
    const ValueId result = node.outputs[0];
    if (node.op == &op_broadcast_to) {
      values_[result] = value_of(node.inputs[0], left_out(shape(result)));
    } else if (node.op == &op_transpose) {
      lower_transpose(node);
    } else if (node.op == &op_reshape) {
      values_[result] = value_of(node.inputs[0], left_out(shape(node.inputs[0])));
    } else if (node.op == &op_dropout) {
      lower_dropout(node);
    } else if (const auto op = find_element_op(*node.op)) {
      lower_element_op(node, *op);
    } else {
      lower_reduction(node);
    }
  }

  void lower_transpose(const Node& node) {
    const StridedGeometry g =
        transpose_geometry(shape(node.inputs[0]), node.attributes.get_ints("permutation"));
    RegionLoad load;
    load.input = input_of_.at(node.inputs[0]);
    load.dtype = specs_[load.input].dtype;
    load.reading = RegionReading::Strided;
    load.extents = g.extents;
    load.strides = g.strides;
    code_.loads.push_back(load);
    values_[node.outputs[0]] = {RegionValue::Source::Load, code_.loads.size() - 1, 0, load.dtype,
                                load.level};
  }

  void lower_element_op(const Node& node, ElementOp op) {
    std::vector<RegionValue> operands;
    for (const ValueId id : node.inputs) {
      operands.push_back(value_of(id, left_out(shape(node.outputs[0]))));
    }
    values_[node.outputs[0]] = state(op, operands, graph_.value(node.outputs[0]).spec.dtype,
                                     element_parameters(op, node.attributes));
  }

  RegionValue state(ElementOp op, const std::vector<RegionValue>& operands, DType dtype,
                    const ElementParameters& parameters = {}) {
    RegionStatement statement;
    statement.op = op;
    statement.parameters = parameters;
    statement.operands = operands;
    for (const RegionValue& operand : operands) {
      statement.level = join(statement.level, operand.level);
    }
    statement.operand_dtype = operands[operands.size() == 3 ? 1 : 0].dtype;
    statement.dtype = dtype;
    statement.stage = stage_of(operands);
    code_.statements.push_back(statement);
    return {RegionValue::Source::Statement, code_.statements.size() - 1, 0, dtype, statement.level};
  }

  // A decision that is drawn for each element, and two ops: what is kept is scaled, and rounded as
  // the op by itself does.
  void lower_dropout(const Node& node) {
    const DType dtype = graph_.value(node.outputs[0]).spec.dtype;
    const double rate = node.attributes.get_double("rate");
    const double scale = rate < 1.0 ? 1.0 / (1.0 - rate) : 0.0;
    RegionLoad kept;
    kept.input = input_of_.at(node.inputs[1]);
    kept.dtype = DType::Bool;
    kept.reading = RegionReading::Drawn;
    kept.stream = integer(node.attributes.get_int("stream")).index;
    kept.threshold = integer(philox_threshold(1.0 - rate)).index;
    code_.loads.push_back(kept);
    const RegionValue is_kept = {RegionValue::Source::Load, code_.loads.size() - 1, 0, kept.dtype,
                                 kept.level};
    const RegionValue scaled =
        state(ElementOp::multiply, {value_of(node.inputs[0], 0), number(scale, dtype)}, dtype);
    values_[node.outputs[0]] =
        state(ElementOp::where, {is_kept, scaled, number(0.0, dtype)}, dtype);
  }

  void lower_reduction(const Node& node) {
    static const std::pair<const OpDef*, RegionSum> kKinds[] = {
        {&op_reduce_sum, RegionSum::Sum},
        {&op_reduce_mean, RegionSum::Mean},
        {&op_reduce_max, RegionSum::Maximum},
        {&op_reduce_min, RegionSum::Minimum},
        {&op_column_moments, RegionSum::Moments}};
    const auto* const found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                           [&](const auto& each) { return each.first == node.op; });
    if (found == std::end(kKinds)) fail("it can't have ", node.op->name);
    RegionReduction reduction;
    reduction.kind = found->second;
    reduction.operand = value_of(node.inputs[0], 0);
    reduction.dtype = reduction.operand.dtype;
    reduction.stage = stage_of({reduction.operand});
    code_.num_stages = std::max(code_.num_stages, reduction.stage + 1);
    code_.reductions.push_back(reduction);
    const Level level = region_.kind == RegionKind::Rows ? Level::Row : Level::Column;
    for (size_t output = 0; output < node.outputs.size(); ++output) {
      values_[node.outputs[output]] = {RegionValue::Source::Reduction, code_.reductions.size() - 1,
                                       output, reduction.dtype, level};
    }
  }

  // How many stages of reductions must be over before these are known.
  int stage_of(const std::vector<RegionValue>& values) const {
    int stage = 0;
    for (const RegionValue& value : values) {
      if (value.source == RegionValue::Source::Statement) {
        stage = std::max(stage, code_.statements[value.index].stage);
      } else if (value.source == RegionValue::Source::Reduction) {
        stage = std::max(stage, code_.reductions[value.index].stage + 1);
      }
    }
    return stage;
  }

  void mark_seals() {
    for (const RegionStatement& reader : code_.statements) {
      if (!may_contract(reader.op)) continue;
      for (const RegionValue& operand : reader.operands) {
        if (operand.source != RegionValue::Source::Statement) continue;
        RegionStatement& from = code_.statements[operand.index];
        if (may_contract(from.op) && from.dtype >= DType::Float32) from.is_sealed = true;
      }
    }
  }

  const Region& region_;
  const Graph& graph_;
  Specs specs_;
  RegionCode code_;
  std::map<ValueId, size_t> input_of_;
  std::map<ValueId, RegionValue> values_;
  std::map<std::pair<size_t, size_t>, size_t> load_of_;
};

}  // namespace

RegionCode region_code(const Region& region, Specs inputs) {
  return Lowering(region, inputs).lower();
}

ElementNeeds element_needs(const RegionCode& code, const std::vector<RegionValue>& values) {
  ElementNeeds needs{std::vector<bool>(code.loads.size()),
                     std::vector<bool>(code.statements.size())};
  const auto mark = [&](const RegionValue& value) {
    if (value.level != Level::Element) return;
    if (value.source == RegionValue::Source::Load) needs.loads[value.index] = true;
    if (value.source == RegionValue::Source::Statement) needs.statements[value.index] = true;
  };
  for (const RegionValue& value : values) mark(value);
  for (size_t i = code.statements.size(); i-- > 0;) {
    if (!needs.statements[i]) continue;
    for (const RegionValue& operand : code.statements[i].operands) mark(operand);
  }
  return needs;
}

}  // namespace kerascnn
