// Which element ops of a graph run together. Used by the fusion pass.
#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "core/graph/passes/rewriter.h"

namespace kerascnn {

// Grows groups node by node in the order of the graph. Each node joins the groups that compute its
// operands, and small nodes also groups that they don't depend on, since a launch costs more than
// their arithmetic; but not where one would have to wait for kernels that only the other has to do
// with, such as a step counter for the optimizer that reads it, which would hold up the next step.
// A group never depends on itself through nodes outside, so all groups and the
// other nodes can be put in order.
class ElementGroups {
 public:
  explicit ElementGroups(const RootedGraph& rooted);

  // Units in an order that respects what depends on what. A unit is a group, or a node by itself;
  // its nodes are in the graph's order.
  std::vector<std::vector<int32_t>> ordered_units() const;

 private:
  void place(int32_t node);
  void find_readers_before_writers(const RootedGraph& rooted);
  bool try_merge(int32_t group, int32_t other);
  bool adds_waiting(int32_t group, int32_t other);
  bool fits_limits(const std::vector<int32_t>& members) const;
  bool has_producers(int32_t group) const;
  bool depends_on(int32_t group, int32_t target);
  template <typename Visit>
  void visit_producers(int32_t group, const Visit& visit) const;
  bool is_candidate(const Node& node) const;

  const Graph& graph_;
  Readers readers_;
  std::vector<int32_t> group_of_;              // by node; every node has one once it is placed
  std::vector<std::vector<int32_t>> members_;  // by group; empty where it was merged into another
  std::vector<bool> is_element_;               // by node: may it share a group?
  // By node: the others that read the variable that it overwrites, and run before it.
  std::vector<std::vector<int32_t>> runs_after_;
  std::map<Shape, std::vector<int32_t>> recent_;  // nodes by shape, the latest last
  std::vector<uint32_t> seen_;                    // by group: the last search that came by
  uint32_t search_ = 0;
  size_t max_visited_;
};

}  // namespace kerascnn
