// Which groups of a graph's nodes depend on which, while groups grow. Used by RegionGroups.
#pragma once

#include <cstdint>
#include <vector>

#include "core/graph/graph.h"

namespace kerascnn {

// A group has the number of one of its nodes. The most frequent question, about nodes far apart, is
// answered without a search: a node of the loss' gradient depends on the forward pass by way of the
// longest chain of the graph. Other searches stay between the two groups, in an order of the groups
// that respects their dependencies and is kept while groups merge.
class GroupDependencies {
 public:
  explicit GroupDependencies(const Graph& graph);

  // Makes the node a group of its own. Nodes come in the order of the graph, each once.
  void add(int32_t node);
  int32_t group_of(int32_t node) const { return group_of_[node]; }

  // Does `group` depend on `target` through at least one other group?
  bool depends_on(int32_t group, int32_t target);
  // Moves the nodes of `other` into `group`. Neither may depend on the other through another group.
  void merge(int32_t group, int32_t other);

  // How many groups all searches have come to.
  int64_t num_visited() const { return num_visited_; }

 private:
  struct Group {
    std::vector<int32_t> members;
    std::vector<int32_t> producers;  // nodes that the members read, members included
    int32_t place = 0;               // in order_
    int32_t first_on_chain = 0;      // the first that depends on the group, or is in it
    int32_t last_on_chain = 0;       // the last that the group depends on, or is in it
  };

  void find_chain();
  bool is_between(int32_t place_on_chain, int32_t group, int32_t target) const;
  bool depends_by_chain(int32_t group, int32_t target) const;
  bool search(int32_t group, int32_t target);

  const Graph& graph_;
  std::vector<int32_t> group_of_;        // by node; -1 before it was added
  std::vector<Group> groups_;            // by number
  std::vector<int32_t> order_;           // groups after all that they depend on; -1 where none is
  std::vector<int32_t> chain_;           // nodes, each of which reads the one before
  std::vector<int32_t> first_on_chain_;  // by node, as in Group
  std::vector<int32_t> last_on_chain_;
  std::vector<int32_t> found_;  // by the last search
  std::vector<uint32_t> seen_;  // by group: the last search that came by
  uint32_t search_ = 0;
  int64_t num_visited_ = 0;
};

}  // namespace kerascnn
