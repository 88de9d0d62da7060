// These tests check memory plans by brute force: they follow who owns which block at any time.
#include <algorithm>
#include <map>

#include "check.h"
#include "core/graph/memory_plan.h"
#include "core/graph/passes/passes.h"
#include "core/graph/schedule.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::RandomGraph;

std::vector<BufferLifetime> random_buffers(unsigned seed, size_t count) {
  std::mt19937 random(seed);
  std::vector<BufferLifetime> buffers;
  for (size_t i = 0; i < count; ++i) {
    const auto first = static_cast<int64_t>(random() % count);
    const auto bytes = static_cast<int64_t>(random() % 8 == 0 ? 0 : random() % 5000);
    buffers.push_back({bytes, first, first + static_cast<int64_t>(random() % 12)});
  }
  return buffers;
}

void check_plan(const std::vector<BufferLifetime>& buffers, const MemoryPlan& plan, size_t window) {
  CHECK_EQUAL(plan.offsets.size(), buffers.size());
  std::vector<size_t> order(buffers.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return buffers[a].first < buffers[b].first; });
  for (size_t i = 0; i < order.size(); ++i) {
    const BufferLifetime& a = buffers[order[i]];
    const int64_t a_offset = plan.offsets[order[i]];
    CHECK_EQUAL(a_offset % kBufferAlignment, 0);
    CHECK(a_offset >= 0 && a_offset + a.bytes <= plan.bytes);
    for (size_t j = i + 1; j < std::min(order.size(), i + window); ++j) {
      const BufferLifetime& b = buffers[order[j]];
      if (b.first > a.last || a.bytes == 0 || b.bytes == 0) continue;
      const int64_t b_offset = plan.offsets[order[j]];
      CHECK(a_offset + a.bytes <= b_offset || b_offset + b.bytes <= a_offset);
    }
  }
}

// Runs a schedule on blocks that remember which value they hold instead of its data.
class MemorySimulation {
 public:
  explicit MemorySimulation(const RootedGraph& rooted) : schedule_(make_schedule(rooted)) {
    std::vector<int64_t> workspaces;
    for (size_t i = 0; i < schedule_.order.size(); ++i) workspaces.push_back(i % 3 == 0 ? 300 : 0);
    buffers_ = plan_buffers(schedule_, workspaces);
    memory_ = plan_memory(buffers_.buffers);
    arena_.assign(static_cast<size_t>(memory_.bytes / kBufferAlignment), kGarbage);
    const Graph& graph = schedule_.graph;
    for (size_t id = 0; id < graph.values().size(); ++id) {
      const Value& value = graph.values()[id];
      if (value.kind == ValueKind::State) states_[value.source] = static_cast<ValueId>(id);
    }
  }

  void check() {
    for (size_t position = 0; position < schedule_.order.size(); ++position) step(position);
    for (ValueId output : schedule_.outputs) {
      CHECK(schedule_.home_states[root(output)] < 0);
      check_holds(root(output));
    }
    for (size_t id = 0; id < schedule_.home_states.size(); ++id) {
      if (schedule_.home_states[id] >= 0) check_holds(static_cast<ValueId>(id));
    }
  }

  size_t num_homes() const {
    return static_cast<size_t>(std::count_if(schedule_.home_states.begin(),
                                             schedule_.home_states.end(),
                                             [](int32_t state) { return state >= 0; }));
  }
  const Schedule& schedule() const { return schedule_; }

 private:
  static constexpr ValueId kGarbage = -2;

  ValueId root(ValueId id) const { return schedule_.roots[id]; }

  void step(size_t position) {
    const Node& node = schedule_.graph.nodes()[schedule_.order[position]];
    for (ValueId input : node.inputs) check_holds(root(input));
    std::vector<InPlace> pairs;
    if (node.op->in_place != nullptr) {
      pairs = node.op->in_place(node.attributes, node.inputs.size());
    }
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (place(node.outputs[o]) != place(root(node.inputs[i]))) continue;
        CHECK(std::any_of(pairs.begin(), pairs.end(), [&](const InPlace& pair) {
          return pair.output == o && pair.input == i;
        }));
        CHECK(schedule_.graph.value(node.inputs[i]).spec ==
              schedule_.graph.value(node.outputs[o]).spec);
      }
    }
    fill_buffer(buffers_.workspace_buffers[position], kGarbage);
    for (ValueId output : node.outputs) write(output);
    for (ValueId output : node.outputs) check_holds(output);
    const int32_t workspace = buffers_.workspace_buffers[position];
    if (workspace != kNoBuffer) check_buffer(workspace, kGarbage);
  }

  // A number for the memory of a root value: first come states, then buffers. A value that nothing
  // writes gets a number of its own.
  int64_t place(ValueId id) const {
    const Value& value = schedule_.graph.value(id);
    if (value.kind == ValueKind::State) return value.source;
    if (value.kind != ValueKind::Result) return -1 - id;
    if (schedule_.home_states[id] >= 0) return schedule_.home_states[id];
    return 1000 + buffers_.value_buffers[id];
  }

  void write(ValueId id) {
    const int32_t state = schedule_.home_states[id];
    if (state >= 0) {
      states_[state] = id;
    } else {
      CHECK(buffers_.value_buffers[id] != kNoBuffer);
      fill_buffer(buffers_.value_buffers[id], id);
    }
  }

  void check_holds(ValueId id) {
    const Value& value = schedule_.graph.value(id);
    if (value.kind == ValueKind::State) return CHECK_EQUAL(states_.at(value.source), id);
    if (value.kind != ValueKind::Result) return;
    if (schedule_.home_states[id] >= 0) {
      return CHECK_EQUAL(states_.at(schedule_.home_states[id]), id);
    }
    check_buffer(buffers_.value_buffers[id], id);
  }

  void check_buffer(int32_t buffer, ValueId owner) const {
    for (int64_t block = first_block(buffer); block < end_block(buffer); ++block) {
      CHECK_EQUAL(arena_[static_cast<size_t>(block)], owner);
    }
  }

  void fill_buffer(int32_t buffer, ValueId owner) {
    if (buffer == kNoBuffer) return;
    std::fill(arena_.begin() + first_block(buffer), arena_.begin() + end_block(buffer), owner);
  }

  int64_t first_block(int32_t buffer) const { return memory_.offsets[buffer] / kBufferAlignment; }
  int64_t end_block(int32_t buffer) const {
    const int64_t bytes = align_buffer(buffers_.buffers[buffer].bytes);
    return first_block(buffer) + bytes / kBufferAlignment;
  }

  Schedule schedule_;
  BufferPlan buffers_;
  MemoryPlan memory_;
  std::vector<ValueId> arena_;         // who owns each block
  std::map<int32_t, ValueId> states_;  // which value each variable's memory holds
};

TEST(planned_buffers_never_overlap) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const std::vector<BufferLifetime> buffers = random_buffers(seed, 200);
    check_plan(buffers, plan_memory(buffers), buffers.size());
  }
}

TEST(planned_buffers_never_overlap_in_long_programs) {
  const std::vector<BufferLifetime> buffers = random_buffers(7, 20000);
  check_plan(buffers, plan_memory(buffers), 400);
}

TEST(the_smallest_buffers_share_with_none) {
  const std::vector<BufferLifetime> buffers = {{1000, 0, 0}, {0, 1, 1},    {10, 2, 3},
                                               {300, 4, 4},  {2000, 5, 5}, {1900, 6, 6}};
  // Three buffers need 256 + 512 + 1024 bytes side by side; the others live at different times.
  const MemoryPlan plan = plan_memory(buffers, 1800);
  CHECK((plan.offsets == std::vector<int64_t>{768, 0, 0, 256, 1792, 1792}));
  CHECK_EQUAL(plan.bytes, 1792 + 2048);
  CHECK_EQUAL(plan_memory(buffers, 1 << 20).bytes, 1792 + 2 * 2048);
  CHECK_EQUAL(plan_memory(buffers, 0).bytes, 2048);
  CHECK_EQUAL(plan_memory({}, 1 << 20).bytes, 0);
}

TEST(partly_shared_buffers_never_overlap) {
  for (int64_t unshared : {1, 5000, 50000, 1000000}) {
    const std::vector<BufferLifetime> buffers = random_buffers(3, 200);
    check_plan(buffers, plan_memory(buffers, unshared), buffers.size());
  }
}

TEST(a_chain_needs_the_memory_of_two_neighbours) {
  for (int64_t length : {100, 10000}) {
    std::vector<BufferLifetime> chain;
    for (int64_t i = 0; i < length; ++i) chain.push_back({1000, i, i + 1});
    CHECK_EQUAL(plan_memory(chain).bytes, 2 * 1024);
  }
}

TEST(an_empty_plan_needs_nothing) {
  CHECK_EQUAL(plan_memory({}).bytes, 0);
  CHECK_EQUAL(plan_memory({{0, 0, 5}, {0, 2, 3}}).bytes, 0);
}

TEST(random_programs_read_only_what_was_written) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    MemorySimulation(RandomGraph(seed).rooted).check();
  }
}

TEST(random_optimized_programs_read_only_what_was_written) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    MemorySimulation(run_passes(RandomGraph(seed).rooted)).check();
  }
}

TEST(updates_are_written_into_the_variable) {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const VariablePtr weights = testing::make_variable("weights", {8}, 1.0f);
  const ValueId gradient = graph.input("gradient", testing::f32({8}));
  graph.assign(weights, testing::call(graph, "subtract", {graph.read(weights), gradient}));
  MemorySimulation simulation(rooted);
  simulation.check();
  CHECK_EQUAL(simulation.num_homes(), 1u);
  CHECK_EQUAL(simulation.schedule().order.size(), 1u);
}

TEST(a_late_reader_of_the_old_value_runs_before_the_update) {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const VariablePtr weights = testing::make_variable("weights", {8}, 1.0f);
  const ValueId old = graph.read(weights);
  graph.assign(weights, testing::call(graph, "tanh", {old}));
  rooted.outputs = {testing::call(graph, "square", {old})};
  MemorySimulation simulation(rooted);
  simulation.check();
  CHECK(simulation.schedule().order == (std::vector<int32_t>{1, 0}));
}

TEST(a_reader_that_needs_the_update_gets_a_copy) {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const VariablePtr weights = testing::make_variable("weights", {8}, 1.0f);
  const ValueId old = graph.read(weights);
  const ValueId updated = testing::call(graph, "tanh", {old});
  graph.assign(weights, updated);
  rooted.outputs = {testing::call(graph, "subtract", {updated, old})};
  MemorySimulation simulation(rooted);
  simulation.check();
  CHECK_EQUAL(testing::count_nodes(simulation.schedule().graph, "cast"), 1u);
}

}  // namespace
}  // namespace kerascnn
