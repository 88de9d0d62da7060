// LoopSizes decides how many steps each turn of a loop on the device runs.
#include "check.h"
#include "core/backend/loop_sizes.h"

namespace kerascnn {
namespace {

using Runs = std::vector<LoopRun>;

int64_t steps_of(const Runs& runs) {
  int64_t steps = 0;
  for (const LoopRun& run : runs) steps += run.size * run.turns;
  return steps;
}

int64_t turns_of(const Runs& runs) {
  int64_t turns = 0;
  for (const LoopRun& run : runs) turns += run.turns;
  return turns;
}

}  // namespace

TEST(all_steps_are_run_and_no_turn_is_too_large) {
  for (int64_t most : {4, 5, 32, 64}) {
    LoopSizes sizes(most);
    for (int64_t steps = 1; steps < 700; ++steps) {
      for (int again = 0; again < 2; ++again) {
        const Runs runs = sizes.plan(steps);
        CHECK_EQUAL(steps_of(runs), steps);
        CHECK(!runs.empty() && runs.size() <= 8);
        for (size_t i = 0; i < runs.size(); ++i) {
          CHECK(runs[i].size >= 1 && runs[i].size <= most && runs[i].turns >= 1);
          CHECK(i == 0 || runs[i].size < runs[i - 1].size);
        }
      }
    }
  }
}

TEST(many_steps_get_large_turns_at_once) {
  LoopSizes sizes(64);
  const Runs runs = sizes.plan(312);
  CHECK((runs == Runs{{52, 6}}));
  CHECK((sizes.plan(313) == Runs{{52, 6}, {1, 1}}));
}

TEST(few_steps_get_a_size_when_they_come_again) {
  LoopSizes sizes(64);
  CHECK((sizes.plan(1) == Runs{{1, 1}}));
  CHECK((sizes.plan(10) == Runs{{1, 10}}));
  CHECK((sizes.plan(10) == Runs{{10, 1}}));
  // A single step that is left over gets no size of its own.
  for (int i = 0; i < 5; ++i) CHECK((sizes.plan(11) == Runs{{10, 1}, {1, 1}}));
}

TEST(what_an_epoch_leaves_over_gets_a_size_too) {
  LoopSizes sizes(32);
  const int64_t first = turns_of(sizes.plan(929));  // the first epoch begins with a few steps
  CHECK_EQUAL(first, 30);
  CHECK((sizes.plan(937) == Runs{{32, 29}, {9, 1}}));
  CHECK((sizes.plan(937) == Runs{{32, 29}, {9, 1}}));
}

TEST(powers_of_two_get_along_with_few_sizes) {
  LoopSizes sizes(51);
  for (int round = 0; round < 4; ++round) {
    for (int64_t steps : {1, 2, 4, 8, 16}) sizes.plan(steps);
  }
  for (int64_t steps : {1, 2, 4, 8, 16}) CHECK(turns_of(sizes.plan(steps)) <= 3);
}

}  // namespace kerascnn
