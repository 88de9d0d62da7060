// The dependencies of groups of nodes are compared with a search through the whole graph.
#include <random>
#include <set>
#include <vector>

#include "check.h"
#include "core/graph/passes/group_dependencies.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

// Each node adds two values, which are among the latest four or anywhere before.
Graph random_graph(std::mt19937& random, int count) {
  Graph graph;
  std::vector<ValueId> values = {graph.input("x", testing::f32({2}))};
  for (int i = 0; i < count; ++i) {
    const auto draw = [&] {
      const size_t reach = random() % 3 == 0 ? values.size() : std::min<size_t>(values.size(), 4);
      return values[values.size() - 1 - random() % reach];
    };
    const ValueId a = draw(), b = draw();
    values.push_back(graph.apply("add", {a, b}, {})[0]);
  }
  return graph;
}

// A plain version: groups are sets of nodes, and each question searches all of them.
class PlainGroups {
 public:
  explicit PlainGroups(const Graph& graph) : graph_(graph), groups_(graph.nodes().size()) {}

  void add(int32_t node) { groups_[node] = {node}; }
  void merge(int32_t group, int32_t other) {
    groups_[group].insert(groups_[other].begin(), groups_[other].end());
    groups_[other].clear();
  }
  bool depends_on(int32_t group, int32_t target) const {
    std::set<int32_t> seen = {group, target};
    std::vector<int32_t> open;
    for (const int32_t next : producers(group)) {
      if (seen.insert(next).second) open.push_back(next);
    }
    while (!open.empty()) {
      const int32_t current = open.back();
      open.pop_back();
      for (const int32_t next : producers(current)) {
        if (next == target) return true;
        if (seen.insert(next).second) open.push_back(next);
      }
    }
    return false;
  }

 private:
  std::set<int32_t> producers(int32_t group) const {
    std::set<int32_t> found;
    for (const int32_t node : groups_[group]) {
      for (const ValueId id : graph_.nodes()[node].inputs) {
        const Value& source = graph_.value(id);
        if (source.kind != ValueKind::Result) continue;
        for (int32_t each = 0; each < static_cast<int32_t>(groups_.size()); ++each) {
          if (each != group && groups_[each].contains(source.source)) found.insert(each);
        }
      }
    }
    return found;
  }

  const Graph& graph_;
  std::vector<std::set<int32_t>> groups_;
};

}  // namespace

TEST(groups_depend_on_what_a_search_through_all_finds) {
  std::mt19937 random(std::random_device{}());
  int num_dependent = 0, num_merged = 0;
  for (int round = 0; round < 40; ++round) {
    const int count = 5 + static_cast<int>(random() % 40);
    const Graph graph = random_graph(random, count);
    GroupDependencies groups(graph);
    PlainGroups plain(graph);
    for (int32_t node = 0; node < count; ++node) {
      groups.add(node);
      plain.add(node);
      for (int i = 0; i < 6; ++i) {
        const int32_t a = groups.group_of(static_cast<int32_t>(random() % (node + 1)));
        const int32_t b = groups.group_of(static_cast<int32_t>(random() % (node + 1)));
        if (a == b) continue;
        const bool depends = plain.depends_on(a, b);
        CHECK_EQUAL(groups.depends_on(a, b), depends);
        num_dependent += depends ? 1 : 0;
        if (depends || plain.depends_on(b, a) || random() % 2 == 0) continue;
        groups.merge(a, b);
        plain.merge(a, b);
        ++num_merged;
      }
    }
  }
  CHECK(num_dependent > 100);
  CHECK(num_merged > 100);
}

// The graph goes forward and back through a deep network, and each step back reads the result of
// the step forward.
TEST(searches_do_not_grow_with_the_graph) {
  Graph graph;
  constexpr int kLayers = 3000;
  std::vector<ValueId> forward = {graph.input("x", testing::f32({2}))};
  for (int i = 0; i < kLayers; ++i) {
    forward.push_back(graph.apply("tanh", {forward.back()}, {})[0]);
  }
  ValueId gradient = forward.back();
  for (int i = kLayers; i > 0; --i) {
    const ValueId side = graph.apply("multiply", {forward[i], forward[i - 1]}, {})[0];
    gradient = graph.apply("add", {gradient, side}, {})[0];
  }
  GroupDependencies groups(graph);
  int num_merged = 0;
  for (int32_t node = 0; node < static_cast<int32_t>(graph.nodes().size()); ++node) {
    groups.add(node);
    for (const ValueId id : graph.nodes()[node].inputs) {
      const Value& source = graph.value(id);
      if (source.kind != ValueKind::Result) continue;
      const int32_t group = groups.group_of(node), other = groups.group_of(source.source);
      if (group == other || groups.depends_on(group, other)) continue;
      if (groups.depends_on(other, group)) continue;
      if (num_merged % 8 == 7) {  // real groups are limited in size too
        ++num_merged;
        continue;
      }
      groups.merge(group, other);
      ++num_merged;
    }
  }
  CHECK(num_merged > kLayers);
  CHECK(groups.num_visited() < 20 * static_cast<int64_t>(graph.nodes().size()));
}

}  // namespace kerascnn
