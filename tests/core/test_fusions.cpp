// The matcher, the pass apply_fusions, and the patterns of all backends. Kernels that run the
// matched nodes stand for those of other devices, so that patterns are tested on any machine.
#include "core/graph/fusion.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
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
using testing::plan_body;

std::unique_ptr<Kernel> plan_nothing(const Match&) { return nullptr; }

RootedGraph fuse(const RootedGraph& rooted, const Fusion& fusion) {
  return testing::fuse(rooted, {&fusion});
}

// Counts the nodes that the fusion makes, and checks that results stay the same to the bit.
size_t fused(const RootedGraph& rooted, const Fusion& fusion) {
  const RootedGraph joined = fuse(rooted, fusion);
  check_same_results(rooted, joined);
  return count_nodes(joined.graph, "fused");
}

const Attributes kSum = {{"axes", Shape{0}}, {"keepdims", false}};

Attributes to(DType dtype) { return {{"dtype", std::string(dtype_name(dtype))}}; }

// ---- the matcher and the pass ----

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

// ---- the patterns of the backends ----

// The sizes are no multiples of one another.
struct Sizes {
  explicit Sizes(std::mt19937& random) {
    const auto draw = [&] { return static_cast<int64_t>(2 + random() % 7); };
    rows = 6;  // results() has as many labels
    features = draw();
    classes = draw() + 4;
  }
  int64_t rows, features, classes;
};

const Attributes kHalves = {
    {"window", Shape{2, 2}}, {"strides", Shape{2, 2}}, {"padding", Shape(4, 0)}};
const Attributes kWindow = {{"strides", Shape{1, 1}},
                            {"padding", Shape(4, 0)},
                            {"dilations", Shape{1, 1}},
                            {"groups", int64_t{1}}};

RootedGraph counting(std::mt19937& random) {
  const Sizes n(random);
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const ValueId scores = graph.input("scores", f32({n.rows, n.classes}));
  const ValueId labels = graph.input("labels", {DType::Int32, {n.rows}});
  const ValueId place = call(graph, "argmax", {scores}, {{"axis", int64_t{-1}}});
  const ValueId matches = call(graph, "cast", {call(graph, "equal", {place, labels})},
                               {{"dtype", std::string("float32")}});
  rooted.outputs = {call(graph, "reduce_sum", {matches}, kSum)};
  return rooted;
}

RootedGraph activation_gradient(std::mt19937& random) {
  const Sizes n(random);
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const ValueId g = graph.input("g", f32({n.rows, n.classes}));
  const ValueId kernel = graph.input("kernel", f32({n.features, n.classes}));
  const ValueId y = graph.input("y", f32({n.rows, n.features}));
  const ValueId dx =
      call(graph, "matmul", {g, kernel}, {{"transpose_a", false}, {"transpose_b", true}});
  rooted.outputs = {call(graph, "tanh_grad", {dx, y})};
  return rooted;
}

RootedGraph kernel_and_bias(std::mt19937& random) {
  const Sizes n(random);
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const ValueId x = graph.input("x", f32({n.rows, n.features}));
  const ValueId g = graph.input("g", f32({n.rows, n.classes}));
  rooted.outputs = {call(graph, "reduce_sum", {g}, kSum),
                    call(graph, "matmul", {x, g}, {{"transpose_a", true}, {"transpose_b", false}})};
  return rooted;
}

template <bool kGradient>
RootedGraph loss_head(std::mt19937& random) {
  const Sizes n(random);
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const ValueId x = graph.input("x", f32({n.rows, n.features}));
  const ValueId kernel = graph.input("kernel", f32({n.features, n.classes}));
  const ValueId bias = graph.input("bias", f32({n.classes}));
  const ValueId labels = graph.input("labels", {DType::Int32, {n.rows}});
  const ValueId gy = graph.input("gy", f32({n.rows}));
  const ValueId logits = call(graph, "dense", {x, kernel, bias},
                              {{"activation", std::string("linear")}, {"activation_alpha", 0.0}});
  const Attributes epsilon = {{"epsilon", 1e-7}};
  rooted.outputs = graph.apply("sparse_softmax_cross_entropy", {logits, labels}, epsilon);
  const ValueId g =
      call(graph, "sparse_softmax_cross_entropy_grad", {gy, rooted.outputs[1], labels}, epsilon);
  rooted.outputs.push_back(g);
  if (kGradient) {
    rooted.outputs.push_back(
        call(graph, "matmul", {g, kernel}, {{"transpose_a", false}, {"transpose_b", true}}));
  }
  return rooted;
}

RootedGraph pooled_convolution(std::mt19937& random) {
  const Sizes n(random);
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const std::vector<ValueId> inputs = {graph.input("x", f32({n.rows, 8, 9, n.features})),
                                       graph.input("kernel", f32({3, 3, n.features, n.classes})),
                                       graph.input("bias", f32({n.classes}))};
  Attributes attributes = kWindow;
  attributes.set("activation", std::string("relu"));
  attributes.set("activation_alpha", 0.0);
  const ValueId wide = call(graph, "conv2d", inputs, attributes);
  rooted.outputs = {call(graph, "max_pool2d", {wide}, kHalves)};
  return rooted;
}

// The graph has images of (n, 8, 9, features) and kernels of 3 x 3, and the gradient of one of
// them.
template <bool kOfKernel>
RootedGraph pooled_gradient(std::mt19937& random) {
  const Sizes n(random);
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const Shape x = {n.rows, 8, 9, n.features}, kernel = {3, 3, n.features, n.classes};
  const Shape pooled = {n.rows, 3, 3, n.classes};
  const ValueId gy = graph.input("gy", f32(pooled)), y = graph.input("y", f32(pooled));
  const ValueId wide = graph.input("wide", f32({n.rows, 6, 7, n.classes}));
  const ValueId index = graph.apply("max_pool2d", {wide}, kHalves)[1];
  const ValueId other = graph.input("other", f32(kOfKernel ? x : kernel));
  const ValueId narrow = call(graph, "tanh_grad", {gy, y});
  Attributes spreading = kHalves, attributes = kWindow;
  spreading.set("input_shape", graph.value(wide).spec.shape);
  attributes.set(kOfKernel ? "kernel_shape" : "input_shape", kOfKernel ? kernel : x);
  const ValueId spread = call(graph, "max_pool2d_grad", {narrow, index}, spreading);
  if (kOfKernel) {
    rooted.outputs = {
        call(graph, "reduce_sum", {narrow}, {{"axes", Shape{0, 1, 2}}, {"keepdims", true}}),
        call(graph, "conv2d_wgrad", {other, spread}, attributes)};
  } else {
    rooted.outputs = {call(graph, "conv2d_dgrad", {spread, other}, attributes)};
  }
  return rooted;
}

RootedGraph kernel_gradient(std::mt19937& random) {
  const Sizes n(random);
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const ValueId x = graph.input("x", f32({n.rows, 8, 9, n.features}));
  const ValueId gy = graph.input("gy", f32({n.rows, 6, 7, n.classes}));
  Attributes attributes = kWindow;
  attributes.set("kernel_shape", Shape{3, 3, n.features, n.classes});
  rooted.outputs = {call(graph, "conv2d_wgrad", {x, gy}, attributes)};
  return rooted;
}

RootedGraph batches(std::mt19937& random) {
  const Sizes n(random);
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const ValueId images = graph.input("images", f32({n.classes, n.features}));
  const ValueId targets = graph.input("targets", f32({n.features, 3}));
  const ValueId order = graph.input("order", {DType::Int32, {n.rows}});
  const ValueId step = graph.full({DType::Int64, {}}, 1);
  for (const ValueId data : {images, targets}) {
    rooted.outputs.push_back(
        call(graph, "take_batch", {data, order, step}, {{"batch_size", int64_t{2}}}));
  }
  return rooted;
}

const std::map<std::string, RootedGraph (*)(std::mt19937&), std::less<>> kGraphs = {
    {"conv2d_max_pool2d", pooled_convolution},
    {"conv2d_max_pool2d_dgrad", pooled_gradient<false>},
    {"conv2d_max_pool2d_wgrad", pooled_gradient<true>},
    {"conv2d_wgrad", kernel_gradient},
    {"take_batches", batches},
    {"count_matches", counting},
    {"matmul_activation_grad", activation_gradient},
    {"dense_wgrad", kernel_and_bias},
    {"dense_sparse_softmax_cross_entropy", loss_head<false>},
    {"dense_sparse_softmax_cross_entropy_dgrad", loss_head<true>},
};

TEST(each_pattern_is_found_and_computes_what_its_nodes_do) {
  std::mt19937 random(std::random_device{}());
  std::vector<Fusion> all(std::begin(testing::kCudaFusions), std::end(testing::kCudaFusions));
  all.insert(all.end(), std::begin(testing::kCpuFusions), std::end(testing::kCpuFusions));
  std::set<std::string_view> names;
  for (const Fusion& fusion : all) {
    names.insert(fusion.name);
    const auto graph = kGraphs.find(fusion.name);
    if (graph == kGraphs.end()) {
      throw ValueError(message("the fusion ", fusion.name, " has no graph in kGraphs"));
    }
    const RootedGraph rooted = graph->second(random);
    CHECK_EQUAL(fused(rooted, fusion), 1u);
    const RootedGraph joined = fuse(rooted, fusion);
    for (const Node& node : joined.graph.nodes()) {
      CHECK(node.op == &op_fused || node.op == &op_max_pool2d);  // the pooling node makes the index
    }
  }
  CHECK_EQUAL(kGraphs.size(), names.size());
}

// The nodes that an accuracy metric traces. Tests may replace each part.
struct Accuracy {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  ValueId scores = graph.input("scores", f32({6, 4}));
  ValueId labels = kNoValue, place = kNoValue, matches = kNoValue, total = kNoValue;

  explicit Accuracy(DType dtype = DType::Int32) {
    labels = graph.input("labels", {dtype, {6}});
    place = call(graph, "argmax", {scores}, {{"axis", int64_t{1}}});
    if (dtype != DType::Int32) place = call(graph, "cast", {place}, to(dtype));
    compare(labels, place);
  }

  void compare(ValueId a, ValueId b) {
    matches = call(graph, "cast", {call(graph, "equal", {a, b})}, to(DType::Float32));
    total = call(graph, "reduce_sum", {matches}, kSum);
    rooted.outputs = {total};
  }
  size_t counts() const {
    return count_nodes(fuse(rooted, cuda_fusion("count_matches")).graph, "fused");
  }
};

TEST(the_accuracy_of_a_classifier_becomes_one_node) {
  for (const DType dtype : {DType::Int32, DType::Float32}) {
    for (const bool labels_first : {true, false}) {
      Accuracy net(dtype);
      if (!labels_first) net.compare(net.place, net.labels);
      CHECK_EQUAL(fused(net.rooted, cuda_fusion("count_matches")), 1u);
      const RootedGraph joined = fuse(net.rooted, cuda_fusion("count_matches"));
      CHECK_EQUAL(joined.graph.nodes().size(), 1u);
      CHECK(joined.graph.nodes()[0].inputs == joined.graph.inputs());
    }
  }
}

TEST(labels_may_be_what_other_ops_give) {
  // The labels are a column, and the classes are the positions of the ones.
  Accuracy column;
  const ValueId wide = column.graph.input("wide", {DType::Int32, {6, 1}});
  const ValueId flat = call(column.graph, "reshape", {wide}, {{"shape", Shape{6}}});
  column.compare(flat, column.place);
  CHECK_EQUAL(column.counts(), 1u);

  Accuracy hot;
  const ValueId ones = hot.graph.input("ones", f32({6, 4}));
  hot.compare(call(hot.graph, "argmax", {ones}, {{"axis", int64_t{-1}}}), hot.place);
  const RootedGraph joined = fuse(hot.rooted, cuda_fusion("count_matches"));
  CHECK_EQUAL(count_nodes(joined.graph, "fused"), 1u);
  CHECK_EQUAL(count_nodes(joined.graph, "argmax"), 1u);
  check_same_results(hot.rooted, joined);
}

TEST(weighted_matches_stay_apart) {
  Accuracy net;
  const ValueId weights = net.graph.input("weights", f32({6}));
  const ValueId weighted = call(net.graph, "multiply", {net.matches, weights});
  net.rooted.outputs = {call(net.graph, "reduce_sum", {weighted}, kSum)};
  CHECK_EQUAL(net.counts(), 0u);
}

TEST(accuracy_parts_that_others_read_stay_apart) {
  for (const bool of_place : {true, false}) {
    Accuracy net;
    net.rooted.outputs.push_back(of_place ? net.place : net.matches);
    CHECK_EQUAL(net.counts(), 0u);
  }
}

TEST(other_counts_stay_apart) {
  // The variants reduce along the rows' axis, keep the axis, have one label for all rows, or count
  // in another dtype than float32.
  const Attributes kept = {{"axes", Shape{0}}, {"keepdims", true}};
  Accuracy along;
  const ValueId square = along.graph.input("square", f32({6, 6}));
  along.compare(along.labels, call(along.graph, "argmax", {square}, {{"axis", int64_t{0}}}));
  CHECK_EQUAL(along.counts(), 0u);

  Accuracy whole;
  whole.rooted.outputs = {call(whole.graph, "reduce_sum", {whole.matches}, kept)};
  CHECK_EQUAL(whole.counts(), 0u);

  Accuracy one;
  one.compare(one.graph.input("label", {DType::Int32, {1}}), one.place);
  CHECK_EQUAL(one.counts(), 0u);

  Accuracy exact;
  const ValueId wide = call(exact.graph, "cast", {exact.matches}, to(DType::Float64));
  exact.rooted.outputs = {call(exact.graph, "reduce_sum", {wide}, kSum)};
  CHECK_EQUAL(exact.counts(), 0u);
}

}  // namespace
}  // namespace kerascnn
