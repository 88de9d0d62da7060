#include "core/graph/passes/group_dependencies.h"

#include <algorithm>

namespace kerascnn {
namespace {

constexpr int32_t kNone = -1;

template <typename Visit>
void visit_producers(const Graph& graph, int32_t node, const Visit& visit) {
  for (ValueId id : graph.nodes()[node].inputs) {
    const Value& source = graph.value(id);
    if (source.kind == ValueKind::Result) visit(source.source);
  }
}

}  // namespace

GroupDependencies::GroupDependencies(const Graph& graph)
    : graph_(graph),
      group_of_(graph.nodes().size(), kNone),
      groups_(graph.nodes().size()),
      seen_(graph.nodes().size(), 0) {
  order_.reserve(graph.nodes().size());
  find_chain();
}

void GroupDependencies::find_chain() {
  const auto count = static_cast<int32_t>(graph_.nodes().size());
  std::vector<int32_t> length(count, 1), before(count, kNone);
  int32_t last = kNone;
  for (int32_t node = 0; node < count; ++node) {
    visit_producers(graph_, node, [&](int32_t producer) {
      if (length[producer] < length[node]) return;
      length[node] = length[producer] + 1;
      before[node] = producer;
    });
    if (last == kNone || length[node] > length[last]) last = node;
  }
  for (int32_t node = last; node != kNone; node = before[node]) chain_.push_back(node);
  std::reverse(chain_.begin(), chain_.end());

  first_on_chain_.assign(count, static_cast<int32_t>(chain_.size()));
  last_on_chain_.assign(count, kNone);
  for (size_t place = 0; place < chain_.size(); ++place) {
    first_on_chain_[chain_[place]] = last_on_chain_[chain_[place]] = static_cast<int32_t>(place);
  }
  for (int32_t node = 0; node < count; ++node) {
    visit_producers(graph_, node, [&](int32_t producer) {
      last_on_chain_[node] = std::max(last_on_chain_[node], last_on_chain_[producer]);
    });
  }
  for (int32_t node = count - 1; node >= 0; --node) {
    visit_producers(graph_, node, [&](int32_t producer) {
      first_on_chain_[producer] = std::min(first_on_chain_[producer], first_on_chain_[node]);
    });
  }
}

void GroupDependencies::add(int32_t node) {
  group_of_[node] = node;
  Group& group = groups_[node];
  group.members = {node};
  visit_producers(graph_, node, [&](int32_t producer) { group.producers.push_back(producer); });
  group.place = static_cast<int32_t>(order_.size());
  group.first_on_chain = first_on_chain_[node];
  group.last_on_chain = last_on_chain_[node];
  order_.push_back(node);
}

// Is the node there on a way from the one group to the other, and in another group?
bool GroupDependencies::is_between(int32_t place_on_chain, int32_t group, int32_t target) const {
  const int32_t found = group_of_[chain_[place_on_chain]];
  return found != group && found != target;
}

bool GroupDependencies::depends_by_chain(int32_t group, int32_t target) const {
  const int32_t first = groups_[target].first_on_chain, last = groups_[group].last_on_chain;
  return first <= last && (is_between(first, group, target) || is_between(last, group, target));
}

bool GroupDependencies::depends_on(int32_t group, int32_t target) {
  if (groups_[group].place < groups_[target].place) return false;
  return depends_by_chain(group, target) || search(group, target);
}

// Goes from a group to what it depends on, except for the target, as far back as the target's
// place. Finds all of these groups, or stops at the first one that reads the target.
bool GroupDependencies::search(int32_t group, int32_t target) {
  ++search_;
  found_.clear();
  seen_[group] = seen_[target] = search_;
  const int32_t least = groups_[target].place;
  const auto enter = [&](int32_t producer) {
    const int32_t next = group_of_[producer];
    if (seen_[next] == search_ || groups_[next].place < least) return;
    seen_[next] = search_;
    found_.push_back(next);
  };
  for (int32_t producer : groups_[group].producers) enter(producer);
  for (size_t i = 0; i < found_.size(); ++i) {
    ++num_visited_;
    for (int32_t producer : groups_[found_[i]].producers) {
      if (group_of_[producer] == target) return true;
      enter(producer);
    }
  }
  return false;
}

// Groups that the later one depends on go before the earlier one; both are at its place from then
// on.
void GroupDependencies::merge(int32_t group, int32_t other) {
  const bool is_later = groups_[group].place > groups_[other].place;
  const int32_t early = is_later ? other : group, late = is_later ? group : other;
  search(late, early);
  const auto begin = order_.begin() + groups_[early].place;
  const auto end = order_.begin() + groups_[late].place + 1;
  *begin = *(end - 1) = kNone;
  std::stable_partition(begin, end, [&](int32_t each) {
    return each != kNone && each != early && seen_[each] == search_;
  });
  *(begin + static_cast<std::ptrdiff_t>(found_.size())) = group;
  for (auto at = begin; at != end; ++at) {
    if (*at != kNone) groups_[*at].place = static_cast<int32_t>(at - order_.begin());
  }
  Group& own = groups_[group];
  Group& merged = groups_[other];
  for (int32_t node : merged.members) group_of_[node] = group;
  own.members.insert(own.members.end(), merged.members.begin(), merged.members.end());
  own.producers.insert(own.producers.end(), merged.producers.begin(), merged.producers.end());
  own.first_on_chain = std::min(own.first_on_chain, merged.first_on_chain);
  own.last_on_chain = std::max(own.last_on_chain, merged.last_on_chain);
  merged = {};
}

}  // namespace kerascnn
