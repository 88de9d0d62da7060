// The passes for mixed precision: one rounds weights together, the other updates from narrow
// gradients.
#include "check.h"
#include "core/graph/passes/passes.h"
#include "fusion_testing.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::call;
using testing::count_nodes;
using testing::f32;
using testing::make_variable;

PassOptions side_by_side() {
  PassOptions options;
  options.runs_side_by_side = true;
  return options;
}

ValueId cast(Graph& graph, ValueId value, const char* dtype = "bfloat16") {
  return call(graph, "cast", {value}, {{"dtype", std::string(dtype)}});
}

// This net has two products and a bias in 16 bits.
struct Layers {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  VariablePtr first = make_variable("first", {3, 4}, 0.3f);
  VariablePtr second = make_variable("second", {4, 5}, -1.7f);
  VariablePtr bias = make_variable("bias", {5}, 0.1f);
  ValueId x = graph.input("x", f32({6, 3}));

  ValueId product(ValueId a, ValueId b) {
    return call(graph, "matmul", {a, b}, {{"transpose_a", false}, {"transpose_b", false}});
  }
  void finish(ValueId y) { rooted.outputs.push_back(cast(graph, y, "float32")); }
};

TEST(weights_are_rounded_together) {
  Layers l;
  const ValueId hidden = l.product(cast(l.graph, l.x), cast(l.graph, l.graph.read(l.first)));
  const ValueId y = l.product(hidden, cast(l.graph, l.graph.read(l.second)));
  l.finish(call(l.graph, "add", {y, cast(l.graph, l.graph.read(l.bias))}));
  const RootedGraph joined = join_casts(l.rooted, side_by_side());
  CHECK_EQUAL(count_nodes(joined.graph, "cast_all"), 1u);
  // Three casts stay: of the input, of the output, and of the bias, which only an element op reads.
  CHECK_EQUAL(count_nodes(joined.graph, "cast"), 3u);
  testing::check_same_results(l.rooted, joined);
  CHECK_EQUAL(count_nodes(join_casts(l.rooted, {}).graph, "cast_all"), 0u);
  CHECK_EQUAL(count_nodes(run_passes(l.rooted, side_by_side()).graph, "cast_all"), 1u);
}

TEST(dtypes_are_joined_apart_and_one_weight_stays) {
  Layers l;
  const ValueId a = cast(l.graph, l.graph.read(l.first));
  const ValueId b = cast(l.graph, l.graph.read(l.second));
  l.finish(l.product(a, b));
  const ValueId c = cast(l.graph, l.graph.read(l.first), "float16");
  l.finish(l.product(cast(l.graph, l.x, "float16"), c));
  const RootedGraph joined = join_casts(l.rooted, side_by_side());
  CHECK_EQUAL(count_nodes(joined.graph, "cast_all"), 1u);
  CHECK_EQUAL(count_nodes(joined.graph, "cast"), 4u);
  testing::check_same_results(l.rooted, joined);
}

TEST(what_a_step_assigned_is_no_weight_that_it_began_with) {
  Layers l;
  const ValueId doubled = call(l.graph, "add", {l.graph.read(l.first), l.graph.read(l.first)});
  l.graph.assign(l.first, doubled);
  const ValueId a = cast(l.graph, l.graph.read(l.first));
  l.finish(l.product(a, cast(l.graph, l.graph.read(l.second))));
  CHECK_EQUAL(count_nodes(join_casts(l.rooted, side_by_side()).graph, "cast_all"), 0u);
}

TEST(updates_read_narrow_gradients) {
  Layers l;
  const Attributes attributes = {{"count", int64_t{2}}, {"momentum", 0.0}, {"nesterov", false}};
  const ValueId rate = l.graph.full(f32({}), 0.125);
  const ValueId narrow = cast(l.graph, l.graph.input("gradient", f32({3, 4})));
  const ValueId wide = l.graph.input("of bias", f32({5}));
  const ValueId widened = cast(l.graph, narrow, "float32");
  const std::vector<ValueId> inputs = {rate, l.graph.read(l.first), l.graph.read(l.bias), widened,
                                       wide};
  // The updates are outputs and not assignments, so that both graphs can be run one after the
  // other.
  l.rooted.outputs = l.graph.apply("sgd_update", inputs, attributes);
  const RootedGraph changed = update_from_narrow_gradients(l.rooted);
  CHECK_EQUAL(count_nodes(changed.graph, "cast"), 1u);
  testing::check_same_results(l.rooted, changed);
  CHECK_EQUAL(count_nodes(run_passes(l.rooted).graph, "cast"), 1u);
}

TEST(a_gradient_that_others_read_is_still_widened_for_them) {
  Layers l;
  const Attributes attributes = {{"count", int64_t{1}}, {"momentum", 0.0}, {"nesterov", false}};
  const ValueId rate = l.graph.full(f32({}), 0.125);
  const ValueId narrow = cast(l.graph, l.graph.input("gradient", f32({3, 4})), "float16");
  const ValueId widened = cast(l.graph, narrow, "float32");
  l.rooted.outputs =
      l.graph.apply("sgd_update", {rate, l.graph.read(l.first), widened}, attributes);
  l.rooted.outputs.push_back(widened);
  const RootedGraph changed = update_from_narrow_gradients(l.rooted);
  CHECK_EQUAL(count_nodes(changed.graph, "cast"), 2u);
  testing::check_same_results(l.rooted, changed);
}

TEST(partial_sums_are_not_rounded_to_sixteen_bits) {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const VariablePtr kernel = make_variable("kernel", {3, 3, 2, 4}, 0.0f);
  const Attributes convolution = {{"strides", Shape{1, 1}},
                                  {"padding", Shape(4, 0)},
                                  {"dilations", Shape{1, 1}},
                                  {"groups", int64_t{1}},
                                  {"kernel_shape", Shape{3, 3, 2, 4}}};
  const ValueId x = cast(graph, graph.input("x", f32({2, 6, 5, 2})), "float16");
  const ValueId gy = cast(graph, graph.input("gy", f32({2, 4, 3, 4})), "float16");
  const ValueId gradient =
      cast(graph, call(graph, "conv2d_wgrad", {x, gy}, convolution), "float32");
  rooted.outputs =
      graph.apply("sgd_update", {graph.full(f32({}), 0.125), graph.read(kernel), gradient},
                  {{"count", int64_t{1}}, {"momentum", 0.0}, {"nesterov", false}});
  const Fusion summing = {"conv2d_wgrad", cuda::pattern_conv2d_wgrad, testing::plan_three_sums};
  const RootedGraph changed = run_passes(rooted, testing::with_fusions({&summing, 1}));
  CHECK_EQUAL(testing::count_fused(changed.graph, "conv2d_wgrad"), 1u);
  for (const Node& node : changed.graph.nodes()) CHECK(!node.attributes.has("copies"));
  CHECK_EQUAL(count_nodes(changed.graph, "cast"), 2u);
}

}  // namespace
}  // namespace kerascnn
