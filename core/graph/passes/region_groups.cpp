#include "core/graph/passes/region_groups.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <utility>

#include "core/ops/definitions.h"
#include "core/ops/element_program.h"
#include "core/ops/geometry.h"

namespace kerascnn {
namespace {

// Nodes up to this size also join groups that they have nothing to do with.
constexpr int64_t kMaxIndependentSize = 1 << 14;
constexpr size_t kMaxIndependentCandidates = 4;

// May a value of this shape have one element for each row of the group's domain?
bool is_row_shape(const RegionGroup& group, const Shape& shape, bool kept) {
  Region region;
  region.domain = group.domain;
  region.columns = group.columns;
  region.rows = num_elements(group.domain) / group.columns;
  return region.is_row_shape(shape, kept);
}

// How many elements each result is of, where the reduction is one over the last axes; else 0.
int64_t reduced_row(const Node& node, const Shape& shape) {
  if (!reduces_rows(*node.op)) return 0;
  const ReduceGeometry g = reduce_geometry(shape, node.attributes.get_ints("axes"));
  return g.is_simple && g.inner == 1 && g.reduce > 1 ? g.reduce : 0;
}

}  // namespace

std::optional<ColumnAxes> summed_columns(const Node& node, const Shape& shape) {
  const std::optional<ColumnAxes> axes = column_axes(node, shape);
  if (!axes) return std::nullopt;
  const int64_t rows = num_elements(shape) / (axes->outer * axes->columns);
  if (rows < 2) return std::nullopt;
  const bool is_plain = axes->outer == 1 && axes->columns == shape.back();
  return is_plain || is_worth_parts(axes->outer, rows, axes->columns) ? axes : std::nullopt;
}

RegionGroups::RegionGroups(const RootedGraph& rooted, FindRegionLimits find_limits)
    : graph_(rooted.graph),
      readers_(rooted),
      find_limits_(std::move(find_limits)),
      dependencies_(rooted.graph),
      roles_(rooted.graph.nodes().size(), Role::None) {
  find_readers_before_writers(rooted);
  const auto count = static_cast<int32_t>(graph_.nodes().size());
  for (int32_t node = 0; node < count; ++node) place(node);
  for (int32_t node = 0; node < count; ++node) {
    if (roles_[node] == Role::ColumnSum) join_sums(node);
  }
  for (int32_t node = 0; node < count; ++node) {
    if (roles_[node] == Role::ColumnSum) join_later_sums(node);
  }
  for (int32_t node = 0; node < count; ++node) {
    if (roles_[node] == Role::Element) join_readers(node);
  }
}

void RegionGroups::find_readers_before_writers(const RootedGraph& rooted) {
  runs_after_.resize(graph_.nodes().size());
  std::vector<ValueId> old_values(graph_.states().size(), -1);
  for (size_t id = 0; id < graph_.values().size(); ++id) {
    const Value& value = graph_.values()[id];
    if (value.kind == ValueKind::State) old_values[value.source] = static_cast<ValueId>(id);
  }
  for (const Assignment& assignment : rooted.graph.assignments()) {
    const Value& result = graph_.value(assignment.value);
    const ValueId old = old_values[assignment.state];
    if (result.kind != ValueKind::Result || old < 0) continue;
    for (int32_t reader : readers_.nodes(old)) {
      if (reader != result.source) runs_after_[result.source].push_back(reader);
    }
  }
}

const RegionLimits& RegionGroups::limits(const Shape& domain) const {
  const auto found = limits_.find(domain);
  if (found != limits_.end()) return found->second;
  return limits_[domain] = find_limits_ ? find_limits_(domain) : RegionLimits{};
}

RegionGroups::Role RegionGroups::role_of(const Node& node) const {
  if (node.inputs.empty() || num_elements(shape(node.outputs[0])) == 0) return Role::None;
  if (find_element_op(*node.op)) return Role::Element;
  const TensorSpec& operand = graph_.value(node.inputs[0]).spec;
  if (node.op == &op_dropout && limits(operand.shape).dropout) return Role::Element;
  if (node.op == &op_transpose) {
    const bool is_generated = limits(operand.shape).all_kinds();
    const bool is_reading = is_generated && is_read_in_stretches(node, operand.shape) &&
                            !uniform_constant(graph_, node.inputs[0]);
    return is_reading ? Role::Reading : Role::None;
  }
  if (num_elements(operand.shape) == 0 || !is_floating(operand.dtype)) return Role::None;
  if (limits(operand.shape).columns && summed_columns(node, operand.shape)) {
    return Role::ColumnSum;
  }
  RegionGroup rows;
  rows.domain = operand.shape;
  rows.columns = reduced_row(node, operand.shape);
  const RegionLimits& most = limits(operand.shape);
  if (!most.rows || rows.columns == 0) return Role::None;
  if (rows.columns < most.min_row || rows.columns > most.max_row) return Role::None;
  // With another axis of one element than those that were reduced, the result has a form of its
  // own.
  const Shape& result = shape(node.outputs[0]);
  const bool is_row = is_row_shape(rows, result, true) || is_row_shape(rows, result, false);
  return is_row ? Role::RowReduction : Role::None;
}

void RegionGroups::place(int32_t index) {
  const Node& node = graph_.nodes()[index];
  RegionGroup group;
  group.members = {index};
  dependencies_.add(index);  // its group has its number
  roles_[index] = role_of(node);
  if (roles_[index] != Role::None) {
    const bool is_element = roles_[index] == Role::Element || roles_[index] == Role::Reading;
    group.domain = shape(is_element ? node.outputs[0] : node.inputs[0]);
    group.columns = group.domain.empty() ? 1 : group.domain.back();
    group.is_candidate = true;
    if (roles_[index] == Role::ColumnSum) {
      const ColumnAxes axes = summed_columns(node, group.domain).value();
      group.kind = RegionKind::Columns;
      group.columns = axes.columns;
      group.outer = axes.outer;
    }
    if (roles_[index] == Role::RowReduction) {
      group.kind = RegionKind::Rows;
      group.columns = reduced_row(node, group.domain);
    }
  }
  groups_.push_back(std::move(group));
  if (roles_[index] == Role::Reading) return;
  if (node.op == &op_reshape) join_transpose(index);
  if (join_as_row(index) || roles_[index] == Role::ColumnSum) return;
  if (roles_[index] != Role::None || node.op == &op_broadcast_to) join_operands(index);
  if (roles_[index] == Role::Element && node.op != &op_broadcast_to) join_recent(index);
}

// The group of which the value is a row value; -1 where it is none.
int32_t RegionGroups::group_of_row(ValueId id) const {
  const Value& value = graph_.value(id);
  if (value.kind != ValueKind::Result) return -1;
  const Role role = roles_[value.source];
  return role == Role::Row || role == Role::RowReduction ? group_of(value.source) : -1;
}

// The reshape of a transpose's only result makes another domain of it.
void RegionGroups::join_transpose(int32_t index) {
  const Node& node = graph_.nodes()[index];
  const Node* transpose = producer(graph_, node.inputs[0], op_transpose);
  if (transpose == nullptr || !readers_.only_reader(node.inputs[0])) return;
  const int32_t other = group_of(producer_index(graph_, node.inputs[0]));
  if (roles_[producer_index(graph_, node.inputs[0])] != Role::Reading) return;
  RegionGroup& own = groups_[group_of(index)];
  own.domain = groups_[other].domain = shape(node.outputs[0]);
  own.columns = groups_[other].columns = own.domain.empty() ? 1 : own.domain.back();
  own.is_candidate = true;
  if (try_merge(group_of(index), other)) roles_[index] = Role::Reading;
}

// An op of what reductions over rows gave joins their group, though its shape is not the domain's.
bool RegionGroups::join_as_row(int32_t index) {
  const Node& node = graph_.nodes()[index];
  if (roles_[index] != Role::Element && node.op != &op_reshape) return false;
  for (ValueId input : node.inputs) {
    const int32_t other = group_of_row(input);
    if (other < 0) continue;
    const RegionGroup& of_rows = groups_[other];
    const Shape& result = shape(node.outputs[0]);
    if (result == of_rows.domain ||
        !(is_row_shape(of_rows, result, true) || is_row_shape(of_rows, result, false))) {
      continue;
    }
    RegionGroup& own = groups_[group_of(index)];
    const RegionGroup before = own;
    own.kind = RegionKind::Rows;
    own.domain = of_rows.domain;
    own.columns = of_rows.columns;
    own.is_candidate = true;
    const Role role = std::exchange(roles_[index], Role::Row);
    if (try_merge(group_of(index), other)) return true;
    groups_[group_of(index)] = before;
    roles_[index] = role;
  }
  return false;
}

void RegionGroups::join_operands(int32_t index) {
  const Node& node = graph_.nodes()[index];
  const bool is_broadcast = node.op == &op_broadcast_to;
  for (ValueId input : node.inputs) {
    const Value& source = graph_.value(input);
    if (source.kind != ValueKind::Result || roles_[source.source] == Role::None) continue;
    const int32_t other = group_of(source.source);
    if (is_broadcast) {
      // Back from the rows into the domain; other broadcasts are taken into regions as they are
      // read.
      if (group_of_row(input) < 0 || groups_[other].domain != shape(node.outputs[0])) continue;
      groups_[group_of(index)].domain = groups_[other].domain;
      groups_[group_of(index)].columns = groups_[other].columns;
      groups_[group_of(index)].kind = RegionKind::Rows;
    }
    if (!may_be_operand(input, groups_[group_of(index)].domain)) continue;
    const bool is_merged = try_merge(group_of(index), other);
    if (is_broadcast && is_merged) {
      groups_[group_of(index)].is_candidate = true;
      roles_[index] = Role::Element;
    }
  }
}

// What is computed again for products and convolutions joins a group that reads the same kept value
// in the backward pass anyway.
void RegionGroups::join_readers(int32_t index) {
  for (ValueId input : graph_.nodes()[index].inputs) {
    if (producer(graph_, input, op_barrier) == nullptr) continue;
    if (shape(input) != groups_[group_of(index)].domain) continue;
    for (int32_t reader : readers_.nodes(input)) {
      if (roles_[reader] != Role::Element || group_of(reader) == group_of(index)) continue;
      if (leaves_regions(group_of(index)) && try_merge(group_of(reader), group_of(index))) return;
    }
  }
}

// Do only nodes that are in no region read what the group computes?
bool RegionGroups::leaves_regions(int32_t group) const {
  for (int32_t node : groups_[group].members) {
    for (ValueId id : graph_.nodes()[node].outputs) {
      for (int32_t reader : readers_.nodes(id)) {
        const bool is_in_none = roles_[reader] == Role::None || roles_[reader] == Role::Reading;
        if (group_of(reader) != group && !is_in_none) return false;
      }
    }
  }
  return true;
}

// Is a member's result one that an op over the domain can read within their group?
bool RegionGroups::may_be_operand(ValueId input, const Shape& domain) const {
  const Value& source = graph_.value(input);
  const RegionGroup& other = groups_[group_of(source.source)];
  if (other.domain != domain) return false;
  if (group_of_row(input) < 0) return source.spec.shape == domain;
  return is_row_shape(other, source.spec.shape, true);
}

void RegionGroups::join_recent(int32_t index) {
  const Shape& result = shape(graph_.nodes()[index].outputs[0]);
  std::vector<int32_t>& recent = recent_[result];
  if (num_elements(result) <= kMaxIndependentSize) {
    const size_t count = std::min(recent.size(), kMaxIndependentCandidates);
    const std::vector<int32_t> candidates(recent.rbegin(),
                                          recent.rbegin() + static_cast<std::ptrdiff_t>(count));
    for (int32_t candidate : candidates) {
      const int32_t mine = group_of(index), other = group_of(candidate);
      // A step counter must not wait for the loss: the next step begins with it.
      if (has_producers(mine) != has_producers(other)) continue;
      if (adds_waiting(mine, other) || adds_waiting(other, mine)) continue;
      try_merge(mine, other);
    }
  }
  // One entry for each group, so that the latest few are different groups.
  if (recent.empty() || group_of(recent.back()) != group_of(index)) recent.push_back(index);
}

// A sum of columns joins the group of its operand, or one that reads its operand too. Of a value
// that is only cast to be wide it also joins a sum of what is computed from it, since both read the
// narrow one: the gradients of a shift and a scale are sums of one gradient. Sums of several
// results of one node, as attention's gradients, have nothing to wait for either.
void RegionGroups::join_sums(int32_t index) {
  const ValueId operand = graph_.nodes()[index].inputs[0];
  const Value& source = graph_.value(operand);
  if (source.kind == ValueKind::Result &&
      (roles_[source.source] == Role::Element || roles_[source.source] == Role::Reading)) {
    try_merge(group_of(index), group_of(source.source));
  }
  for (int32_t reader : readers_.nodes(operand)) {
    if (reader == index) continue;
    if (roles_[reader] == Role::Element || roles_[reader] == Role::ColumnSum) {
      try_merge(group_of(index), group_of(reader));
    }
    if (roles_[reader] != Role::Element || !is_widened(graph_, operand)) continue;
    for (int32_t next : readers_.nodes(graph_.nodes()[reader].outputs[0])) {
      if (roles_[next] == Role::ColumnSum) try_merge(group_of(index), group_of(next));
    }
  }
  ValueId result = operand;
  while (const Node* reshape = producer(graph_, result, op_reshape)) result = reshape->inputs[0];
  const int32_t node = producer_index(graph_, result);
  if (node < 0 || roles_[node] != Role::None || graph_.nodes()[node].outputs.size() < 2) return;
  const auto [first, is_first] = sums_of_results_.try_emplace(node, index);
  if (!is_first) try_merge(group_of(index), group_of(first->second));
}

// Sums alone join the next group with sums of as many columns, if what they add up stays in memory
// until then, because others read it later still: it is a kernel less. The gradient of a residual
// block's result is the one that the bias of its last layer is given, and is added to another one
// at the block's beginning.
void RegionGroups::join_later_sums(int32_t index) {
  const RegionGroup& own = groups_[group_of(index)];
  const auto is_sum = [&](int32_t node) { return roles_[node] == Role::ColumnSum; };
  if (!std::all_of(own.members.begin(), own.members.end(), is_sum)) return;
  const std::vector<int32_t>& readers = readers_.nodes(graph_.nodes()[index].inputs[0]);
  const int32_t end = *std::max_element(readers.begin(), readers.end());
  for (int32_t later = own.members.back() + 1; later < end; ++later) {
    if (!is_sum(later) || groups_[group_of(later)].domain != own.domain) continue;
    try_merge(group_of(later), group_of(index));
    return;
  }
}

// The two as one; none where they don't go together.
std::optional<RegionGroup> RegionGroups::merged(const RegionGroup& a, const RegionGroup& b) const {
  if (a.domain != b.domain) return std::nullopt;
  if (a.kind != b.kind && a.kind != RegionKind::Map && b.kind != RegionKind::Map) {
    return std::nullopt;
  }
  RegionGroup both;
  const RegionGroup& special = a.kind == RegionKind::Map ? b : a;
  if (a.kind == b.kind && (a.columns != b.columns || a.outer != b.outer)) return std::nullopt;
  both.kind = special.kind;
  both.domain = special.domain;
  both.columns = special.columns;
  both.outer = special.outer;
  both.is_candidate = true;
  std::merge(a.members.begin(), a.members.end(), b.members.begin(), b.members.end(),
             std::back_inserter(both.members));
  return both;
}

// Merges `other` into `group`, or leaves both where limits or a circle forbid it.
bool RegionGroups::try_merge(int32_t group, int32_t other) {
  if (group == other) return false;
  std::optional<RegionGroup> both = merged(groups_[group], groups_[other]);
  if (!both || !fits_limits(*both)) return false;
  if (!may_read(group, other) || !may_read(other, group)) return false;
  if (dependencies_.depends_on(group, other) || dependencies_.depends_on(other, group)) {
    return false;
  }
  dependencies_.merge(group, other);
  groups_[group] = std::move(*both);
  groups_[other].members.clear();
  return true;
}

// Could `group` read within one region what it reads of `other`? Sums of columns are known when the
// last block is done. A row's value without the reduced axes would be read along the columns.
bool RegionGroups::may_read(int32_t group, int32_t other) const {
  for (int32_t node : groups_[group].members) {
    for (ValueId id : graph_.nodes()[node].inputs) {
      const Value& source = graph_.value(id);
      if (source.kind != ValueKind::Result || group_of(source.source) != other) continue;
      const Role role = roles_[source.source];
      // What is transposed is an input of the region.
      if (role == Role::ColumnSum || graph_.nodes()[node].op == &op_transpose) return false;
      const bool is_row = role == Role::Row || role == Role::RowReduction;
      if (is_row && roles_[node] != Role::Row && !may_be_operand(id, groups_[group].domain)) {
        return false;
      }
    }
  }
  return true;
}

// Does `group` overwrite variables whose readers `other` would have to wait for only because of it?
bool RegionGroups::adds_waiting(int32_t group, int32_t other) {
  for (int32_t node : groups_[group].members) {
    for (int32_t reader : runs_after_[node]) {
      const int32_t target = group_of(reader);
      if (target == group || target == other) continue;
      bool waits_already = false;
      visit_producers(other,
                      [&](int32_t next) { waits_already = waits_already || next == target; });
      if (target < 0 || (!waits_already && !dependencies_.depends_on(other, target))) return true;
    }
  }
  return false;
}

bool RegionGroups::fits_limits(const RegionGroup& group) const {
  const RegionLimits& most = limits(group.domain);
  const auto is_member = [&](int32_t node) {
    return std::binary_search(group.members.begin(), group.members.end(), node);
  };
  std::set<ValueId> inputs, constants;
  int outputs = 0, ops = 0;
  for (int32_t index : group.members) {
    const Node& node = graph_.nodes()[index];
    ops += node.op->is_view || node.op == &op_broadcast_to ? 0 : 1;
    for (ValueId id : node.inputs) {
      const Value& source = graph_.value(id);
      if (source.kind == ValueKind::Result && is_member(source.source)) continue;
      (uniform_constant(graph_, id) ? constants : inputs).insert(id);
    }
    for (ValueId id : node.outputs) {
      const std::vector<int32_t>& readers = readers_.nodes(id);
      const bool is_output =
          readers_.is_root(id) || !std::all_of(readers.begin(), readers.end(), is_member);
      outputs += is_output ? 1 : 0;
    }
  }
  return ops <= most.max_ops && inputs.size() <= static_cast<size_t>(most.max_inputs) &&
         constants.size() <= static_cast<size_t>(most.max_constants) && outputs <= most.max_outputs;
}

// The groups outside that a group reads from; one may come several times.
template <typename Visit>
void RegionGroups::visit_producers(int32_t group, const Visit& visit) const {
  for (int32_t node : groups_[group].members) {
    for (ValueId id : graph_.nodes()[node].inputs) {
      const Value& source = graph_.value(id);
      if (source.kind != ValueKind::Result || group_of(source.source) == group) continue;
      visit(group_of(source.source));
    }
  }
}

bool RegionGroups::has_producers(int32_t group) const {
  bool found = false;
  visit_producers(group, [&](int32_t) { found = true; });
  return found;
}

std::vector<std::vector<int32_t>> RegionGroups::find_successors() const {
  std::vector<std::vector<int32_t>> successors(groups_.size());
  for (size_t group = 0; group < groups_.size(); ++group) {
    std::vector<int32_t> producers;
    visit_producers(static_cast<int32_t>(group), [&](int32_t next) { producers.push_back(next); });
    std::sort(producers.begin(), producers.end());
    producers.erase(std::unique(producers.begin(), producers.end()), producers.end());
    for (int32_t producer : producers) successors[producer].push_back(static_cast<int32_t>(group));
  }
  return successors;
}

// The groups in the order of their places as far as the successors allow.
std::vector<int32_t> RegionGroups::sorted(const std::vector<std::vector<int32_t>>& successors,
                                          const std::vector<int32_t>& places) const {
  std::vector<int32_t> waiting_for(groups_.size(), 0);
  for (const auto& next_groups : successors) {
    for (int32_t next : next_groups) ++waiting_for[next];
  }
  using Entry = std::pair<int32_t, int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  const auto add_ready = [&](int32_t group) {
    if (!groups_[group].members.empty()) ready.push({places[group], group});
  };
  for (size_t group = 0; group < groups_.size(); ++group) {
    if (waiting_for[group] == 0) add_ready(static_cast<int32_t>(group));
  }
  std::vector<int32_t> order;
  while (!ready.empty()) {
    const int32_t group = ready.top().second;
    ready.pop();
    order.push_back(group);
    for (int32_t next : successors[group]) {
      if (--waiting_for[next] == 0) add_ready(next);
    }
  }
  return order;
}

// As in the graph: each group is at the place of its last node, or where it is needed before that,
// at the place of what needs it. Else others that come before it would run first, though nothing
// waits for them, and their results would lie in memory.
std::vector<RegionGroup> RegionGroups::ordered() const {
  const std::vector<std::vector<int32_t>> successors = find_successors();
  std::vector<int32_t> places(groups_.size(), 0);
  for (size_t group = 0; group < groups_.size(); ++group) {
    if (!groups_[group].members.empty()) places[group] = groups_[group].members.back();
  }
  const std::vector<int32_t> any_order = sorted(successors, places);
  for (size_t i = any_order.size(); i-- > 0;) {
    int32_t& place = places[any_order[i]];
    for (int32_t next : successors[any_order[i]]) place = std::min(place, places[next]);
  }
  std::vector<RegionGroup> units;
  for (int32_t group : sorted(successors, places)) units.push_back(groups_[group]);
  return units;
}

}  // namespace kerascnn
