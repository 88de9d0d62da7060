// Which instructions have to wait for which follows from the memory that they touch. Instructions
// here run nothing, and letters stand for memory.
#include <algorithm>
#include <numeric>
#include <random>

#include "check.h"
#include "core/backend/dependencies.h"

namespace kerascnn {
namespace {

class NoKernel : public Kernel {
 public:
  explicit NoKernel(bool keeps_state = false, bool meets_processes = false)
      : keeps_state_(keeps_state), meets_processes_(meets_processes) {}
  void run(const KernelArgs&) override {}
  bool keeps_state() const override { return keeps_state_; }
  bool meets_processes() const override { return meets_processes_; }
  std::string description() const override { return "nothing"; }

 private:
  bool keeps_state_;
  bool meets_processes_;
};

char memory[4096];

// The 16 bytes that the letter stands for.
MemoryRange range(char letter) { return {memory + 16 * letter, 16}; }

Instruction instruction(std::string_view reads, std::string_view writes) {
  Instruction result;
  result.kernel = std::make_shared<NoKernel>();
  for (char letter : reads) result.reads.push_back(range(letter));
  for (char letter : writes) result.writes.push_back(range(letter));
  return result;
}

using List = std::vector<Instruction>;

// Compares every pair by itself. This is what Dependencies means, with all transitive pairs, and
// slow.
bool must_wait(const Instruction& later, const Instruction& earlier) {
  const auto meets = [](const std::vector<MemoryRange>& a, const std::vector<MemoryRange>& b) {
    for (const MemoryRange& x : a) {
      for (const MemoryRange& y : b) {
        if (x.data == nullptr || y.data == nullptr || x.bytes == 0 || y.bytes == 0) continue;
        const auto* first = static_cast<const char*>(x.data);
        const auto* second = static_cast<const char*>(y.data);
        if (first < second + y.bytes && second < first + x.bytes) return true;
      }
    }
    return false;
  };
  const bool is_state_shared = later.kernel == earlier.kernel && later.kernel->keeps_state();
  const bool both_meet = later.kernel->meets_processes() && earlier.kernel->meets_processes();
  return is_state_shared || both_meet || meets(later.reads, earlier.writes) ||
         meets(later.writes, earlier.writes) || meets(later.writes, earlier.reads);
}

using Matrix = std::vector<std::vector<bool>>;

// All instructions that come before each instruction, directly or not.
Matrix closure(const Dependencies& direct) {
  Matrix before(direct.size(), std::vector<bool>(direct.size(), false));
  for (size_t i = 0; i < direct.size(); ++i) {
    for (int32_t predecessor : direct[i]) {
      before[i][predecessor] = true;
      for (size_t j = 0; j < i; ++j) {
        if (before[predecessor][j]) before[i][j] = true;
      }
    }
  }
  return before;
}

void check_against_pairs(const ArenaSteps& arenas, int64_t repeats) {
  const Dependencies found = find_dependencies(arenas, repeats);
  const size_t count = arenas[0].size() * static_cast<size_t>(repeats);
  CHECK_EQUAL(found.size(), count);
  Dependencies all(count);
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (must_wait(instruction_at(arenas, repeats, static_cast<int64_t>(i)),
                    instruction_at(arenas, repeats, static_cast<int64_t>(j)))) {
        all[i].push_back(static_cast<int32_t>(j));
      }
    }
  }
  const Matrix before = closure(found);
  CHECK(before == closure(all));
  // None is superfluous: no direct predecessor comes before another one.
  for (const std::vector<int32_t>& predecessors : found) {
    CHECK(std::is_sorted(predecessors.begin(), predecessors.end()));
    for (int32_t first : predecessors) {
      for (int32_t second : predecessors) CHECK(!before[second][first]);
    }
  }
}

}  // namespace

TEST(each_of_a_chain_waits_for_the_one_before) {
  const List list = {instruction("x", "a"), instruction("a", "b"), instruction("ab", "c")};
  CHECK((find_dependencies(list, 1) == Dependencies{{}, {0}, {1}}));
  CHECK_EQUAL(longest_chain(find_dependencies(list, 1)), 3);
}

TEST(the_sides_of_a_diamond_run_side_by_side) {
  const List list = {instruction("x", "a"), instruction("a", "b"), instruction("a", "c"),
                     instruction("bc", "d")};
  const Dependencies found = find_dependencies(list, 1);
  CHECK((found == Dependencies{{}, {0}, {0}, {1, 2}}));
  CHECK_EQUAL(longest_chain(found), 3);
}

TEST(instructions_that_share_nothing_wait_for_nothing) {
  const List list = {instruction("x", "a"), instruction("x", "b"), instruction("x", "c")};
  const Dependencies found = find_dependencies(list, 1);
  CHECK((found == Dependencies{{}, {}, {}}));
  CHECK((find_leaves(found) == std::vector<int32_t>{0, 1, 2}));
}

TEST(memory_is_written_again_only_after_it_was_read) {
  // Two instructions read b before it is used again for other values.
  const List list = {instruction("x", "b"), instruction("b", "c"), instruction("b", "d"),
                     instruction("y", "b"), instruction("y", "b")};
  CHECK((find_dependencies(list, 1) == Dependencies{{}, {0}, {0}, {1, 2}, {3}}));
}

TEST(parts_of_a_range_count) {
  Instruction whole = instruction("", "");
  whole.writes = {{memory, 64}};
  Instruction reader = instruction("", "");
  reader.reads = {{memory + 48, 32}};
  Instruction neighbour = instruction("", "");
  neighbour.writes = {{memory + 64, 16}};
  Instruction beyond = instruction("", "");
  beyond.reads = {{memory + 80, 16}};
  CHECK((find_dependencies(List{whole, reader, neighbour, beyond}, 1) ==
         Dependencies{{}, {0}, {1}, {}}));
}

TEST(what_is_updated_in_place_waits_for_its_readers_and_is_waited_for) {
  // Two instructions read w, a third updates it in place, and a fourth reads it then.
  const List list = {instruction("w", "a"), instruction("w", "b"), instruction("wa", "w"),
                     instruction("w", "c")};
  CHECK((find_dependencies(list, 1) == Dependencies{{}, {}, {0, 1}, {2}}));
}

TEST(workspaces_and_states_that_only_get_written_keep_their_order) {
  const List list = {instruction("x", "aw"), instruction("y", "bw"), instruction("z", "cw")};
  CHECK((find_dependencies(list, 1) == Dependencies{{}, {0}, {1}}));
}

TEST(steps_overlap_where_they_share_nothing) {
  // The step takes a batch (by the counter), runs forward, computes the gradient, updates the
  // weights, and counts.
  const List step = {instruction("n", "x"), instruction("xw", "y"), instruction("xy", "g"),
                     instruction("gw", "w"), instruction("n", "n")};
  const Dependencies found = find_dependencies(step, 2);
  CHECK((found == Dependencies{{}, {0}, {1}, {2}, {0}, {2, 4}, {3, 5}, {6}, {7}, {5}}));
  // The counter and the next batch do not wait for the update.
  CHECK_EQUAL(longest_chain(found), 7);
  CHECK((find_leaves(found) == std::vector<int32_t>{8, 9}));
}

TEST(runs_of_one_kernel_object_keep_their_order_if_it_keeps_state) {
  List list = {instruction("x", "a"), instruction("y", "b")};
  list[1].kernel = list[0].kernel;
  CHECK((find_dependencies(list, 2) == Dependencies{{}, {}, {0}, {1}}));
  list[0].kernel = list[1].kernel = std::make_shared<NoKernel>(true);
  CHECK((find_dependencies(list, 2) == Dependencies{{}, {0}, {1}, {2}}));
}

TEST(processes_meet_in_the_order_of_the_list) {
  List list = {instruction("x", "a"), instruction("y", "b"), instruction("z", "c")};
  list[0].kernel = std::make_shared<NoKernel>(false, true);
  list[2].kernel = std::make_shared<NoKernel>(false, true);
  CHECK((find_dependencies(list, 2) == Dependencies{{}, {}, {0}, {2}, {1}, {3}}));
}

TEST(the_last_step_is_in_the_first_lane_and_neighbours_are_in_different_ones) {
  for (size_t arenas = 1; arenas < 6; ++arenas) {
    for (int64_t steps = 1; steps < 20; ++steps) {
      CHECK_EQUAL(arena_of(steps - 1, steps, arenas), 0u);
      for (int64_t step = 0; step + 1 < steps; ++step) {
        const size_t arena = arena_of(step, steps, arenas);
        CHECK(arena < arenas);
        CHECK_EQUAL(arena, (arena_of(step + 1, steps, arenas) + 1) % arenas);
      }
    }
  }
}

TEST(steps_in_different_arenas_wait_only_for_variables) {
  // The step takes a batch (by the counter n), runs forward (with the weights w), adds to the
  // metric m, and counts.
  const auto step = [](std::string_view batch, std::string_view result) {
    return List{instruction("n", batch), instruction(std::string("w").append(batch), result),
                instruction(std::string("m").append(result), "m"), instruction("n", "n")};
  };
  const ArenaSteps arenas = {step("x", "y"), step("a", "b")};
  const Dependencies found = find_dependencies(arenas, 3);
  CHECK((found == Dependencies{{},
                               {0},
                               {1},
                               {0},
                               {3},  // in the other arena it waits for the counter alone
                               {4},
                               {2, 5},
                               {4},
                               // It takes the third batch into the arena of the first one, which
                               // was read by then.
                               {1, 7},
                               {2, 8},
                               {6, 9},
                               {8}}));
  CHECK_EQUAL(instruction_at(arenas, 3, 0).writes[0].data, range('x').data);
  CHECK_EQUAL(instruction_at(arenas, 3, 4).writes[0].data, range('a').data);
  CHECK_EQUAL(instruction_at(arenas, 3, 8).writes[0].data, range('x').data);
}

TEST(empty_and_missing_buffers_conflict_with_nothing) {
  Instruction first = instruction("", "a"), second = instruction("", "b");
  first.writes.push_back({nullptr, 64});
  second.writes.push_back({nullptr, 64});
  second.reads.push_back({memory + 16 * 'a' + 8, 0});
  CHECK((find_dependencies(List{first, second}, 1) == Dependencies{{}, {}}));
}

TEST(no_instructions_have_no_dependencies) {
  CHECK(find_dependencies(List{}, 8).empty());
  CHECK(find_dependencies(ArenaSteps{{}, {}}, 8).empty());
  CHECK(find_leaves({}).empty());
  CHECK_EQUAL(longest_chain({}), 0);
}

TEST(very_long_programs_are_chains) {
  const List list(static_cast<size_t>(kMaxBranchedInstructions), instruction("x", ""));
  const Dependencies found = find_dependencies(list, 2);
  CHECK(found == chain_dependencies(2 * kMaxBranchedInstructions));
  CHECK_EQUAL(longest_chain(found), 2 * kMaxBranchedInstructions);
}

TEST(dependencies_of_random_programs_are_those_of_their_pairs) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](unsigned count) { return static_cast<int64_t>(random() % count); };
    List list(1 + random() % 24);
    for (Instruction& item : list) {
      item = instruction("", "");
      for (int64_t i = below(4); i > 0; --i) item.reads.push_back({memory + below(400), below(40)});
      for (int64_t i = below(3); i > 0; --i) {
        item.writes.push_back({memory + below(400), below(40)});
      }
    }
    if (below(4) == 0) {
      list.back().kernel = list.front().kernel = std::make_shared<NoKernel>(below(2) == 0);
    }
    // The upper half of the memory is the arena, which lies at another place for each step.
    ArenaSteps arenas(1 + random() % 3, list);
    for (size_t arena = 1; arena < arenas.size(); ++arena) {
      const auto move = [&](std::vector<MemoryRange>& ranges) {
        for (MemoryRange& range : ranges) {
          const auto* data = static_cast<const char*>(range.data);
          if (data >= memory + 200) range.data = data + 500 * arena;
        }
      };
      for (Instruction& item : arenas[arena]) {
        move(item.reads);
        move(item.writes);
      }
    }
    check_against_pairs(arenas, 1 + below(4));
  }
}

TEST(random_orders_keep_dependencies_and_differ) {
  // b and c may change places, and each may change places with the other's next run.
  const List list = {instruction("", "a"), instruction("a", "b"), instruction("a", "c")};
  const Dependencies dependencies = find_dependencies(list, 2);
  std::mt19937 random(1);
  std::vector<std::vector<int32_t>> seen;
  for (int draw = 0; draw < 50; ++draw) {
    const std::vector<int32_t> order = random_order(dependencies, random);
    std::vector<size_t> place(order.size());
    for (size_t i = 0; i < order.size(); ++i) place[static_cast<size_t>(order[i])] = i;
    CHECK_EQUAL(order.size(), dependencies.size());
    for (size_t i = 0; i < dependencies.size(); ++i) {
      for (int32_t before : dependencies[i]) CHECK(place[static_cast<size_t>(before)] < place[i]);
    }
    if (std::find(seen.begin(), seen.end(), order) == seen.end()) seen.push_back(order);
  }
  CHECK(seen.size() > 1);
}

TEST(overwritten_memory_is_what_is_written_but_not_read) {
  Instruction item = instruction("ab", "bcd");
  item.writes.push_back({nullptr, 16});  // an output that nobody reads
  const std::vector<MemoryRange> found = overwritten_memory(item);
  CHECK_EQUAL(found.size(), 2u);
  CHECK(found[0].data == range('c').data);
  CHECK(found[1].data == range('d').data);
  // A part of c is read.
  item.reads.push_back({static_cast<const char*>(range('c').data) + 15, 1});
  CHECK_EQUAL(overwritten_memory(item).size(), 1u);
}

TEST(inputs_are_settled_that_nothing_still_running_writes) {
  Instruction item = instruction("abc", "d");
  item.inputs = {range('a').data, range('b').data, range('c').data};
  CHECK_EQUAL(settled_inputs(item, {}), 7u);
  const Instruction writes_b = instruction("x", "b"), writes_c = instruction("b", "yc"),
                    reads_a = instruction("a", "z");
  const std::vector<const Instruction*> one = {&writes_b}, two = {&writes_c, &writes_b},
                                        none = {&reads_a};
  CHECK_EQUAL(settled_inputs(item, one), 5u);
  CHECK_EQUAL(settled_inputs(item, two), 1u);
  CHECK_EQUAL(settled_inputs(item, none), 7u);
  // The first input is not the start of any range that is read, so nothing is known about it. An
  // input in two ranges is settled only if both are.
  item.inputs[0] = static_cast<const char*>(range('a').data) + 4;
  CHECK_EQUAL(settled_inputs(item, {}), 6u);
  item.inputs[0] = range('b').data;
  item.reads.push_back({range('b').data, 1});
  CHECK_EQUAL(settled_inputs(item, one), 4u);
}

TEST(each_instruction_knows_who_hangs_on_it_most) {
  // 0 -> 1 -> 3 -> 4 is the longest path; 2 is a short branch from 0 to 4, and 5 is a branch from
  // 3.
  const Dependencies dependencies = {{}, {0}, {0}, {1}, {2, 3}, {3}};
  CHECK(critical_successors(dependencies) == (std::vector<int32_t>{1, 3, 4, 4, -1, -1}));
  // Among equals the first is taken.
  CHECK(critical_successors({{}, {0}, {0}}) == (std::vector<int32_t>{1, -1, -1}));
  CHECK(critical_successors(chain_dependencies(4)) == (std::vector<int32_t>{1, 2, 3, -1}));
  CHECK(critical_successors({}).empty());
}

TEST(slack_is_what_the_longest_chain_leaves) {
  // The graph is the same: 2 could begin one kernel later, and 5 could begin as late as 4.
  const Dependencies dependencies = {{}, {0}, {0}, {1}, {2, 3}, {3}};
  CHECK(find_slack(dependencies) == (std::vector<int64_t>{0, 0, 1, 0, 0, 0}));
  // 3 waits for nothing, and nothing waits for it.
  CHECK(find_slack({{}, {0}, {1}, {}}) == (std::vector<int64_t>{0, 0, 0, 2}));
  CHECK(find_slack(chain_dependencies(3)) == (std::vector<int64_t>{0, 0, 0}));
  CHECK(find_slack({}).empty());
}

}  // namespace kerascnn
