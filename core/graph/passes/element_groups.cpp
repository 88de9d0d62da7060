#include "core/graph/passes/element_groups.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <set>

#include "core/ops/fused_elementwise.h"

namespace kerascnn {
namespace {

// A search for dependencies that gets too long counts as a dependency. The bound keeps the sum over
// all nodes in check: it is never felt below a few thousand nodes.
constexpr size_t kMaxVisitedInAll = size_t{1} << 24;
constexpr size_t kMinVisited = 32;
// Nodes up to this size also join groups that they have nothing to do with.
constexpr int64_t kMaxIndependentSize = 1 << 14;
constexpr size_t kMaxIndependentCandidates = 4;

}  // namespace

ElementGroups::ElementGroups(const RootedGraph& rooted)
    : graph_(rooted.graph),
      readers_(rooted),
      group_of_(rooted.graph.nodes().size(), -1),
      is_element_(rooted.graph.nodes().size(), false),
      max_visited_(std::max(kMinVisited, kMaxVisitedInAll / (rooted.graph.nodes().size() + 1))) {
  find_readers_before_writers(rooted);
  for (size_t i = 0; i < graph_.nodes().size(); ++i) place(static_cast<int32_t>(i));
}

void ElementGroups::find_readers_before_writers(const RootedGraph& rooted) {
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

bool ElementGroups::is_candidate(const Node& node) const {
  return node.op->is_elementwise && node.outputs.size() == 1 &&
         find_element_op(node.op->name).has_value() &&
         num_elements(graph_.value(node.outputs[0]).spec.shape) > 0;
}

void ElementGroups::place(int32_t index) {
  const Node& node = graph_.nodes()[index];
  const auto group = static_cast<int32_t>(members_.size());
  members_.push_back({index});
  group_of_[index] = group;
  if (!is_candidate(node)) return;
  is_element_[index] = true;
  const Shape& shape = graph_.value(node.outputs[0]).spec.shape;

  for (ValueId input : node.inputs) {
    const Value& source = graph_.value(input);
    if (source.kind != ValueKind::Result || source.spec.shape != shape) continue;
    if (is_element_[source.source]) try_merge(group_of_[index], group_of_[source.source]);
  }
  std::vector<int32_t>& recent = recent_[shape];
  if (num_elements(shape) <= kMaxIndependentSize) {
    const size_t count = std::min(recent.size(), kMaxIndependentCandidates);
    const std::vector<int32_t> candidates(recent.rbegin(),
                                          recent.rbegin() + static_cast<std::ptrdiff_t>(count));
    for (int32_t candidate : candidates) {
      const int32_t mine = group_of_[index], other = group_of_[candidate];
      // A step counter must not wait for the loss: the next step begins with it.
      if (has_producers(mine) != has_producers(other)) continue;
      if (adds_waiting(mine, other) || adds_waiting(other, mine)) continue;
      try_merge(mine, other);
    }
  }
  // One entry for each group, so that the latest few are different groups.
  if (recent.empty() || group_of_[recent.back()] != group_of_[index]) recent.push_back(index);
}

// Merges `other` into `group`, or leaves both where limits or a circle forbid it.
bool ElementGroups::try_merge(int32_t group, int32_t other) {
  if (group == other) return false;
  std::vector<int32_t> members;
  std::merge(members_[group].begin(), members_[group].end(), members_[other].begin(),
             members_[other].end(), std::back_inserter(members));
  if (!fits_limits(members)) return false;
  // A single new node has no successors yet, so nothing can depend on it.
  if (depends_on(group, other)) return false;
  if (members_[group].size() > 1 && depends_on(other, group)) return false;
  for (int32_t node : members_[other]) group_of_[node] = group;
  members_[group] = std::move(members);
  members_[other].clear();
  return true;
}

// Does `group` overwrite variables whose readers `other` would have to wait for only because of it?
bool ElementGroups::adds_waiting(int32_t group, int32_t other) {
  for (int32_t node : members_[group]) {
    for (int32_t reader : runs_after_[node]) {
      const int32_t target = group_of_[reader];
      if (target == group || target == other) continue;
      bool waits_already = false;
      visit_producers(other,
                      [&](int32_t next) { waits_already = waits_already || next == target; });
      if (target < 0 || (!waits_already && !depends_on(other, target))) return true;
    }
  }
  return false;
}

bool ElementGroups::fits_limits(const std::vector<int32_t>& members) const {
  if (members.size() > static_cast<size_t>(kMaxElementInstructions)) return false;
  const auto is_member = [&](int32_t node) {
    return std::binary_search(members.begin(), members.end(), node);
  };
  std::set<ValueId> inputs, constants;
  int outputs = 0;
  for (int32_t index : members) {
    const Node& node = graph_.nodes()[index];
    for (ValueId id : node.inputs) {
      const Value& source = graph_.value(id);
      if (source.kind == ValueKind::Result && is_member(source.source)) continue;
      (uniform_constant(graph_, id) ? constants : inputs).insert(id);
    }
    const std::vector<int32_t>& readers = readers_.nodes(node.outputs[0]);
    const bool is_output = readers_.is_root(node.outputs[0]) ||
                           !std::all_of(readers.begin(), readers.end(), is_member);
    outputs += is_output ? 1 : 0;
  }
  return inputs.size() <= static_cast<size_t>(kMaxElementInputs) &&
         constants.size() <= static_cast<size_t>(kMaxElementConstants) &&
         outputs <= kMaxElementOutputs;
}

// The groups outside that a group reads from; one may come several times.
template <typename Visit>
void ElementGroups::visit_producers(int32_t group, const Visit& visit) const {
  for (int32_t node : members_[group]) {
    for (ValueId id : graph_.nodes()[node].inputs) {
      const Value& source = graph_.value(id);
      if (source.kind != ValueKind::Result || group_of_[source.source] == group) continue;
      visit(group_of_[source.source]);
    }
  }
}

bool ElementGroups::has_producers(int32_t group) const {
  bool found = false;
  visit_producers(group, [&](int32_t) { found = true; });
  return found;
}

// Does `group` depend on `target` through at least one other group? Direct edges are what merging
// is for.
bool ElementGroups::depends_on(int32_t group, int32_t target) {
  seen_.resize(graph_.nodes().size(), 0);
  ++search_;
  seen_[group] = seen_[target] = search_;
  std::vector<int32_t> open;
  size_t visited = 0;
  bool found = false;
  const auto enter = [&](int32_t next) {
    if (seen_[next] == search_) return;
    seen_[next] = search_;
    open.push_back(next);
  };
  visit_producers(group, enter);
  while (!open.empty() && !found) {
    if (++visited > max_visited_) return true;
    const int32_t current = open.back();
    open.pop_back();
    visit_producers(current, [&](int32_t next) {
      found = found || next == target;
      enter(next);
    });
  }
  return found;
}

std::vector<std::vector<int32_t>> ElementGroups::ordered_units() const {
  std::vector<std::vector<int32_t>> successors(members_.size());
  std::vector<int32_t> waiting_for(members_.size(), 0);
  for (size_t group = 0; group < members_.size(); ++group) {
    std::vector<int32_t> producers;
    visit_producers(static_cast<int32_t>(group), [&](int32_t next) { producers.push_back(next); });
    std::sort(producers.begin(), producers.end());
    producers.erase(std::unique(producers.begin(), producers.end()), producers.end());
    for (int32_t producer : producers) successors[producer].push_back(static_cast<int32_t>(group));
    waiting_for[group] = static_cast<int32_t>(producers.size());
  }
  // As in the graph, each group at the place of its last node.
  using Entry = std::pair<int32_t, int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  const auto add_ready = [&](int32_t group) {
    if (!members_[group].empty()) ready.push({members_[group].back(), group});
  };
  for (size_t group = 0; group < members_.size(); ++group) {
    if (waiting_for[group] == 0) add_ready(static_cast<int32_t>(group));
  }
  std::vector<std::vector<int32_t>> units;
  while (!ready.empty()) {
    const int32_t group = ready.top().second;
    ready.pop();
    units.push_back(members_[group]);
    for (int32_t next : successors[group]) {
      if (--waiting_for[next] == 0) add_ready(next);
    }
  }
  return units;
}

}  // namespace kerascnn
