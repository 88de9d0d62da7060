// The pass that joins small sums over processes.
#include <numeric>

#include "check.h"
#include "core/graph/passes/passes.h"
#include "fusion_testing.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::call;
using testing::count_nodes;
using testing::f32;

// Values of one process, so that a sum is a product with its factor.
struct Step {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  ValueId x = graph.input("x", f32({6, 3}));
  ValueId large = graph.input("large", f32({300, 300}));  // 360,000 bytes

  ValueId sum(ValueId value, double factor = 0.5, bool joins = true) {
    const Attributes attributes = {
        {"processes", int64_t{1}}, {"scale", 1.0}, {"factor", factor}, {"joins", joins}};
    return call(graph, "all_reduce", {value}, attributes);
  }
  ValueId square(ValueId value) { return call(graph, "multiply", {value, value}); }
  void needs(ValueId value) { rooted.outputs.push_back(value); }

  // Checks the results, and returns how many sums are left.
  size_t joined() {
    const RootedGraph result = join_sums(rooted);
    testing::check_same_results(rooted, result);
    return count_nodes(result.graph, "all_reduce");
  }
};

TEST(sums_of_all_layers_go_in_one_message) {
  Step s;
  ValueId layer = s.x;
  for (int i = 0; i < 5; ++i) {
    layer = s.square(layer);
    s.needs(s.square(s.sum(layer)));  // what reads a sum comes behind the message
  }
  s.needs(layer);
  CHECK_EQUAL(s.joined(), 1u);
}

TEST(a_sum_of_a_sum_is_another_message) {
  Step s;
  const ValueId first = s.sum(s.x);
  const ValueId beside = s.sum(s.square(s.x));
  const ValueId second = s.sum(s.square(first));
  s.needs(second);
  s.needs(s.sum(s.square(beside)));
  s.needs(s.sum(s.square(s.square(s.x))));
  CHECK_EQUAL(s.joined(), 2u);
}

TEST(sums_with_other_factors_wait_for_nothing_of_their_own) {
  Step s;
  // Halves and quarters take turns, and each needs the one before: nothing can be joined.
  ValueId value = s.x;
  for (int i = 0; i < 4; ++i) value = s.square(s.sum(value, i % 2 == 0 ? 0.5 : 0.25));
  s.needs(value);
  CHECK_EQUAL(s.joined(), 4u);
  // Those that need nothing of one another are one message for each factor.
  for (int i = 0; i < 4; ++i) s.needs(s.sum(s.square(s.x), i % 2 == 0 ? 3.0 : 5.0));
  CHECK_EQUAL(s.joined(), 6u);
}

TEST(crossing_sums_do_not_wait_for_one_another) {
  Step s;
  const ValueId half = s.sum(s.x, 0.5);
  const ValueId quarter = s.sum(s.square(s.x), 0.25);
  s.needs(s.sum(s.square(quarter), 0.5));
  s.needs(s.sum(s.square(half), 0.25));
  CHECK_EQUAL(s.joined(), 4u);
}

TEST(only_calls_that_may_be_joined_are) {
  Step s;
  for (int i = 0; i < 3; ++i) s.needs(s.sum(s.square(s.x), 0.5, false));
  CHECK_EQUAL(s.joined(), 3u);
  for (int i = 0; i < 3; ++i) s.needs(s.sum(s.square(s.x)));
  CHECK_EQUAL(s.joined(), 4u);
}

TEST(large_messages_stay_apart) {
  Step s;
  s.needs(s.sum(s.large));
  s.needs(s.sum(s.square(s.large)));
  s.needs(s.sum(s.x));
  CHECK_EQUAL(s.joined(), 3u);
}

TEST(small_ones_fill_several_messages) {
  Step s;
  const ValueId part = s.graph.input("part", f32({100, 300}));  // 120,000 bytes, two a message
  for (int i = 0; i < 5; ++i)
    s.needs(s.sum(call(s.graph, "add", {part, s.graph.full(f32({}), i)})));
  CHECK_EQUAL(s.joined(), 3u);
}

}  // namespace
}  // namespace kerascnn
