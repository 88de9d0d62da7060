// Graphs are traced and differentiated.
#include "check.h"
#include "core/base/error.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::call;
using testing::f32;

// A function that called itself for each node would overflow the stack on a chain of this length.
// With a sanitizer each call needs several times the stack, and every test takes several times as
// long, so a shorter chain does.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kChainLength = 20000;
#else
constexpr int kChainLength = 100000;
#endif

TEST(trace_prints_one_line_per_node) {
  Graph graph;
  const ValueId x = graph.input("x", f32({2, 3}));
  graph.push_scope("model");
  graph.push_scope("activation");
  call(graph, "leaky_relu", {x}, {{"negative_slope", 0.5}});
  graph.pop_scope();
  graph.pop_scope();
  CHECK_EQUAL(graph.to_string(),
              "%0 = input \"x\" : float32 (2, 3)\n"
              "%1 = leaky_relu(%0) {negative_slope=0.5} : float32 (2, 3)  # model/activation\n");
}

TEST(errors_name_scope_and_op) {
  Graph graph;
  const ValueId x = graph.input("x", f32({2, 3})), y = graph.input("y", f32({4}));
  graph.push_scope("model");
  graph.push_scope("add_1");
  CHECK_THROWS(ValueError, "model/add_1: add: shapes (2, 3) and (4,)", graph.apply("add", {x, y}));
  CHECK_THROWS(ValueError, "model/add_1: there is no op named \"ad\"", graph.apply("ad", {x, y}));
  CHECK_THROWS(ValueError, "value %17 is not part of this graph", graph.apply("add", {x, 17}));
  CHECK_EQUAL(graph.nodes().size(), 0u);
}

TEST(reading_gives_what_was_assigned_last) {
  Graph graph;
  const VariablePtr v = testing::make_variable("v", {3}, 0.0f);
  const ValueId old = graph.read(v);
  CHECK_EQUAL(graph.read(v), old);
  CHECK_EQUAL(graph.assignments().size(), 0u);
  const ValueId first = call(graph, "exp", {old}), second = call(graph, "exp", {first});
  graph.assign(v, first);
  CHECK_EQUAL(graph.read(v), first);
  graph.assign(v, second);
  CHECK_EQUAL(graph.assignments().size(), 1u);
  CHECK_EQUAL(graph.assignments()[0].value, second);
  graph.assign(v, old);
  CHECK_EQUAL(graph.assignments().size(), 0u);
}

TEST(assigning_another_shape_or_dtype_names_the_variable) {
  Graph graph;
  const VariablePtr v = testing::make_variable("kernel", {3}, 0.0f);
  CHECK_THROWS(ValueError,
               "variable \"kernel\" is float32 (3,) and can't take a value of "
               "float32 (4,)",
               graph.assign(v, graph.input("x", f32({4}))));
  CHECK_THROWS(ValueError, "int32 (3,)", graph.assign(v, graph.input("i", {DType::Int32, {3}})));
  CHECK_EQUAL(graph.assignments().size(), 0u);
}

TEST(full_stores_one_element) {
  Graph graph;
  const ValueId x = graph.full(f32({100, 100}), 2.5);
  CHECK_EQUAL(graph.value(x).spec.shape, (Shape{100, 100}));
  CHECK_EQUAL(graph.constants().size(), 1u);
  CHECK_EQUAL(graph.constants()[0].bytes(), 4);
}

TEST(gradients_of_values_used_twice_are_added) {
  Graph graph;
  const ValueId x = graph.input("x", f32({}));
  const ValueId y = call(graph, "add", {call(graph, "multiply", {x, x}), x});
  const ValueId gradient = graph.gradients(y, {x})[0];
  auto program = Program::compile(graph, {gradient}, Device{});
  program->run({Tensor::scalar(DType::Float32, 3.0, Device{})});
  CHECK_EQUAL(testing::floats(program->outputs()[0])[0], 7.0f);
}

TEST(a_loss_is_a_floating_scalar) {
  Graph graph;
  const ValueId x = graph.input("x", f32({2})), i = graph.input("i", {DType::Int32, {}});
  CHECK_THROWS(ValueError, "floating scalar, but it is float32 (2,)", graph.gradients(x, {x}));
  CHECK_THROWS(ValueError, "int32 ()", graph.gradients(i, {i}));
}

TEST(the_gradient_of_the_loss_itself_is_one) {
  Graph graph;
  const ValueId x = graph.input("x", f32({}));
  const ValueId gradient = graph.gradients(x, {x})[0];
  auto program = Program::compile(graph, {gradient}, Device{});
  program->run({Tensor::scalar(DType::Float32, 3.0, Device{})});
  CHECK_EQUAL(testing::floats(program->outputs()[0])[0], 1.0f);
}

TEST(no_gradient_where_the_loss_does_not_depend) {
  Graph graph;
  const ValueId x = graph.input("x", f32({3})), other = graph.input("other", f32({3}));
  const Attributes all = {{"axes", Shape{}}, {"keepdims", false}};
  const ValueId loss = call(graph, "reduce_sum", {x}, all);
  CHECK_EQUAL(graph.gradients(loss, {other})[0], kNoValue);
  // No gradient passes through integers.
  const ValueId whole = call(graph, "cast", {other}, {{"dtype", std::string("int32")}});
  const ValueId back = call(graph, "cast", {whole}, {{"dtype", std::string("float32")}});
  const ValueId sum = call(graph, "add", {loss, call(graph, "reduce_sum", {back}, all)});
  CHECK_EQUAL(graph.gradients(sum, {other})[0], kNoValue);
  CHECK(graph.gradients(sum, {x})[0] != kNoValue);
}

TEST(an_op_without_gradient_names_scope_and_reason) {
  Graph graph;
  const ValueId x = graph.input("x", f32({5, 3})), order = graph.input("y", {DType::Int32, {5}});
  const ValueId step = graph.input("step", {DType::Int64, {}});
  graph.push_scope("model");
  const ValueId batch = call(graph, "take_batch", {x, order, step}, {{"batch_size", int64_t{2}}});
  graph.pop_scope();
  const ValueId loss = call(graph, "reduce_sum", {batch}, {{"axes", Shape{}}, {"keepdims", false}});
  CHECK_THROWS(ValueError, "model: op \"take_batch\" is not differentiable: it reads samples",
               graph.gradients(loss, {x}));
  // The scopes are as before although an exception ended the walk.
  graph.push_scope("after");
  CHECK_THROWS(ValueError, "after: add:", graph.apply("add", {x}));
}

TEST(backward_nodes_belong_to_the_layer_of_their_forward_node) {
  Graph graph;
  const ValueId x = graph.input("x", f32({}));
  graph.push_scope("layer");
  const ValueId y = call(graph, "tanh", {x});
  graph.pop_scope();
  graph.gradients(y, {x});
  CHECK_EQUAL(std::string(graph.nodes().back().op->name), "tanh_grad");
  CHECK_EQUAL(graph.nodes().back().scope.path, "layer");
}

ValueId chain(Graph& graph, ValueId x) {
  for (int i = 0; i < kChainLength; ++i) {
    x = i % 2 == 0 ? call(graph, "negative", {x}) : call(graph, "reciprocal", {x});
  }
  return x;
}

TEST(a_long_chain_of_nodes_is_traced_differentiated_and_run) {
  for (const bool optimize : {true, false}) {
    Graph graph;
    const ValueId x = graph.input("x", f32({}));
    const ValueId y = chain(graph, x);
    const ValueId gradient = graph.gradients(y, {x})[0];
    auto program = Program::compile(graph, {y, gradient}, Device{}, {.optimize = optimize});
    program->run({Tensor::scalar(DType::Float32, 2.0, Device{})});
    // Each pair of -x and 1/x computes x -> -1/x, and after an even number of pairs the value is x
    // again.
    CHECK_EQUAL(testing::floats(program->outputs()[0])[0], 2.0f);
    CHECK_EQUAL(testing::floats(program->outputs()[1])[0], 1.0f);
  }
}

}  // namespace
}  // namespace kerascnn
