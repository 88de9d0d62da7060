// Decides the order of a graph's kernels and which of them write straight into a variable's memory.
#pragma once

#include <cstdint>
#include <vector>

#include "core/graph/memory_plan.h"
#include "core/graph/rooted_graph.h"

namespace kerascnn {

// For each value: the value whose memory it has, which is another one for results of view ops.
std::vector<ValueId> find_roots(const Graph& graph);

struct Schedule {
  // The graph, with copies added where a variable or an output needs one; every output is the
  // result of a kernel, and no output shares memory with a variable or an input.
  Graph graph;
  std::vector<ValueId> outputs;
  std::vector<ValueId> roots;  // as find_roots gives them
  // Nodes in order of execution; views are left out.
  std::vector<int32_t> order;
  // For each value: the state in whose memory a kernel computes it, or -1.
  std::vector<int32_t> home_states;
};

Schedule make_schedule(const RootedGraph& rooted);

constexpr int32_t kNoBuffer = -1;

struct BufferPlan {
  std::vector<BufferLifetime> buffers;
  std::vector<int32_t> value_buffers;  // by root value; kNoBuffer for what is not in the arena
  std::vector<int32_t>
      workspace_buffers;  // by position in the order; kNoBuffer where there is none
};

// Gives each result a buffer and its lifetime; a result takes over an input's buffer where the op
// allows it and nothing reads that input later. Optional outputs that nothing reads get no buffer.
BufferPlan plan_buffers(const Schedule& schedule, const std::vector<int64_t>& workspace_bytes);

}  // namespace kerascnn
