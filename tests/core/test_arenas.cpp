// The tests ask which programs get several arenas for the intermediate results of their steps. The
// kernels do nothing.
#include "check.h"
#include "core/graph/arenas.h"

namespace kerascnn {
namespace {

class NoKernel : public Kernel {
 public:
  void run(const KernelArgs&) override {}
  std::string description() const override { return "nothing"; }
};

constexpr int64_t kArenaBytes = 4096;
char variables[4096];
char memory_of_two[2 * kArenaBytes];

// Small letters are variables, and capital letters are intermediate results. A variable has 16
// bytes, and an intermediate result has `bytes`.
Instruction instruction(int64_t arena, std::string_view reads, std::string_view writes,
                        int64_t bytes) {
  const auto range = [&](char letter) {
    const bool is_variable = letter >= 'a';
    return MemoryRange{is_variable ? variables + 16 * (letter - 'a')
                                   : memory_of_two + arena * kArenaBytes + 128 * (letter - 'A'),
                       is_variable ? 16 : bytes};
  };
  Instruction result;
  result.kernel = std::make_shared<NoKernel>();
  for (char letter : reads) result.reads.push_back(range(letter));
  for (char letter : writes) result.writes.push_back(range(letter));
  return result;
}

double share(const std::vector<std::pair<std::string_view, std::string_view>>& step,
             int64_t bytes = 128) {
  ArenaSteps arenas(2);
  for (int64_t arena = 0; arena < 2; ++arena) {
    for (const auto& [reads, writes] : step) {
      arenas[static_cast<size_t>(arena)].push_back(instruction(arena, reads, writes, bytes));
    }
  }
  return independent_share(arenas, {memory_of_two, kArenaBytes});
}

}  // namespace

TEST(steps_of_a_prediction_are_independent_but_for_their_counters) {
  // The step takes a batch by the counter n, runs two layers with the weights w and v, and stores
  // the output by the counter p.
  const double found =
      share({{"n", "A"}, {"Aw", "B"}, {"Bv", "C"}, {"oCp", "o"}, {"n", "n"}, {"p", "p"}});
  // Intermediate results are touched six times; the first and the last time depend on a counter.
  CHECK_EQUAL(found, 4.0 / 6.0);
}

TEST(steps_of_a_training_hang_on_the_weights) {
  const double found =
      share({{"n", "A"}, {"Aw", "B"}, {"B", "C"}, {"ACw", "w"}, {"n", "n"}, {"Bm", "m"}});
  CHECK(found < 0.2);  // only the metric's sum is independent of the step before
}

TEST(frozen_layers_before_trained_ones_are_independent) {
  // Two layers have weights f that do not change; the last layer is trained.
  const double found =
      share({{"n", "A"}, {"Af", "B"}, {"Bf", "C"}, {"Cw", "D"}, {"CDw", "w"}, {"n", "n"}});
  // The independent ones are those of the two frozen layers: each reads one result and writes one.
  CHECK_EQUAL(found, 4.0 / 9.0);
}

TEST(arenas_are_chosen_where_half_of_a_step_is_independent) {
  const auto steps = [](std::string_view weights) {
    ArenaSteps result(2);
    for (int64_t arena = 0; arena < 2; ++arena) {
      auto& step = result[static_cast<size_t>(arena)];
      step = {instruction(arena, "n", "A", 128), instruction(arena, "Aw", "B", 128),
              instruction(arena, "B", weights, 128), instruction(arena, "n", "n", 128)};
    }
    return result;
  };
  const MemoryRange memory = {memory_of_two, kArenaBytes};
  CHECK_EQUAL(choose_arenas(steps("m"), memory, 8), 8);
  CHECK_EQUAL(choose_arenas(steps("m"), memory, 1), 1);
  CHECK_EQUAL(choose_arenas(steps("w"), memory, 8), 1);  // the next step needs what this one wrote
  CHECK_EQUAL(choose_arenas(ArenaSteps{{}, {}}, memory, 8), 1);
}

TEST(steps_that_touch_no_memory_of_their_own_have_no_share) {
  CHECK_EQUAL(share({{"n", "n"}}), 0.0);
}

}  // namespace kerascnn
