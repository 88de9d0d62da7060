// The CPU's own kernels of convolutions with max pooling, and of their gradients, are compared with
// the nodes that they replace. Under the sanitizers these tests find reads and writes outside the
// images.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "check.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::f32;

struct Layer {
  Shape x, kernel, padding, window, pool_strides;
  Shape strides = {1, 1};

  Attributes convolution() const {
    return {{"strides", strides},
            {"padding", padding},
            {"dilations", Shape{1, 1}},
            {"groups", int64_t{1}}};
  }
  Attributes pooling() const {
    return {{"window", window}, {"strides", pool_strides}, {"padding", Shape(4, 0)}};
  }
  Attributes convolution(std::string_view activation) const {
    Attributes all = convolution();
    all.set("activation", std::string(activation));
    all.set("activation_alpha", 0.25);
    return all;
  }
};

// The layers have one channel or many, filters and positions that do not fill a vector, kernels
// with more rows than a piece has, runs with more vectors than a piece has, and windows that
// overlap, lie apart or leave a border.
const Layer kLayers[] = {
    {{3, 28, 28, 1}, {3, 3, 1, 32}, {1, 1, 1, 1}, {2, 2}, {2, 2}},
    {{2, 9, 11, 1}, {5, 5, 1, 7}, {2, 2, 2, 2}, {2, 2}, {2, 2}},
    {{2, 10, 9, 3}, {3, 3, 3, 21}, {1, 0, 0, 2}, {2, 2}, {2, 2}},
    {{3, 13, 13, 32}, {3, 3, 32, 64}, {0, 0, 0, 0}, {2, 2}, {2, 2}},
    {{2, 11, 10, 17}, {7, 5, 17, 19}, {3, 3, 2, 2}, {2, 2}, {2, 2}},
    {{1, 7, 8, 70}, {2, 5, 70, 5}, {1, 1, 2, 2}, {3, 2}, {2, 2}},
    {{1, 34, 37, 16}, {3, 3, 16, 3}, {1, 1, 1, 1}, {2, 2}, {3, 4}},
    {{2, 17, 12, 6}, {3, 2, 6, 18}, {0, 1, 1, 0}, {1, 3}, {1, 3}, {2, 1}},
    {{2, 8, 15, 1}, {4, 3, 1, 20}, {1, 1, 0, 0}, {1, 4}, {1, 3}},
    {{2, 6, 8, 20}, {1, 1, 20, 33}, {0, 0, 0, 0}, {2, 2}, {2, 2}},
};

using Values = std::vector<Tensor>;

Values run(std::string_view op, const Values& inputs, const Attributes& attributes) {
  Graph graph;
  std::vector<ValueId> ids;
  for (const Tensor& input : inputs) ids.push_back(graph.input("input", input.spec()));
  auto program =
      Program::compile(graph, graph.apply(op, ids, attributes), Device{}, {.optimize = false});
  program->run(inputs);
  Values outputs = program->outputs();
  return outputs;
}

// Runs one kernel of this fusion, which computes what `trace` records for the values of the inputs.
template <typename Trace>
Values run_fused(std::string_view fusion, const Values& inputs, const Trace& trace) {
  Graph graph;
  std::vector<ValueId> ids;
  for (const Tensor& input : inputs) ids.push_back(graph.input("input", input.spec()));
  auto program = Program::compile(graph, trace(graph, ids), Device{});
  CHECK_EQUAL(program->describe().back().call->op, fusion);
  program->run(inputs);
  Values outputs = program->outputs();
  return outputs;
}

Attributes with(Attributes attributes, const char* name, const Shape& shape) {
  attributes.set(name, shape);
  return attributes;
}

// A layer's inputs, and what its gradients read.
struct Call {
  Tensor x, kernel, bias, y, index, gy;
  Shape wide_shape;

  Call(const Layer& layer, std::string_view activation, std::mt19937& random)
      : x(testing::random_tensor(layer.x, random)),
        kernel(testing::random_tensor(layer.kernel, random)),
        bias(testing::random_tensor({layer.kernel[3]}, random)) {
    const Values wide = run("conv2d", {x, kernel, bias}, layer.convolution(activation));
    wide_shape = wide[0].spec().shape;
    const Values pooled = run("max_pool2d", wide, layer.pooling());
    y = pooled[0];
    index = pooled[1];
    gy = testing::random_tensor(y.spec().shape, random);
  }

  Values own_forward(const Layer& layer, std::string_view activation) const {
    return run_fused("conv2d_max_pool2d", {x, kernel, bias}, [&](Graph& graph, const auto& ids) {
      const ValueId wide = testing::call(graph, "conv2d", ids, layer.convolution(activation));
      return graph.apply("max_pool2d", {wide}, layer.pooling());
    });
  }
  // `ids` are those of gy, y and index.
  ValueId trace_spread(Graph& graph, const std::vector<ValueId>& ids, const Layer& layer,
                       std::string_view activation) const {
    ValueId narrow = ids[0];
    if (activation == "relu") narrow = testing::call(graph, "relu_grad", {ids[0], ids[1]});
    if (activation == "leaky_relu") {
      narrow =
          testing::call(graph, "leaky_relu_grad", {ids[0], ids[1]}, {{"negative_slope", 0.25}});
    }
    return testing::call(graph, "max_pool2d_grad", {narrow, ids[2]},
                         with(layer.pooling(), "input_shape", wide_shape));
  }
  Values own_wgrad(const Layer& layer, std::string_view activation) const {
    return run_fused(
        "conv2d_max_pool2d_wgrad", {gy, y, index, x}, [&](Graph& graph, const auto& ids) {
          const ValueId wide = trace_spread(graph, ids, layer, activation);
          return std::vector{testing::call(graph, "conv2d_wgrad", {ids[3], wide},
                                           with(layer.convolution(), "kernel_shape", layer.kernel)),
                             testing::call(graph, "reduce_sum", {wide},
                                           {{"axes", Shape{0, 1, 2}}, {"keepdims", false}})};
        });
  }
  Values own_dgrad(const Layer& layer, std::string_view activation) const {
    return run_fused("conv2d_max_pool2d_dgrad", {gy, y, index, kernel},
                     [&](Graph& graph, const auto& ids) {
                       const ValueId wide = trace_spread(graph, ids, layer, activation);
                       return graph.apply("conv2d_dgrad", {wide, ids[3]},
                                          with(layer.convolution(), "input_shape", layer.x));
                     });
  }

  // Returns the gradient of the convolution's result, before the pooling.
  Tensor spread(const Layer& layer, std::string_view activation) const {
    Tensor narrow = gy;
    if (activation == "relu") narrow = run("relu_grad", {gy, y}, {})[0];
    if (activation == "leaky_relu") {
      narrow = run("leaky_relu_grad", {gy, y}, {{"negative_slope", 0.25}})[0];
    }
    return run("max_pool2d_grad", {narrow, index},
               with(layer.pooling(), "input_shape", wide_shape))[0];
  }
  Values wgrad(const Layer& layer, std::string_view activation) const {
    const Tensor wide = spread(layer, activation);
    return {
        run("conv2d_wgrad", {x, wide}, with(layer.convolution(), "kernel_shape", layer.kernel))[0],
        run("reduce_sum", {wide}, {{"axes", Shape{0, 1, 2}}, {"keepdims", false}})[0]};
  }
  Values dgrad(const Layer& layer, std::string_view activation) const {
    return run("conv2d_dgrad", {spread(layer, activation), kernel},
               with(layer.convolution(), "input_shape", layer.x));
  }
};

// The norm of the difference is judged: float32 sums of up to some thousand products have another
// order here. What is not finite has to be the same.
void check_close(const Values& received, const Values& wanted) {
  CHECK_EQUAL(received.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto a = testing::floats(received[i]), b = testing::floats(wanted[i]);
    CHECK_EQUAL(a.size(), b.size());
    double error = 0, norm = 0;
    for (size_t k = 0; k < a.size(); ++k) {
      if (!std::isfinite(b[k])) {
        CHECK(std::isnan(b[k]) ? std::isnan(a[k]) : a[k] == b[k]);
        continue;
      }
      error += std::pow(static_cast<double>(a[k]) - b[k], 2);
      norm += std::pow(static_cast<double>(b[k]), 2);
    }
    CHECK(error <= 1e-10 * norm);
  }
}

TEST(own_gradients_are_those_of_the_parts) {
  std::mt19937 random(3);
  for (const Layer& layer : kLayers) {
    for (const char* activation : {"relu", "linear", "leaky_relu"}) {
      const Call call(layer, activation, random);
      check_close(call.own_wgrad(layer, activation), call.wgrad(layer, activation));
      check_close(call.own_dgrad(layer, activation), call.dgrad(layer, activation));
    }
  }
}

TEST(own_pooled_convolutions_are_those_of_the_parts) {
  std::mt19937 random(4);
  for (const Layer& layer : kLayers) {
    for (const char* activation : {"relu", "linear"}) {
      const Call call(layer, activation, random);
      // oneDNN is faster for these.
      if (layer.kernel[2] >= 16 || layer.window != Shape{2, 2}) continue;
      const Values own = call.own_forward(layer, activation);
      check_close({own[0]}, {call.y});
      CHECK(own[1].spec() == call.index.spec());
    }
  }
}

// A copy of the tensor in which one number is replaced.
Tensor changed(const Tensor& tensor, size_t at, float value) {
  std::vector<float> data = testing::floats(tensor);
  data[at % data.size()] = value;
  return Tensor::from_host(data.data(), tensor.spec(), Device{});
}

// Zero times infinity or NaN is NaN, so places whose gradient is zero count too, as they do in the
// separate nodes.
TEST(what_is_not_finite_is_passed_on_as_by_the_parts) {
  std::mt19937 random(5);
  for (const Layer& layer : kLayers) {
    const Call call(layer, "relu", random);
    for (const float value :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      for (int i = 0; i < 3; ++i) {
        Call bad = call;
        bad.x = changed(call.x, random(), value);
        check_close(bad.own_wgrad(layer, "relu"), bad.wgrad(layer, "relu"));
        bad.kernel = changed(call.kernel, random(), value);
        check_close(bad.own_dgrad(layer, "relu"), bad.dgrad(layer, "relu"));
        bad = call;
        bad.gy = changed(call.gy, random(), value);
        check_close(bad.own_wgrad(layer, "relu"), bad.wgrad(layer, "relu"));
        check_close(bad.own_dgrad(layer, "relu"), bad.dgrad(layer, "relu"));
      }
    }
  }
}

// An index that no pooling has made must not lead to a place outside the window.
TEST(wrong_indices_stay_inside) {
  std::mt19937 random(6);
  for (const Layer& layer : kLayers) {
    Call call(layer, "linear", random);
    const std::vector<uint8_t> wrong(static_cast<size_t>(call.index.size()), 255);
    call.index = Tensor::from_host(wrong.data(), call.index.spec(), Device{});
    for (const Tensor& result : call.own_wgrad(layer, "linear")) {
      for (const float value : testing::floats(result)) CHECK(std::isfinite(value));
    }
    for (const float value : testing::floats(call.own_dgrad(layer, "linear")[0])) {
      CHECK_EQUAL(value, 0.0f);
    }
  }
}

TEST(gradients_repeat_their_bits) {
  std::mt19937 random(7);
  for (const Layer& layer : kLayers) {
    const Call call(layer, "relu", random);
    for (int i = 0; i < 2; ++i) {
      const auto same = [](const Tensor& a, const Tensor& b) {
        return testing::floats(a) == testing::floats(b);
      };
      const Values first = call.own_wgrad(layer, "relu"), second = call.own_wgrad(layer, "relu");
      CHECK(same(first[0], second[0]) && same(first[1], second[1]));
      CHECK(same(call.own_dgrad(layer, "relu")[0], call.own_dgrad(layer, "relu")[0]));
    }
  }
}

}  // namespace
}  // namespace kerascnn
