// The matcher and the pass apply_fusions, with patterns made for the tests. The patterns
// of the backends are in test_fusion_patterns.cpp.
#include "core/graph/fusion.h"

#include <algorithm>
#include <random>
#include <string>

#include "check.h"
#include "core/graph/passes/passes.h"
#include "fusion_testing.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::call;
using testing::check_same_results;
using testing::count_nodes;
using testing::f32;

using testing::cuda_fusion;
using testing::fuse;
using testing::fused;
using testing::plan_body;

std::unique_ptr<Kernel> plan_nothing(const Match&) { return nullptr; }

const Attributes kSum = {{"axes", Shape{0}}, {"keepdims", false}};

// tanh(a b + c), with or without the sum.
void pattern_affine(Pattern& pattern) {
  const PatternValue a = pattern.input("a"), b = pattern.input("b");
  PatternValue y = a.call(op_matmul, {b}).as("product");
  if (pattern.has("sum")) y = y.call(op_add, {pattern.input("c")}).as("sum");
  pattern.output("y", y.call(op_tanh));
}
constexpr Fusion kAffine = {"affine", pattern_affine, plan_body};

const Attributes kPlain = {{"transpose_a", false}, {"transpose_b", false}};

struct Affine {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  ValueId a = graph.input("a", f32({5, 3})), b = graph.input("b", f32({3, 4}));
  ValueId c = graph.input("c", f32({5, 4}));
  ValueId product = call(graph, "matmul", {a, b}, kPlain);
};

// Other processes wait for it there.
TEST(a_sum_for_another_process_stays_beside_a_fusion) {
  Affine net;
  const Attributes attributes = {{"processes", int64_t{1}}, {"owners", Shape{0}}, {"factor", 1.0}};
  (void)call(net.graph, "reduce_to_owners", {net.c}, attributes);
  net.rooted.outputs = {call(net.graph, "tanh", {net.product})};
  const RootedGraph joined = fuse(net.rooted, kAffine);
  CHECK_EQUAL(count_nodes(joined.graph, "fused"), 1u);
  CHECK_EQUAL(count_nodes(joined.graph, "reduce_to_owners"), 1u);
}

TEST(operands_of_a_sum_are_found_in_either_order) {
  for (const bool first : {true, false}) {
    Affine net;
    const ValueId sum = first ? call(net.graph, "add", {net.product, net.c})
                              : call(net.graph, "add", {net.c, net.product});
    net.rooted.outputs = {call(net.graph, "tanh", {sum})};
    const RootedGraph joined = fuse(net.rooted, kAffine);
    CHECK_EQUAL(joined.graph.nodes().size(), 1u);
    const Node& node = joined.graph.nodes()[0];
    CHECK_EQUAL(node.attributes.get_string("fusion"), "affine");
    CHECK_EQUAL(node.attributes.get_string("ops"), "matmul+add+tanh");
    CHECK_EQUAL(node.inputs.size(), 3u);
    check_same_results(net.rooted, joined);
  }
}

TEST(parts_of_a_pattern_may_be_missing) {
  Affine net;
  net.rooted.outputs = {call(net.graph, "tanh", {net.product})};
  CHECK_EQUAL(fused(net.rooted, kAffine), 1u);
  CHECK_EQUAL(fuse(net.rooted, kAffine).graph.nodes().size(), 1u);
}

TEST(what_others_read_stays) {
  Affine net;
  const ValueId y = call(net.graph, "tanh", {net.product});
  net.rooted.outputs = {y, net.product};
  CHECK_EQUAL(fused(net.rooted, kAffine), 0u);
  net.rooted.outputs = {y, call(net.graph, "exp", {net.product})};
  CHECK_EQUAL(fused(net.rooted, kAffine), 0u);
  const VariablePtr variable = testing::make_variable("kept", {5, 4}, 0.0f);
  net.rooted.outputs = {y};
  CHECK_EQUAL(fused(net.rooted, kAffine), 1u);
  net.graph.assign(variable, net.product);
  CHECK_EQUAL(count_nodes(fuse(net.rooted, kAffine).graph, "fused"), 0u);
}

TEST(where_no_kernel_is_planned_nodes_stay) {
  Affine net;
  net.rooted.outputs = {call(net.graph, "tanh", {net.product})};
  const Fusion never = {"never", pattern_affine, plan_nothing};
  CHECK_EQUAL(fused(net.rooted, never), 0u);
  // The next fusion gets the nodes that the first one refused.
  const RootedGraph joined = fuse(net.rooted, {&never, &kAffine});
  CHECK_EQUAL(joined.graph.nodes().back().attributes.get_string("fusion"), "affine");
}

// Matches a product and a sum of one of its factors, which stand side by side.
void pattern_beside(Pattern& pattern) {
  const PatternValue a = pattern.input("a"), b = pattern.input("b");
  pattern.output("product", a.call(op_matmul, {b}));
  pattern.output("sum", b.call(op_reduce_sum));
}
constexpr Fusion kBeside = {"beside", pattern_beside, plan_body};

TEST(a_node_never_depends_on_itself) {
  Affine net;
  // The product reads what was computed from the sum, so one node can't do both.
  const ValueId sum = call(net.graph, "reduce_sum", {net.b}, kSum);
  const ValueId scaled =
      call(net.graph, "multiply",
           {net.a, call(net.graph, "exp", {call(net.graph, "reduce_sum", {sum}, kSum)})});
  net.rooted.outputs = {call(net.graph, "matmul", {scaled, net.b}, kPlain)};
  CHECK_EQUAL(fused(net.rooted, kBeside), 0u);
  net.rooted.outputs = {net.product, sum};
  CHECK_EQUAL(fused(net.rooted, kBeside), 1u);
}

TEST(two_groups_never_wait_for_one_another) {
  // Each pair could become one node. If both did, each would need the other's result.
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const ValueId a = graph.input("a", f32({4, 4})), b = graph.input("b", f32({4, 4}));
  const ValueId c = graph.input("c", f32({4, 4})), d = graph.input("d", f32({4, 4}));
  const ValueId sum_b = call(graph, "reduce_sum", {b}, kSum);
  const ValueId sum_d = call(graph, "reduce_sum", {d}, kSum);
  rooted.outputs = {call(graph, "matmul", {call(graph, "add", {a, sum_d}), b}, kPlain),
                    call(graph, "matmul", {call(graph, "add", {c, sum_b}), d}, kPlain)};
  CHECK_EQUAL(fused(rooted, kBeside), 1u);
}

TEST(a_group_comes_where_all_that_it_reads_is_known) {
  // Another node reads the sum before the product's other factor is computed.
  Affine net;
  const ValueId sum = call(net.graph, "reduce_sum", {net.b}, kSum);
  const ValueId read = call(net.graph, "exp", {sum});
  const ValueId late = call(net.graph, "tanh", {net.a});
  net.rooted.outputs = {read, call(net.graph, "matmul", {late, net.b}, kPlain)};
  CHECK_EQUAL(fused(net.rooted, kBeside), 1u);
}

TEST(variables_are_read_before_they_are_assigned) {
  // The fused node reads the old value of a variable whose new value is computed before it.
  Affine net;
  const VariablePtr variable = testing::make_variable("v", {3, 4}, 0.5f);
  const ValueId old = net.graph.read(variable);
  const ValueId next = call(net.graph, "add", {old, old});
  net.graph.assign(variable, next);
  const ValueId product = call(net.graph, "matmul", {net.a, old}, kPlain);
  net.rooted.outputs = {call(net.graph, "tanh", {product})};
  const RootedGraph joined = fuse(net.rooted, kAffine);
  CHECK_EQUAL(count_nodes(joined.graph, "fused"), 1u);
  std::mt19937 random(3);
  const std::vector<Tensor> inputs = {testing::random_tensor({5, 3}, random),
                                      testing::random_tensor({3, 4}, random),
                                      testing::random_tensor({5, 4}, random)};
  std::vector<std::vector<float>> results;
  for (const RootedGraph* each : std::vector<const RootedGraph*>{&net.rooted, &joined}) {
    auto program = Program::compile(each->graph, each->outputs, Device{}, {.optimize = false});
    program->run(inputs);
    results.push_back(testing::floats(program->outputs()[0]));
    for (float& value : results.emplace_back(testing::floats(variable->value()))) value *= 0.5f;
    variable->assign(testing::make_variable("first", {3, 4}, 0.5f)->value());
  }
  CHECK(results[0] == results[2]);
  CHECK(results[1] == results[3]);
}

// ---- fusions that write calls of ops ----

// Matches any activation of exp(x). Other nodes may read exp(x), which then stays.
bool is_any_activation(const Graph&, const Node& node) {
  return find_activation(*node.op).has_value();
}
void pattern_any_activation(Pattern& pattern) {
  const PatternValue e = pattern.input("x").call(op_exp).as("exp").again();
  pattern.output("y", e.call(is_any_activation).as("activation"));
}
// Writes the activation of the square of exp(x).
std::vector<ValueId> write_squared(const Match& match, Replacement& replacement) {
  const ValueId e = replacement.results(match.node("exp"))[0];
  const ValueId square = replacement.call(op_square, {e}, {})[0];
  return replacement.call(match.node("activation"), {square});
}
constexpr Fusion kSquared = {
    .name = "squared", .pattern = pattern_any_activation, .write = write_squared};

TEST(a_search_may_begin_with_a_call_of_any_op) {
  Affine net;
  const ValueId e = call(net.graph, "exp", {net.a});
  net.rooted.outputs = {call(net.graph, "relu", {e}), call(net.graph, "elu", {e}, {{"alpha", 0.5}}),
                        call(net.graph, "log", {e})};
  const Graph written = apply_fusion(net.rooted, kSquared).graph;
  CHECK_EQUAL(count_nodes(written, "square"), 2u);
  CHECK_EQUAL(count_nodes(written, "exp"), 1u);
  CHECK_EQUAL(count_nodes(written, "fused"), 0u);
  for (const Node& node : written.nodes()) {
    const bool is_written = node.op == &op_relu || node.op == &op_elu;
    if (is_written) CHECK(written.nodes()[written.value(node.inputs[0]).source].op == &op_square);
    if (node.op == &op_elu) CHECK_EQUAL(node.attributes.get_double("alpha"), 0.5);
  }
}

TEST(what_is_written_may_read_results_that_nobody_else_reads) {
  // A kernel would compute exp by itself, and then nobody would need its node.
  Affine net;
  net.rooted.outputs = {call(net.graph, "relu", {call(net.graph, "exp", {net.a})})};
  CHECK_EQUAL(count_nodes(apply_fusion(net.rooted, kSquared).graph, "exp"), 1u);
}

// Two products with the same matrix have to have the same transpositions.
bool is_alike(const Match& match) {
  const Attributes &first = match.node("first").attributes, &other = match.node("other").attributes;
  return first.get_bool("transpose_b") == other.get_bool("transpose_b");
}
void pattern_alike(Pattern& pattern) {
  const PatternValue a = pattern.input("a");
  pattern.output("first", a.call(op_matmul, {pattern.input("b")}).as("first"));
  pattern.output("other", a.call(op_matmul, {pattern.input("c")}).as("other"));
  pattern.where(is_alike);
}
constexpr Fusion kAlike = {"alike", pattern_alike, plan_body};

TEST(a_condition_may_hold_of_all_nodes_together) {
  for (const bool transposed : {false, true}) {
    Affine net;
    const ValueId square = net.graph.input("square", f32({3, 3}));
    const ValueId other = call(net.graph, "matmul", {net.a, square},
                               {{"transpose_a", false}, {"transpose_b", transposed}});
    net.rooted.outputs = {net.product, other};
    CHECK_EQUAL(fused(net.rooted, kAlike), transposed ? 0u : 1u);
  }
}

// Each of two fusions computes exp again.
void pattern_matmul_of_exp(Pattern& pattern) {
  const PatternValue a = pattern.input("a"), b = pattern.input("b");
  const PatternValue e = a.call(op_exp).again().read_by_fusions();
  pattern.output("y", e.call(op_matmul, {b}));
}
constexpr Fusion kOfExp = {"of_exp", pattern_matmul_of_exp, plan_body};

TEST(what_is_computed_again_goes_only_where_all_readers_are_fused) {
  Affine net;
  const ValueId e = call(net.graph, "exp", {net.a});
  const ValueId other = net.graph.input("other", f32({3, 2}));
  net.rooted.outputs = {call(net.graph, "matmul", {e, net.b}, kPlain),
                        call(net.graph, "matmul", {e, other}, kPlain)};
  CHECK_EQUAL(fused(net.rooted, kOfExp), 2u);
  CHECK_EQUAL(count_nodes(fuse(net.rooted, kOfExp).graph, "exp"), 0u);
  net.rooted.outputs.push_back(call(net.graph, "tanh", {e}));
  CHECK_EQUAL(fused(net.rooted, kOfExp), 0u);
}

TEST(nodes_of_a_group_that_is_dropped_suit_other_fusions) {
  Affine net;
  const ValueId e = call(net.graph, "exp", {net.a});
  net.rooted.outputs = {call(net.graph, "matmul", {e, net.b}, kPlain), e};
  const Fusion product = {"product",
                          [](Pattern& pattern) {
                            const PatternValue a = pattern.input("a"), b = pattern.input("b");
                            pattern.output("y", a.call(op_matmul, {b}));
                          },
                          plan_body};
  const RootedGraph joined = testing::fuse(net.rooted, {&kOfExp, &product});
  check_same_results(net.rooted, joined);
  CHECK_EQUAL(count_nodes(joined.graph, "fused"), 1u);
  CHECK_EQUAL(count_nodes(joined.graph, "exp"), 1u);
}

TEST(an_output_for_fusions_may_be_one_of_the_graph) {
  Affine net;
  const ValueId e = call(net.graph, "exp", {net.a});
  net.rooted.outputs = {call(net.graph, "matmul", {e, net.b}, kPlain), e};
  CHECK_EQUAL(fused(net.rooted, kOfExp),
              0u);  // exp is made again, and would be needed all the same
  const Fusion made = {"made",
                       [](Pattern& pattern) {
                         pattern.output("e", pattern.input("a").call(op_exp).read_by_fusions());
                       },
                       plan_body};
  net.rooted.outputs = {e};
  CHECK_EQUAL(fused(net.rooted, made), 1u);
  net.rooted.outputs = {e, call(net.graph, "tanh", {e})};
  CHECK_EQUAL(fused(net.rooted, made), 0u);
}

// An optional output gets no memory where nobody reads it.
void pattern_both(Pattern& pattern) {
  const PatternValue a = pattern.input("a");
  const PatternValue e = pattern.input("b").call(op_matmul, {a}).as("product");
  pattern.output("y", e.call(op_tanh));
  pattern.optional_output("product", e);
}
constexpr Fusion kBoth = {"both", pattern_both, plan_body};

TEST(optional_outputs_may_be_left_out) {
  Affine net;
  const ValueId y = call(net.graph, "tanh", {net.product});
  net.rooted.outputs = {y};
  CHECK_EQUAL(fused(net.rooted, kBoth), 1u);
  const RootedGraph joined = fuse(net.rooted, kBoth);
  auto program = Program::compile(joined.graph, joined.outputs, Device{}, {.optimize = false});
  CHECK_EQUAL(program->describe().back().outputs.size(), 1u);
  net.rooted.outputs = {y, net.product};
  CHECK_EQUAL(fused(net.rooted, kBoth), 1u);
}

// The first adds to a product, and hands over exp of the product to the second, which multiplies
// it.
void pattern_giving(Pattern& pattern) {
  const PatternValue product = pattern.input("a").call(op_matmul, {pattern.input("b")}).again();
  pattern.output("sum", product.read_by_fusions().call(op_add, {pattern.input("c")}));
  pattern.hand_over("powers", product,
                    [](Graph& graph, ValueId value) { return graph.apply("exp", {value})[0]; });
}
constexpr Fusion kGiving = {"giving", pattern_giving, plan_body};
void pattern_taking(Pattern& pattern) {
  const PatternValue product = pattern.input("a").call(op_matmul, {pattern.input("b")}).again();
  pattern.output("z", product.call(op_multiply, {pattern.input("d")}));
  pattern.take_over("powers", product);
  pattern.take_over("sum", product);
}
constexpr Fusion kTaking = {"taking", pattern_taking, plan_body};

TEST(a_fusion_takes_over_what_another_one_hands_over) {
  for (const bool scales_first : {true, false}) {
    Affine net;
    const ValueId d = net.graph.input("d", f32({5, 4}));
    ValueId z = scales_first ? call(net.graph, "multiply", {net.product, d}) : kNoValue;
    const ValueId sum = call(net.graph, "add", {net.c, net.product});
    if (!scales_first) z = call(net.graph, "multiply", {net.product, sum});
    net.rooted.outputs = {z, sum};
    const RootedGraph joined = fuse(net.rooted, {&kGiving, &kTaking});
    CHECK_EQUAL(joined.graph.nodes().size(), 2u);
    const Node &giver = joined.graph.nodes()[0], &taker = joined.graph.nodes()[1];
    CHECK_EQUAL(giver.attributes.get_string("fusion"), "giving");
    CHECK(taker.inputs[3] == giver.outputs[1] && taker.inputs[4] == giver.outputs[0]);
    check_same_results(net.rooted, joined);
    // The first one alone would leave the product to the multiplication.
    CHECK_EQUAL(fused(net.rooted, kGiving), 0u);
    CHECK_EQUAL(fused(net.rooted, kTaking), 0u);
  }
}

TEST(nothing_is_taken_over_from_what_comes_later) {
  // The sum needs the product of the second fusion, which would take over from the first.
  Affine net;
  const ValueId z = call(net.graph, "multiply", {net.product, net.graph.input("d", f32({5, 4}))});
  net.rooted.outputs = {call(net.graph, "add", {net.product, call(net.graph, "tanh", {z})})};
  const RootedGraph joined = fuse(net.rooted, {&kGiving, &kTaking});
  CHECK_EQUAL(count_nodes(joined.graph, "fused"), 0u);
  check_same_results(net.rooted, joined);
}

TEST(the_order_of_a_patterns_inputs_and_outputs_is_checked) {
  Pattern pattern;
  const PatternValue y = pattern.input("x").call(op_exp);
  pattern.output("y", y);
  pattern.hand_over("more", y, [](Graph&, ValueId value) { return value; });
  CHECK_THROWS(ValueError, "hands over", pattern.optional_output("late", y));
  pattern.take_over("other", y);
  CHECK_THROWS(ValueError, "taken over", pattern.input("late"));
}

TEST(a_match_knows_constants) {
  struct Seen {
    static std::unique_ptr<Kernel> plan(const Match& match) {
      CHECK(!match.constant("a") && match.constant_tensor("a") == nullptr);
      CHECK(match.constant("b") == 0.5);
      CHECK_EQUAL(match.constant_tensor("c")->size(), 15);
      CHECK(!match.constant("c"));
      return match.plan_body();
    }
  };
  const Fusion fusion = {"seen",
                         [](Pattern& pattern) {
                           const PatternValue a = pattern.input("a"), b = pattern.input("b");
                           const PatternValue y = a.call(op_multiply, {b});
                           pattern.output("y", y.call(op_add, {pattern.input("c")}));
                         },
                         Seen::plan};
  Affine net;
  std::mt19937 random(3);
  const ValueId flat = net.graph.constant(testing::random_tensor({15}, random));
  const ValueId c = call(net.graph, "reshape", {flat}, {{"shape", Shape{5, 3}}});
  const ValueId half = net.graph.full(f32({5, 3}), 0.5);
  net.rooted.outputs = {call(net.graph, "add", {call(net.graph, "multiply", {net.a, half}), c})};
  CHECK_EQUAL(fused(net.rooted, fusion), 1u);
}

TEST(random_graphs_keep_their_results) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    testing::RandomGraph random(seed, 80);
    const RootedGraph rooted = eliminate_dead_code(random.rooted);
    const RootedGraph joined = fuse(rooted, {&kAffine, &kBoth, &kBeside});
    // Each run changes the variables, so each graph starts from the values that they hold now.
    std::vector<Tensor> first;
    for (const VariablePtr& variable : random.variables) first.push_back(variable->value().copy());
    const auto run = [&](const RootedGraph& each) {
      for (size_t i = 0; i < first.size(); ++i) random.variables[i]->assign(first[i].copy());
      return testing::results(each);
    };
    const auto expected = run(rooted), received = run(joined);
    for (size_t i = 0; i < expected.size(); ++i) {
      CHECK_EQUAL(expected[i].size(), received[i].size());
      CHECK(std::memcmp(expected[i].data(), received[i].data(),
                        expected[i].size() * sizeof(float)) == 0);
    }
  }
}

TEST(the_op_fused_is_made_by_passes_alone) {
  Affine net;
  auto body = std::make_shared<Body>();
  body->graph = std::make_shared<Graph>();
  body->inputs = {body->graph->input("x", f32({5, 3}))};
  body->outputs = {call(*body->graph, "tanh", body->inputs)};
  const Attributes attributes = {{"bodies", Bodies{body}},
                                 {"fusion", std::string("affine")},
                                 {"required_outputs", int64_t{1}}};
  net.rooted.outputs = net.graph.apply("fused", {net.a}, attributes);
  CHECK_THROWS(ValueError, "only passes make",
               Program::compile(net.graph, net.rooted.outputs, Device{}));
  CHECK_THROWS(ValueError, "fused: affine", net.graph.apply("fused", {net.b}, attributes));
}

}  // namespace
}  // namespace kerascnn
