// Each test checks the graph before and after a pass, and that the results stay the same.
#include <cmath>
#include <cstring>
#include <sstream>

#include "check.h"
#include "core/eager/eager.h"
#include "core/graph/passes/op_fusions.h"
#include "core/graph/passes/passes.h"
#include "core/graph/region_program.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::call;
using testing::count_nodes;
using testing::f32;

const Attributes kAll = {{"axes", Shape{}}, {"keepdims", false}};
const Attributes kPlainMatmul = {{"transpose_a", false}, {"transpose_b", false}};
const Attributes kConvolution = {
    {"strides", Shape{1, 1}}, {"padding", Shape{0, 0, 0, 0}},        {"dilations", Shape{1, 1}},
    {"groups", int64_t{1}},   {"activation", std::string("linear")}, {"activation_alpha", 0.0}};

// "r2 = multiply(r0, r1); r3 = relu(r2)".
std::string program_string(const ElementProgram& program) {
  std::ostringstream out;
  for (int i = 0; i < program.num_constants; ++i) {
    out << 'r' << program.first_constant() + i << " = " << program.constants[i] << "; ";
  }
  for (int i = 0; i < program.num_instructions; ++i) {
    const ElementInstruction& instruction = program.instructions[i];
    out << (i ? "; r" : "r") << program.first_result() + i << " = "
        << element_op_name(instruction.op) << '(';
    for (int k = 0; k < element_num_operands(instruction.op); ++k) {
      out << (k ? ", r" : "r") << static_cast<int>(instruction.operands[k]);
    }
    for (int k = 0; k < element_num_parameters(instruction.op); ++k) {
      out << ", " << instruction.parameters[k];
    }
    if (instruction.op == ElementOp::cast) out << ", " << dtype_name(instruction.result_dtype);
    out << ')';
  }
  return out.str();
}

// The whole program on one element, instruction by instruction. The first num_inputs registers are
// set; this fills in the others.
void evaluate_elements(const ElementProgram& program, ElementValue* registers) {
  for (int i = 0; i < program.num_constants; ++i) {
    const int at = program.first_constant() + i;
    registers[at] = make_element<HostRounding>(program.register_dtypes[at], program.constants[i]);
  }
  for (int i = 0; i < program.num_instructions; ++i) {
    registers[program.first_result() + i] =
        evaluate_element<HostRounding>(program.instructions[i], registers);
  }
}

// Runs the graph as it is, without any pass.
std::vector<std::vector<float>> results(const RootedGraph& rooted,
                                        const std::vector<Tensor>& inputs) {
  auto program = Program::compile(rooted.graph, rooted.outputs, Device{}, {.optimize = false});
  program->run(inputs);
  std::vector<std::vector<float>> all;
  for (const Tensor& output : program->outputs()) all.push_back(testing::floats(output));
  return all;
}

std::vector<Tensor> random_inputs(const Graph& graph, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::vector<Tensor> inputs;
  for (ValueId id : graph.inputs()) {
    const TensorSpec& spec = graph.value(id).spec;
    if (spec.dtype == DType::Float32) {
      inputs.push_back(testing::random_tensor(spec.shape, random));
    } else {
      std::vector<int32_t> labels(static_cast<size_t>(num_elements(spec.shape)));
      for (int32_t& label : labels) label = static_cast<int32_t>(random() % 3);
      inputs.push_back(Tensor::from_host(labels.data(), spec, Device{}));
    }
  }
  return inputs;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void check_same_results(const RootedGraph& before, const RootedGraph& after) {
  const std::vector<Tensor> inputs = random_inputs(before.graph);
  const auto expected = results(before, inputs), received = results(after, inputs);
  CHECK_EQUAL(expected.size(), received.size());
  for (size_t i = 0; i < expected.size(); ++i) CHECK(same_bits(expected[i], received[i]));
}

// Some passes change the order of roundings. The bound allows a few units in the last place of
// numbers of order one.
void check_close_results(const RootedGraph& before, const RootedGraph& after) {
  const std::vector<Tensor> inputs = random_inputs(before.graph);
  const auto expected = results(before, inputs), received = results(after, inputs);
  CHECK_EQUAL(expected.size(), received.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK_EQUAL(expected[i].size(), received[i].size());
    for (size_t k = 0; k < expected[i].size(); ++k) {
      CHECK_NEAR(expected[i][k], received[i][k], 4e-6 * (1.0 + std::abs(expected[i][k])));
    }
  }
}

TEST(dead_code_goes) {
  RootedGraph before;
  const ValueId x = before.graph.input("x", f32({4}));
  const ValueId kept = call(before.graph, "exp", {x});
  call(before.graph, "square", {call(before.graph, "tanh", {x})});
  const VariablePtr v = testing::make_variable("v", {4}, 0.0f);
  before.graph.assign(v, call(before.graph, "negative", {x}));
  before.outputs = {kept};
  const RootedGraph after = eliminate_dead_code(before);
  CHECK_EQUAL(before.graph.nodes().size(), 4u);
  CHECK_EQUAL(after.graph.nodes().size(), 2u);
  CHECK_EQUAL(count_nodes(after.graph, "negative"), 1u);
  check_same_results(before, after);
}

TEST(operations_that_change_nothing_go) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({2, 3}));
  ValueId y = call(graph, "multiply", {x, graph.full(f32({}), 1.0)});
  y = call(graph, "add", {graph.full(f32({2, 3}), 0.0), y});
  y = call(graph, "subtract", {y, graph.full(f32({3}), 0.0)});
  y = call(graph, "divide", {y, graph.full(f32({}), 1.0)});
  y = call(graph, "cast", {y}, {{"dtype", std::string("float32")}});
  y = call(graph, "transpose", {y}, {{"permutation", Shape{1, 0}}});
  y = call(graph, "transpose", {y}, {{"permutation", Shape{1, 0}}});
  y = call(graph, "reshape", {y}, {{"shape", Shape{6}}});
  y = call(graph, "reshape", {y}, {{"shape", Shape{2, 3}}});
  y = call(graph, "stop_gradient", {y});
  before.outputs = {call(graph, "exp", {y})};
  const RootedGraph after = eliminate_dead_code(fold_constants(before));
  CHECK_EQUAL(after.graph.to_string(),
              "%0 = input \"x\" : float32 (2, 3)\n%1 = exp(%0) : float32 (2, 3)\n");
  check_same_results(before, after);
}

TEST(neutral_constants_that_widen_the_shape_stay) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({3}));
  before.outputs = {call(graph, "multiply", {x, graph.full(f32({2, 3}), 1.0)})};
  const RootedGraph after = eliminate_dead_code(fold_constants(before));
  CHECK_EQUAL(after.graph.value(after.outputs[0]).spec.shape, (Shape{2, 3}));
  check_same_results(before, after);
}

TEST(transposes_combine) {
  RootedGraph before;
  Graph& graph = before.graph;
  ValueId y = graph.input("x", f32({2, 3, 4}));
  y = call(graph, "transpose", {y}, {{"permutation", Shape{1, 2, 0}}});
  y = call(graph, "transpose", {y}, {{"permutation", Shape{0, 2, 1}}});
  before.outputs = {y};
  const RootedGraph after = eliminate_dead_code(fold_constants(before));
  CHECK_EQUAL(after.graph.nodes().size(), 1u);
  check_same_results(before, after);
}

TEST(constants_are_evaluated) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({5, 7}));
  // The gradient of a mean is 1/35, broadcast, times x.
  const ValueId scale =
      call(graph, "divide", {graph.full(f32({5, 7}), 1.0), graph.full(f32({5, 7}), 35.0)});
  before.outputs = {call(graph, "multiply", {x, scale})};
  const RootedGraph after = eliminate_dead_code(fold_constants(before));
  CHECK_EQUAL(before.graph.nodes().size(), 4u);
  CHECK_EQUAL(after.graph.nodes().size(), 1u);
  CHECK_EQUAL(after.graph.value(after.graph.nodes()[0].inputs[1]).spec.shape, Shape{});
  check_same_results(before, after);
}

TEST(equal_nodes_are_merged) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({4}));
  const ValueId a = call(graph, "multiply", {x, graph.full(f32({}), 3.0)});
  const ValueId b = call(graph, "multiply", {x, graph.full(f32({}), 3.0)});
  const ValueId c = call(graph, "clip", {x}, {{"min", 0.0}, {"max", 1.0}});
  const ValueId d = call(graph, "clip", {x}, {{"min", 0.0}, {"max", 2.0}});
  before.outputs = {call(graph, "subtract", {a, b}), call(graph, "add", {c, d})};
  const RootedGraph after = eliminate_dead_code(merge_common_subexpressions(before));
  CHECK_EQUAL(count_nodes(after.graph, "multiply"), 1u);
  CHECK_EQUAL(count_nodes(after.graph, "clip"), 2u);
  check_same_results(before, after);
}

TEST(random_numbers_are_merged_only_with_the_same_stream) {
  RootedGraph before;
  Graph& graph = before.graph;
  const int64_t state[2] = {1, 2};
  const ValueId rng = graph.constant(Tensor::from_host(state, {DType::Int64, {2}}, Device{}));
  for (int64_t stream : {5, 5, 6}) {
    before.outputs.push_back(call(
        graph, "random_bernoulli", {rng},
        {{"shape", Shape{9}}, {"dtype", std::string("float32")}, {"p", 0.5}, {"stream", stream}}));
  }
  const RootedGraph after = eliminate_dead_code(merge_common_subexpressions(before));
  CHECK_EQUAL(after.graph.nodes().size(), 2u);
  check_same_results(before, after);
}

// Applies all fusions that write calls of ops.
RootedGraph fuse(const RootedGraph& rooted) {
  RootedGraph fused = eliminate_dead_code(rooted);
  for (const Fusion& fusion : op_fusions()) {
    fused = eliminate_dead_code(apply_fusion(fused, fusion));
  }
  return fused;
}

RootedGraph softmax_classifier(bool with_metric) {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const ValueId x = graph.input("x", f32({6, 3}));
  const ValueId labels = graph.input("labels", {DType::Int32, {6}});
  const ValueId p = call(graph, "softmax", {x}, {{"axis", int64_t{-1}}});
  const ValueId losses = call(graph, "sparse_cross_entropy", {p, labels}, {{"epsilon", 1e-7}});
  const ValueId loss = call(graph, "reduce_mean", {losses}, kAll);
  rooted.outputs = {loss, graph.gradients(loss, {x})[0]};
  if (with_metric) rooted.outputs.push_back(call(graph, "reduce_max", {p}, kAll));
  return rooted;
}

TEST(softmax_and_cross_entropy_fuse_forward_and_backward) {
  for (const bool with_metric : {false, true}) {
    const RootedGraph before = softmax_classifier(with_metric);
    const RootedGraph after = fuse(before);
    for (const char* op :
         {"softmax", "softmax_grad", "sparse_cross_entropy", "sparse_cross_entropy_grad"}) {
      CHECK_EQUAL(count_nodes(before.graph, op), 1u);
      CHECK_EQUAL(count_nodes(after.graph, op), 0u);
    }
    CHECK_EQUAL(count_nodes(after.graph, "sparse_softmax_cross_entropy"), 1u);
    CHECK_EQUAL(count_nodes(after.graph, "sparse_softmax_cross_entropy_grad"), 1u);
    check_close_results(before, after);
  }
}

TEST(cross_entropy_keeps_its_epsilon) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({6, 3}));
  const ValueId labels = graph.input("labels", {DType::Int32, {6}});
  const ValueId p = call(graph, "softmax", {x}, {{"axis", int64_t{1}}});
  // The numbers are so large that some probabilities are clipped.
  before.outputs = {call(graph, "sparse_cross_entropy", {p, labels}, {{"epsilon", 0.3}})};
  const RootedGraph after = fuse(before);
  CHECK_EQUAL(after.graph.nodes().size(), 1u);
  check_close_results(before, after);
}

TEST(cross_entropy_with_other_gradients_of_the_probabilities_keeps_softmax_grad) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({6, 3}));
  const ValueId labels = graph.input("labels", {DType::Int32, {6}});
  const ValueId p = call(graph, "softmax", {x}, {{"axis", int64_t{-1}}});
  const ValueId losses = call(graph, "sparse_cross_entropy", {p, labels}, {{"epsilon", 1e-7}});
  const ValueId penalty = call(graph, "reduce_sum", {call(graph, "square", {p})}, kAll);
  const ValueId loss = call(graph, "add", {call(graph, "reduce_mean", {losses}, kAll), penalty});
  before.outputs = {loss, graph.gradients(loss, {x})[0]};
  const RootedGraph after = fuse(before);
  CHECK_EQUAL(count_nodes(after.graph, "sparse_softmax_cross_entropy"), 1u);
  CHECK_EQUAL(count_nodes(after.graph, "softmax_grad"), 1u);
  check_close_results(before, after);
}

TEST(labels_that_come_after_the_softmax_still_fuse) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({6, 3}));
  const ValueId labels = graph.input("labels", {DType::Int32, {6}});
  const ValueId p = call(graph, "softmax", {x}, {{"axis", int64_t{-1}}});
  const ValueId late = call(graph, "minimum", {labels, graph.full({DType::Int32, {6}}, 1.0)});
  before.outputs = {call(graph, "sparse_cross_entropy", {p, late}, {{"epsilon", 1e-7}})};
  const RootedGraph after = fuse(before);
  CHECK_EQUAL(count_nodes(after.graph, "sparse_softmax_cross_entropy"), 1u);
  check_close_results(before, after);
}

// A loss and the gradient of its logits, where the gradient of the loss may depend on the loss.
struct LossAndGradient {
  RootedGraph rooted;
  Graph& graph = rooted.graph;

  LossAndGradient(bool depends, double epsilon) {
    const ValueId x = graph.input("x", f32({6, 3}));
    const ValueId labels = graph.input("labels", {DType::Int32, {6}});
    const std::vector<ValueId> loss =
        graph.apply("sparse_softmax_cross_entropy", {x, labels}, {{"epsilon", 1e-7}});
    const ValueId weights = depends ? loss[0] : graph.input("weights", f32({6}));
    // The square is computed after the loss in both cases.
    const ValueId slope = call(graph, "square", {weights});
    rooted.outputs = {loss[0], call(graph, "sparse_softmax_cross_entropy_grad",
                                    {slope, loss[1], labels}, {{"epsilon", epsilon}})};
  }
};

TEST(a_loss_makes_the_gradient_that_does_not_depend_on_it) {
  const LossAndGradient free(false, 1e-7);
  const RootedGraph joined = apply_fusion(free.rooted, fused_loss_gradient);
  CHECK_EQUAL(joined.graph.nodes().size(), 2u);
  CHECK_EQUAL(joined.graph.nodes().back().inputs.size(), 3u);
  check_close_results(free.rooted, joined);
  const LossAndGradient bound(true, 1e-7), other(false, 0.1);
  for (const RootedGraph* rooted : {&bound.rooted, &other.rooted}) {
    CHECK_EQUAL(apply_fusion(*rooted, fused_loss_gradient).graph.nodes().size(), 3u);
  }
}

RootedGraph pooled_network(const Shape& strides, std::string_view activation) {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const ValueId x = graph.input("x", f32({2, 6, 6, 3})), b = graph.input("b", f32({3}));
  const ValueId y = call(graph, activation, {call(graph, "add", {x, b})});
  const ValueId p = call(graph, "max_pool2d", {y},
                         {{"window", Shape{2, 2}}, {"strides", strides}, {"padding", Shape(4, 0)}});
  const ValueId loss = call(graph, "reduce_sum", {call(graph, "square", {p})}, kAll);
  rooted.outputs = graph.gradients(loss, {x, b});
  return rooted;
}

TEST(gradients_before_max_pooling_are_taken_on_pooled_values) {
  for (const int64_t stride : {2, 1}) {  // windows lie apart or overlap
    for (const char* activation : {"relu", "tanh", "sigmoid"}) {
      const RootedGraph before = pooled_network({stride, stride}, activation);
      const RootedGraph after = fuse(before);
      const std::string gradient = std::string(activation) + "_grad";
      const auto shape_of = [&](const Graph& graph, std::string_view op) {
        for (const Node& node : graph.nodes()) {
          if (node.op->name == op) return graph.value(node.inputs[0]).spec.shape;
        }
        return Shape{};
      };
      const int64_t pooled = stride == 2 ? 3 : 5;
      CHECK_EQUAL(shape_of(before.graph, gradient), (Shape{2, 6, 6, 3}));
      CHECK_EQUAL(shape_of(after.graph, gradient), (Shape{2, pooled, pooled, 3}));
      for (const Node& node : after.graph.nodes()) {
        if (node.op->name != "reduce_sum") continue;
        CHECK(after.graph.value(node.inputs[0]).spec.shape != (Shape{2, 6, 6, 3}));
      }
      check_close_results(before, after);
    }
  }
}

TEST(activations_that_are_not_pooled_keep_their_gradient) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({1, 4, 4, 1}));
  const ValueId y = call(graph, "relu", {x});
  const ValueId p =
      call(graph, "max_pool2d", {y},
           {{"window", Shape{2, 2}}, {"strides", Shape{2, 2}}, {"padding", Shape(4, 0)}});
  // Another node reads the activation, so its gradient is a sum.
  const ValueId loss = call(graph, "add",
                            {call(graph, "reduce_sum", {call(graph, "square", {p})}, kAll),
                             call(graph, "reduce_sum", {call(graph, "exp", {y})}, kAll)});
  before.outputs = graph.gradients(loss, {x});
  const RootedGraph after = fuse(before);
  CHECK_EQUAL(eliminate_dead_code(before).graph.nodes().size(), after.graph.nodes().size());
  check_same_results(before, after);
}

TEST(bias_and_activation_move_into_the_product) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({5, 4})), w = graph.input("w", f32({4, 3}));
  const ValueId b = graph.input("b", f32({3}));
  ValueId y = call(graph, "add", {b, call(graph, "matmul", {x, w}, kPlainMatmul)});
  before.outputs = {call(graph, "leaky_relu", {y}, {{"negative_slope", 0.25}})};
  const RootedGraph after = fuse(before);
  CHECK_EQUAL(after.graph.nodes().size(), 1u);
  CHECK_EQUAL(count_nodes(after.graph, "dense"), 1u);
  CHECK_EQUAL(after.graph.nodes()[0].attributes.get_double("activation_alpha"), 0.25);
  check_close_results(before, after);
}

TEST(bias_and_activation_move_into_the_convolution) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({2, 6, 6, 2})), w = graph.input("w", f32({3, 3, 2, 4}));
  const ValueId b = graph.input("b", f32({4}));
  const ValueId y = call(graph, "conv2d", {x, w}, kConvolution);
  before.outputs = {call(graph, "relu", {call(graph, "add", {y, b})})};
  const RootedGraph after = fuse(before);
  CHECK_EQUAL(after.graph.nodes().size(), 1u);
  CHECK_EQUAL(after.graph.nodes()[0].inputs.size(), 3u);
  CHECK_EQUAL(after.graph.nodes()[0].attributes.get_string("activation"), "relu");
  check_close_results(before, after);
}

TEST(an_activation_moves_before_a_reshape) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({2, 1, 6, 2})), w = graph.input("w", f32({1, 3, 2, 4}));
  const ValueId b = graph.input("b", f32({4}));
  const ValueId y = call(graph, "conv2d", {x, w, b}, kConvolution);
  const ValueId sequences = call(graph, "reshape", {y}, {{"shape", Shape{2, 4, 4}}});
  before.outputs = {call(graph, "relu", {sequences})};
  const RootedGraph after = fuse(before);
  CHECK_EQUAL(after.graph.nodes().size(), 2u);
  CHECK_EQUAL(after.graph.nodes()[0].attributes.get_string("activation"), "relu");
  CHECK_EQUAL(count_nodes(after.graph, "reshape"), 1u);
  check_close_results(before, after);
  // Another reader of the value before the activation keeps the activation a node of its own.
  before.outputs.push_back(sequences);
  CHECK_EQUAL(count_nodes(fuse(before).graph, "relu"), 1u);
}

TEST(an_intermediate_with_another_reader_keeps_its_node) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({5, 4})), w = graph.input("w", f32({4, 3}));
  const ValueId b = graph.input("b", f32({3}));
  const ValueId sum = call(graph, "add", {call(graph, "matmul", {x, w}, kPlainMatmul), b});
  // The gradient of silu reads the sum, so the activation stays a node of its own; the bias moves
  // into the product.
  const ValueId loss = call(graph, "reduce_sum", {call(graph, "silu", {sum})}, kAll);
  before.outputs = {loss, graph.gradients(loss, {w})[0]};
  const RootedGraph after = fuse(before);
  CHECK_EQUAL(count_nodes(after.graph, "dense"), 1u);
  CHECK_EQUAL(count_nodes(after.graph, "silu"), 1u);
  check_close_results(before, after);
}

TEST(what_is_no_bias_stays) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({3, 3})), w = graph.input("w", f32({3, 3}));
  const ValueId column = graph.input("column", f32({3, 1}));
  const ValueId y = call(graph, "matmul", {x, w}, kPlainMatmul);
  before.outputs = {call(graph, "add", {y, column})};
  CHECK_EQUAL(fuse(before).graph.nodes().size(), 2u);
  // There is no dense op for transposed products.
  RootedGraph transposed;
  const ValueId a = transposed.graph.input("a", f32({3, 3}));
  const ValueId b = transposed.graph.input("b", f32({3}));
  const ValueId p =
      call(transposed.graph, "matmul", {a, a}, {{"transpose_a", true}, {"transpose_b", false}});
  transposed.outputs = {call(transposed.graph, "add", {p, b})};
  CHECK_EQUAL(fuse(transposed).graph.nodes().size(), 2u);
}

ElementProgram only_program(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (node.op->name == "region") return element_program(read_region(node.attributes)).value();
  }
  throw ValueError("no region");
}

TEST(element_ops_fuse_with_broadcasting_and_mixed_dtypes) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({4, 3})), v = graph.input("v", f32({3}));
  const ValueId scaled = call(graph, "multiply", {x, graph.full(f32({}), 0.5)});
  const ValueId shifted = call(graph, "add", {scaled, v});
  const ValueId condition = call(graph, "greater", {shifted, graph.full(f32({}), 0.0)});
  const ValueId chosen = call(graph, "where", {condition, shifted, x});
  const ValueId flag = call(graph, "cast", {condition}, {{"dtype", std::string("float32")}});
  before.outputs = {chosen, flag};
  const RootedGraph after = form_regions(before);
  CHECK_EQUAL(after.graph.nodes().size(), 1u);
  CHECK_EQUAL(program_string(only_program(after.graph)),
              "r2 = 0.5; r3 = 0; r4 = multiply(r0, r2); r5 = add(r4, r1); r6 = greater(r5, r3); "
              "r7 = where(r6, r5, r0); r8 = cast(r6, float32)");
  check_same_results(before, after);
}

TEST(half_precision_groups_round_after_each_op) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({64}));
  for (const char* dtype : {"float16", "bfloat16"}) {
    const ValueId half = call(graph, "cast", {x}, {{"dtype", std::string(dtype)}});
    const ValueId y = call(graph, "subtract", {call(graph, "exp", {half}), half});
    const ValueId z = call(graph, "multiply", {y, y});
    before.outputs.push_back(call(graph, "cast", {z}, {{"dtype", std::string("float32")}}));
  }
  const RootedGraph after = form_regions(before);
  CHECK_EQUAL(after.graph.nodes().size(), 1u);
  check_same_results(before, after);
}

TEST(a_group_never_depends_on_itself) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({4, 4}));
  const ValueId y = call(graph, "exp", {x});
  const ValueId outside = call(graph, "softmax", {y}, {{"axis", int64_t{-1}}});
  // A group of y and the sum would have softmax both before and after it.
  before.outputs = {call(graph, "add", {y, outside})};
  const RootedGraph after = form_regions(before);
  CHECK_EQUAL(after.graph.nodes().size(), 3u);
  check_same_results(before, after);
}

TEST(groups_respect_their_limits) {
  RootedGraph before;
  Graph& graph = before.graph;
  std::vector<ValueId> xs;
  for (int i = 0; i < 40; ++i) xs.push_back(graph.input("x" + std::to_string(i), f32({8})));
  ValueId sum = xs[0];
  for (int i = 1; i < 40; ++i) sum = call(graph, "add", {sum, xs[i]});
  for (int i = 0; i < 100; ++i) sum = call(graph, "tanh", {sum});
  before.outputs = {sum};
  const RootedGraph after = form_regions(before);
  // There are 39 additions of at most 8 inputs each and 100 further ops, and a group has at most
  // 32.
  CHECK(after.graph.nodes().size() >= 6u && after.graph.nodes().size() <= 10u);
  check_same_results(before, after);
}

TEST(a_single_element_op_stays_itself) {
  RootedGraph before;
  const ValueId x = before.graph.input("x", f32({4}));
  before.outputs = {call(before.graph, "exp", {x})};
  CHECK_EQUAL(count_nodes(form_regions(before).graph, "exp"), 1u);
}

TEST(fused_groups_match_the_reference_evaluator) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId a = graph.input("a", f32({33})), b = graph.input("b", f32({33}));
  const ValueId y = call(graph, "gelu", {call(graph, "subtract", {a, b})}, {{"approximate", true}});
  before.outputs = {call(graph, "maximum", {call(graph, "softplus", {y}), a})};
  const RootedGraph after = form_regions(before);
  const ElementProgram program = only_program(after.graph);
  const std::vector<Tensor> inputs = random_inputs(before.graph);
  const std::vector<float> received = results(after, inputs)[0];
  const std::vector<float> a_data = testing::floats(inputs[0]);
  const std::vector<float> b_data = testing::floats(inputs[1]);
  for (size_t i = 0; i < received.size(); ++i) {
    ElementValue registers[kMaxElementRegisters];
    registers[0].f = a_data[i];
    registers[1].f = b_data[i];
    evaluate_elements(program, registers);
    // Kernels may use vector forms of exp and tanh, which differ in the last places.
    CHECK_NEAR(registers[program.outputs[0]].f, received[i], 1e-6 * (1 + std::abs(received[i])));
  }
}

TEST(small_broadcast_constants_are_stored) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId p = graph.input("p", f32({6, 3}));
  const ValueId labels = graph.input("labels", {DType::Int32, {6}});
  before.outputs = {call(graph, "sparse_cross_entropy_grad", {graph.full(f32({6}), 0.5), p, labels},
                         {{"epsilon", 1e-7}})};
  const RootedGraph after = materialize_constants(before);
  CHECK_EQUAL(after.graph.nodes().size(), 1u);
  check_same_results(before, after);
}

TEST(passes_give_the_same_graph_each_time) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    const testing::RandomGraph first(seed), second(seed);
    CHECK_EQUAL(run_passes(first.rooted).graph.to_string(),
                run_passes(second.rooted).graph.to_string());
  }
}

// Returns the outputs and the final variables of three steps.
std::vector<std::vector<float>> run_steps(unsigned seed, bool optimize) {
  const testing::RandomGraph random(seed);
  auto program = Program::compile(random.rooted.graph, random.rooted.outputs, Device{},
                                  {.optimize = optimize});
  program->run(random_inputs(random.rooted.graph), 2);
  program->run(random_inputs(random.rooted.graph), 1);
  std::vector<std::vector<float>> all;
  for (const Tensor& output : program->outputs()) all.push_back(testing::floats(output));
  for (const VariablePtr& variable : random.variables) {
    all.push_back(testing::floats(variable->value()));
  }
  return all;
}

TEST(optimizing_keeps_results_of_random_programs) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const auto plain = run_steps(seed, false), optimized = run_steps(seed, true);
    CHECK_EQUAL(plain.size(), optimized.size());
    for (size_t i = 0; i < plain.size(); ++i) {
      for (size_t k = 0; k < plain[i].size(); ++k) {
        if (std::isnan(plain[i][k]) && std::isnan(optimized[i][k])) continue;
        // Comparisons and deep chains amplify the rounding differences of epilogues.
        const double scale = 1.0 + std::abs(plain[i][k]);
        CHECK(plain[i][k] == optimized[i][k] ||
              std::abs(plain[i][k] - optimized[i][k]) <= 1e-3 * scale);
      }
    }
  }
}

}  // namespace
}  // namespace kerascnn
