#include "core/graph/region.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "core/base/error.h"
#include "core/graph/body_program.h"
#include "core/ops/definitions.h"
#include "core/ops/element_program.h"
#include "core/ops/geometry.h"

namespace kerascnn {
namespace {

constexpr std::array<std::string_view, 3> kKindNames = {"map", "rows", "columns"};

template <typename... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw ValueError(message("region: ", parts...));
}

RegionKind kind_from_name(const std::string& name) {
  const auto found = std::find(kKindNames.begin(), kKindNames.end(), name);
  if (found == kKindNames.end()) {
    fail("kind must be \"map\", \"rows\" or \"columns\", received \"", name, "\"");
  }
  return static_cast<RegionKind>(found - kKindNames.begin());
}

// Checks that each node of the body is one that a region of its kind may have.
class BodyChecker {
 public:
  explicit BodyChecker(const Region& region)
      : region_(region),
        graph_(*region.body->graph),
        needed_(needed_values(graph_, region.body->outputs)) {}

  void check() const {
    for (const Node& node : graph_.nodes()) {
      if (std::any_of(node.outputs.begin(), node.outputs.end(),
                      [&](ValueId id) { return needed_[id]; })) {
        check_node(node);
      }
    }
  }

 private:
  const Shape& shape(ValueId id) const { return graph_.value(id).spec.shape; }

  [[noreturn]] void refuse(const Node& node, std::string_view why) const {
    std::vector<TensorSpec> inputs;
    for (ValueId id : node.inputs) inputs.push_back(graph_.value(id).spec);
    fail(node.op->name, " of ", specs_string(inputs), " can't be in one of kind ",
         kKindNames[static_cast<size_t>(region_.kind)], " over ", shape_string(region_.domain),
         ": ", why);
  }

  void check_node(const Node& node) const {
    for (ValueId id : node.inputs) {
      if (region_.kind == RegionKind::Columns && is_sum(id)) {
        refuse(node, "nothing in it may read what it sums up");
      }
    }
    const Shape& result = shape(node.outputs[0]);
    if (node.op == &op_broadcast_to) {
      // A constant that an op of row values reads is the same in each row.
      const bool is_constant = graph_.value(node.inputs[0]).kind == ValueKind::Constant;
      if (!broadcasts_to(result, region_.domain) &&
          !(region_.kind == RegionKind::Rows && is_constant && is_row(result))) {
        refuse(node, "its result does not broadcast");
      }
    } else if (node.op == &op_dropout) {
      const bool is_given = graph_.value(node.inputs[1]).kind == ValueKind::Input;
      if (result != region_.domain || !is_given) refuse(node, "its state is computed in it");
    } else if (find_element_op(*node.op)) {
      check_element_op(node, result);
    } else if (node.op == &op_transpose) {
      const bool is_given = graph_.value(node.inputs[0]).kind == ValueKind::Input;
      if (!is_given || num_elements(result) != num_elements(region_.domain) ||
          !is_read_in_stretches(node, shape(node.inputs[0]))) {
        refuse(node, "its operand is not read in stretches of an input");
      }
    } else if (is_reshape_of_transpose(node)) {
      if (result != region_.domain) refuse(node, "its result has another shape");
    } else if (region_.kind == RegionKind::Rows && node.op == &op_reshape) {
      if (!is_row(shape(node.inputs[0])) || !is_row(result)) refuse(node, "it is not of a row");
    } else if (!is_sum(node.outputs[0])) {
      refuse(node, "it is no op of this kind");
    } else if (shape(node.inputs[0]) != region_.domain || !is_over_right_axes(node)) {
      refuse(node, "it is not over the axes of this kind");
    }
  }

  void check_element_op(const Node& node, const Shape& result) const {
    if (result == region_.domain) {
      for (ValueId id : node.inputs) {
        // It would be broadcast along the wrong axis.
        if (is_row_value(id) && !region_.is_row_shape(shape(id), true)) {
          refuse(node, "a row value must have all axes here");
        }
      }
    } else if (region_.kind != RegionKind::Rows || !is_row(result)) {
      refuse(node, "its result has another shape");
    }
  }

  bool is_reshape_of_transpose(const Node& node) const {
    if (node.op != &op_reshape) return false;
    const Value& operand = graph_.value(node.inputs[0]);
    return operand.kind == ValueKind::Result && graph_.nodes()[operand.source].op == &op_transpose;
  }

  bool is_row(const Shape& each) const {
    return region_.is_row_shape(each, true) || region_.is_row_shape(each, false);
  }

  // Was the value computed from what a reduction over rows gave?
  bool is_row_value(ValueId id) const {
    const Value& value = graph_.value(id);
    return region_.kind == RegionKind::Rows && value.kind == ValueKind::Result &&
           graph_.nodes()[value.source].op != &op_broadcast_to && shape(id) != region_.domain &&
           is_row(shape(id));
  }

  bool is_sum(ValueId id) const {
    const Value& value = graph_.value(id);
    if (value.kind != ValueKind::Result) return false;
    const OpDef& op = *graph_.nodes()[value.source].op;
    return (region_.kind == RegionKind::Rows && reduces_rows(op)) ||
           (region_.kind == RegionKind::Columns && sums_columns(op));
  }

  bool is_over_right_axes(const Node& node) const {
    if (region_.kind == RegionKind::Columns) {
      const auto axes = column_axes(node, shape(node.inputs[0]));
      return axes && axes->outer == region_.outer && axes->columns == region_.columns;
    }
    const ReduceGeometry g =
        reduce_geometry(shape(node.inputs[0]), node.attributes.get_ints("axes"));
    return g.is_simple && g.inner == 1 && g.reduce == region_.columns &&
           is_row(shape(node.outputs[0]));
  }

  const Region& region_;
  const Graph& graph_;
  std::vector<bool> needed_;
};

std::vector<TensorSpec> infer_region(const Attributes& attributes, Specs inputs) {
  const Region region = read_region(attributes);
  const Body& body = *region.body;
  check_num_inputs("region", inputs, body.inputs.size());
  check_body_inputs("region: the body", body, {inputs.begin(), inputs.end()});
  if (body.outputs.empty()) fail("the body has no outputs");
  BodyChecker(region).check();
  std::vector<TensorSpec> outputs;
  for (size_t i = 0; i < body.outputs.size(); ++i) outputs.push_back(body.output_spec(i));
  return outputs;
}

std::vector<InPlace> in_place_of_map(const Attributes& attributes, size_t num_inputs) {
  const Region region = read_region(attributes);
  std::vector<InPlace> pairs;
  if (region.kind != RegionKind::Map) return pairs;
  // Random states are read by all elements, and transposed inputs elsewhere.
  std::set<ValueId> others;
  for (const Node& node : region.body->graph->nodes()) {
    if (node.op == &op_dropout) others.insert(node.inputs[1]);
    if (node.op == &op_transpose) others.insert(node.inputs[0]);
  }
  for (size_t output = 0; output < region.body->outputs.size(); ++output) {
    for (size_t input = 0; input < num_inputs; ++input) {
      if (!others.contains(region.body->inputs[input])) pairs.push_back({output, input});
    }
  }
  return pairs;
}

OpCost region_cost(const Attributes& attributes, Specs, Specs, OpCost usual) {
  return {body_cost(*read_region(attributes).body).flop, usual.bytes};
}

}  // namespace

bool reduces_rows(const OpDef& op) {
  return &op == &op_reduce_sum || &op == &op_reduce_mean || &op == &op_reduce_max ||
         &op == &op_reduce_min;
}

bool sums_columns(const OpDef& op) {
  return &op == &op_reduce_sum || &op == &op_reduce_mean || &op == &op_column_moments;
}

std::optional<ColumnAxes> column_axes(const Node& node, const Shape& operand) {
  if (!sums_columns(*node.op) || operand.size() < 2) return std::nullopt;
  if (node.op == &op_column_moments) {
    const auto first = operand.begin();
    const int64_t outer_axes = column_moments_outer_axes(node.attributes);
    return ColumnAxes{num_elements(Shape(first, first + outer_axes)), operand.back()};
  }
  const ReduceGeometry g = reduce_geometry(operand, node.attributes.get_ints("axes"));
  const bool is_last = g.inner == 1 && (g.outer > 1 || operand.back() > 1);
  if (!g.is_simple || is_last) return std::nullopt;
  return ColumnAxes{g.outer, g.inner};
}

bool is_worth_parts(int64_t outer, int64_t rows_of_part, int64_t columns) {
  constexpr int64_t kFewestRows = 8;
  constexpr int64_t kLeastPart = int64_t{1} << 12;
  return rows_of_part >= kFewestRows && (outer == 1 || rows_of_part * columns >= kLeastPart);
}

bool broadcasts_to(const Shape& shape, const Shape& target) {
  if (shape.size() > target.size()) return false;
  for (size_t i = 1; i <= shape.size(); ++i) {
    const int64_t extent = shape[shape.size() - i];
    if (extent != 1 && extent != target[target.size() - i]) return false;
  }
  return true;
}

bool Region::is_row_shape(const Shape& shape, bool kept) const {
  if (num_elements(shape) != rows ||
      (kept ? shape.size() != domain.size() : shape.size() > domain.size())) {
    return false;
  }
  size_t same = 0;
  while (same < shape.size() && shape[same] == domain[same]) ++same;
  return std::all_of(shape.begin() + static_cast<int64_t>(same), shape.end(),
                     [](int64_t extent) { return extent == 1; }) &&
         (kept || same == shape.size());
}

Region read_region(const Attributes& attributes) {
  Region region;
  region.body = attributes.get_bodies("bodies", 1)[0];
  region.kind = kind_from_name(attributes.get_string("kind"));
  region.domain = attributes.get_ints("domain");
  region.columns = attributes.get_int("columns");
  if (attributes.has("generated")) region.generated = attributes.get_bool("generated");
  const int64_t size = num_elements(region.domain);
  if (size == 0 || region.columns < 1 || size % region.columns != 0) {
    fail("a domain of shape ", shape_string(region.domain), " has no matrix of ", region.columns,
         " columns");
  }
  region.rows = size / region.columns;
  if (attributes.has("outer")) region.outer = attributes.get_int("outer");
  if (region.outer < 1 || region.rows % region.outer != 0 ||
      (region.outer > 1 && region.kind != RegionKind::Columns)) {
    fail("kind ", kKindNames[static_cast<size_t>(region.kind)], " over ",
         shape_string(region.domain), " has no ", region.outer, " equal parts of rows");
  }
  return region;
}

Attributes region_attributes(const Region& region) {
  Attributes attributes = {{"bodies", Bodies{region.body}},
                           {"kind", std::string(kKindNames[static_cast<size_t>(region.kind)])},
                           {"domain", region.domain},
                           {"columns", region.columns}};
  if (region.outer > 1) attributes.set("outer", region.outer);
  if (region.generated) attributes.set("generated", *region.generated);
  return attributes;
}

bool is_read_in_stretches(const Node& transpose, const Shape& operand) {
  constexpr int64_t kStretch = 8;  // elements that a thread of a generated kernel takes at most
  const std::vector<int64_t>& permutation = transpose.attributes.get_ints("permutation");
  return permutation.size() > 2 && num_elements(operand) > 0 &&
         permutation.back() == static_cast<int64_t>(permutation.size()) - 1 &&
         operand.back() % kStretch == 0;
}

std::string region_name(const Region& region) {
  const Graph& graph = *region.body->graph;
  const std::vector<bool> needed = needed_values(graph, region.body->outputs);
  std::string name;
  for (const Node& node : graph.nodes()) {
    if (!needed[node.outputs[0]] || node.op->is_view || node.op == &op_broadcast_to) continue;
    name += (name.empty() ? "" : "+") + std::string(node.op->name);
  }
  return name;
}

const OpDef op_region = {
    .name = "region",
    .infer = infer_region,
    .not_differentiable = "it is made after differentiation, by the pass form_regions",
    .in_place = in_place_of_map,
    .has_bodies = true,
    .cost = region_cost,
};

}  // namespace kerascnn
