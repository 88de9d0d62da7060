// Ops that users define: their shape rule, their gradient, their sources, and their guards.
#include "core/ops/custom_op.h"

#include <algorithm>
#include <string>

#include "check.h"
#include "core/backend/backend.h"
#include "core/backend/custom_source.h"
#include "core/backend/guarded_kernel.h"
#include "core/eager/eager.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::floats;

const std::vector<DType> kFloats = {DType::Float32, DType::Float64};

CustomOp of_floats(const std::string& name, size_t num_inputs) {
  CustomOp op;
  op.name = name;
  for (size_t i = 0; i < num_inputs; ++i) op.inputs.push_back("x" + std::to_string(i));
  op.outputs = {"y"};
  op.dtypes.assign(num_inputs, kFloats);
  op.infer = [](Specs inputs) { return std::vector<TensorSpec>{inputs[0]}; };
  return op;
}

// The op computes y[i] = factor * x0[i] for `count` elements of float.
CustomOp scaled(float factor, int64_t count) {
  CustomOp op = of_floats("scaled", 1);
  op.run_on_cpu = [=](const KernelArgs& args, Specs, Specs) {
    const auto* x = static_cast<const float*>(args.inputs[0]);
    auto* y = static_cast<float*>(args.outputs[0]);
    for (int64_t i = 0; i < count; ++i) y[i] = factor * x[std::min<int64_t>(i, 2)];
  };
  return op;
}

Tensor three_floats() {
  const std::vector<float> data = {1, -2, 3};
  return Tensor::from_host(data.data(), testing::f32({3}), Device{});
}

Tensor called(const std::string& key, const std::vector<Tensor>& inputs) {
  return apply("custom_op", inputs, {{"op", key}}).front();
}

CustomOp absolute_in_cpp() {
  CustomOp op = of_floats("absolute", 1);
  op.is_elementwise = true;
  op.cpp.label = "absolute";
  op.cpp.function = "elements";
  op.cpp.text =
      "extern \"C\" void elements(const void* const* inputs, void* const* outputs, const "
      "int64_t*,\n"
      "                         int64_t begin, int64_t end) {\n"
      "  const x0_t* x = static_cast<const x0_t*>(inputs[0]);\n"
      "  y_t* y = static_cast<y_t*>(outputs[0]);\n"
      "  for (int64_t i = begin; i < end; ++i) y[i] = fabs(real(x[i]));\n"
      "}\n";
  return op;
}

}  // namespace

TEST(definitions_of_one_name_are_different_ops) {
  const std::string twice = define_custom_op(scaled(2, 3));
  const std::string thrice = define_custom_op(scaled(3, 3));
  CHECK(twice != thrice);
  CHECK_EQUAL(floats(called(twice, {three_floats()})), (std::vector<float>{2, -4, 6}));
  CHECK_EQUAL(floats(called(thrice, {three_floats()})), (std::vector<float>{3, -6, 9}));
}

TEST(wrong_inputs_are_refused_before_anything_runs) {
  const std::string key = define_custom_op(scaled(2, 3));
  CHECK_THROWS(ValueError, "custom_op scaled: expected 1 input (x0), received 2",
               called(key, {three_floats(), three_floats()}));
  const std::vector<int32_t> integers = {1, 2, 3};
  const Tensor other = Tensor::from_host(integers.data(), {DType::Int32, {3}}, Device{});
  CHECK_THROWS(TypeError, "input x0 must be one of float32, float64", called(key, {other}));
  CHECK_THROWS(ValueError, "nothing was defined under", called("scaled#0", {three_floats()}));
  const std::string bare = define_custom_op(of_floats("bare", 1));
  CHECK_THROWS(DeviceError, "no implementation for the CPU", called(bare, {three_floats()}));
}

TEST(cpp_runs_over_any_number_of_elements) {
  const std::string key = define_custom_op(absolute_in_cpp());
  for (const int64_t size : {1, 63, 64, 65, 40000}) {
    std::vector<float> data(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) data[i] = i % 2 == 0 ? -1.0f * i : 1.0f * i;
    const Tensor x = Tensor::from_host(data.data(), testing::f32({size}), Device{});
    const std::vector<float> found = floats(called(key, {x}));
    for (int64_t i = 0; i < size; ++i) CHECK_EQUAL(found[i], 1.0f * i);
  }
}

TEST(compile_errors_show_the_line_of_the_source) {
  CustomOp op = of_floats("broken", 1);
  op.cpp.label = "broken forward";
  op.cpp.function = "f";
  op.cpp.text = "void f(const x0_t* x, y_t* y) {\n  y[0] = nothing;\n}\n";
  op.cpp.launch = [](Specs, Specs) { return CustomLaunch{}; };
  const std::string key = define_custom_op(op);
  CHECK_THROWS(ValueError, "C++ source does not compile", called(key, {three_floats()}));
  CHECK_THROWS(ValueError, " > 2 |   y[0] = nothing;", called(key, {three_floats()}));
}

TEST(messages_of_nvrtc_are_understood) {
  CustomOp op = of_floats("broken", 1);
  op.cuda.label = "broken forward";
  op.cuda.text = "first\nsecond\nthird";
  const std::string source = compose_cuda_source(op, {}, {});
  const std::string text =
      compile_error(op, op.cuda, "CUDA C++", source,
                    "broken forward(2): error: identifier \"second\" is undefined\n\n1 error\n");
  CHECK(text.find("custom_op broken: the CUDA C++ source does not compile:") == 0);
  CHECK(text.find("   1 | first\n > 2 | second\n   3 | third") != std::string::npos);
}

TEST(gradients_are_summed_over_what_was_broadcast) {
  // y is x0 * x1; the gradient op gives both gradients in the full shape.
  CustomOp gradient = of_floats("product", 4);
  gradient.outputs = {"dx0", "dx1"};
  gradient.is_elementwise = true;
  CustomOp product = of_floats("product", 2);
  product.is_elementwise = true;
  product.gradient = define_custom_op(gradient);
  const Attributes attributes = {{"op", define_custom_op(product)}};
  Graph graph;
  const ValueId x0 = graph.input("x0", testing::f32({2, 3}));
  const ValueId x1 = graph.input("x1", testing::f32({}));
  const ValueId y = testing::call(graph, "custom_op", {x0, x1}, attributes);
  const ValueId loss =
      testing::call(graph, "reduce_sum", {y}, {{"axes", Shape{}}, {"keepdims", false}});
  const std::vector<ValueId> found = graph.gradients(loss, {x0, x1});
  CHECK_EQUAL(graph.value(found[0]).spec.shape, (Shape{2, 3}));
  CHECK_EQUAL(graph.value(found[1]).spec.shape, Shape{});
  CHECK_EQUAL(testing::count_nodes(graph, "custom_op"), size_t{2});
}

TEST(without_gradient_it_is_not_differentiable) {
  const Attributes attributes = {{"op", define_custom_op(scaled(2, 3))}};
  Graph graph;
  const ValueId x = graph.input("x", testing::f32({}));
  const ValueId y = testing::call(graph, "custom_op", {x}, attributes);
  CHECK_THROWS(ValueError, "custom_op scaled is not differentiable", graph.gradients(y, {x}));
}

TEST(guards_notice_writes_beside_outputs) {
  const TensorSpec spec = testing::f32({3});
  const std::vector<TensorSpec> specs = {spec};
  Backend& cpu = backend(Device{});
  const Tensor x = three_floats();
  for (const int64_t count : {3, 4}) {
    const Attributes attributes = {{"op", define_custom_op(scaled(2, count))}};
    const PlanRequest request{find_op("custom_op"), attributes, specs, specs};
    const auto kernel =
        make_guarded_kernel(cpu, find_kernel_row(cpu, "custom_op")->plan(request), request);
    kernel->finish_planning();
    const Tensor y = three_floats();
    const StoragePtr workspace = allocate_storage(kernel->workspace_bytes(), Device{});
    const void* inputs[] = {x.data()};
    void* outputs[] = {y.data()};
    const KernelArgs args{inputs, outputs, workspace->data()};
    if (count == 3) {
      kernel->run(args);
      CHECK_EQUAL(floats(y), (std::vector<float>{2, -4, 6}));
    } else {
      CHECK_THROWS(DeviceError,
                   "wrote out of bounds: 4 of the 256 bytes behind output 0 (float32 (3,))",
                   kernel->run(args));
    }
  }
}

}  // namespace kerascnn
