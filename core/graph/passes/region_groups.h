// Which nodes of a graph run together as one region. Used by the pass form_regions.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "core/backend/backend.h"
#include "core/graph/passes/group_dependencies.h"
#include "core/graph/passes/rewriter.h"
#include "core/graph/region.h"

namespace kerascnn {

using FindRegionLimits = std::function<RegionLimits(const Shape& domain)>;

// Of a reduction of a value of this shape over axes that are not the last ones: those that it
// leaves, where a region of columns takes it.
std::optional<ColumnAxes> summed_columns(const Node& node, const Shape& shape);

// A group of nodes, or one node by itself.
struct RegionGroup {
  std::vector<int32_t> members;  // in the graph's order; empty where it was merged into another
  RegionKind kind = RegionKind::Map;
  Shape domain;
  int64_t columns = 1;        // of Region
  int64_t outer = 1;          // of Region
  bool is_candidate = false;  // may it be a region? Else it is a node of another kind
};

// Grows groups node by node in the order of the graph. Each element op joins the groups that
// compute its operands, and small ones also groups that they don't depend on, since a launch costs
// more than their arithmetic; but not where one would have to wait for kernels that only the other
// has to do with, such as a step counter for the optimizer that reads it, which would hold up the
// next step. Reductions over the last axes join in the same way and make a group one of kind rows.
// When all nodes have their groups, reductions over columns join those of their operands, and what
// is computed again for the backward pass (recompute_activations) one that reads the same. A
// transpose that keeps stretches of memory together (is_read_in_stretches) joins what reads its
// result.
//
// A group never depends on itself through nodes outside, nor on its own sums of columns, so all
// groups and the other nodes can be put in order.
class RegionGroups {
 public:
  RegionGroups(const RootedGraph& rooted, FindRegionLimits find_limits);

  // In an order that respects what depends on what.
  std::vector<RegionGroup> ordered() const;

 private:
  // What a node is in the group that it is a member of. Readings are transposes, and reshapes of
  // them, that the group reads its inputs through.
  enum class Role : uint8_t { None, Element, Reading, Row, RowReduction, ColumnSum };

  void place(int32_t node);
  Role role_of(const Node& node) const;
  void join_operands(int32_t node);
  bool join_as_row(int32_t node);
  void join_transpose(int32_t reshape);
  void join_readers(int32_t node);
  bool leaves_regions(int32_t group) const;
  void join_recent(int32_t node);
  void join_sums(int32_t node);
  void join_later_sums(int32_t node);
  void find_readers_before_writers(const RootedGraph& rooted);
  bool try_merge(int32_t group, int32_t other);
  std::optional<RegionGroup> merged(const RegionGroup& a, const RegionGroup& b) const;
  int32_t group_of_row(ValueId id) const;
  bool may_be_operand(ValueId input, const Shape& domain) const;
  bool adds_waiting(int32_t group, int32_t other);
  bool fits_limits(const RegionGroup& group) const;
  bool may_read(int32_t group, int32_t other) const;
  bool has_producers(int32_t group) const;
  std::vector<std::vector<int32_t>> find_successors() const;
  std::vector<int32_t> sorted(const std::vector<std::vector<int32_t>>& successors,
                              const std::vector<int32_t>& places) const;
  template <typename Visit>
  void visit_producers(int32_t group, const Visit& visit) const;
  const RegionLimits& limits(const Shape& domain) const;
  int32_t group_of(int32_t node) const { return dependencies_.group_of(node); }
  const Shape& shape(ValueId id) const { return graph_.value(id).spec.shape; }

  const Graph& graph_;
  Readers readers_;
  FindRegionLimits find_limits_;
  mutable std::map<Shape, RegionLimits> limits_;  // as they were found
  GroupDependencies dependencies_;
  std::vector<RegionGroup> groups_;
  std::vector<Role> roles_;  // by node
  // By node: the others that read the variable that it overwrites, and run before it.
  std::vector<std::vector<int32_t>> runs_after_;
  std::map<Shape, std::vector<int32_t>> recent_;  // nodes by shape, the latest last
  std::map<int32_t, int32_t> sums_of_results_;    // by node the first sum of one of its results
};

}  // namespace kerascnn
