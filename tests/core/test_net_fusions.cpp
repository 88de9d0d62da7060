// Which fusions does a training step of the reference networks of tests/benchmarks/nets.py get? The
// GPU benchmarks run these networks, and a pattern that no longer matches would only make them
// slower. Kernels that run the matched nodes stand for CUDA's; the CPU's are the real ones.
#include <algorithm>
#include <string>
#include <vector>

#include "check.h"
#include "core/graph/passes/passes.h"
#include "fusion_testing.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::call;
using testing::f32;

struct Net {
  int64_t kernel;
  bool is_padded;
  std::vector<int64_t> filters, hidden;
  bool has_bias, drops, has_adam;
};

const Net kNetA = {3, true, {16}, {}, false, false, false};
const Net kNetB = {5, false, {6, 16}, {120}, true, false, false};
const Net kNetC = {3, true, {32, 64}, {128}, true, false, false};
const Net kNetD = {3, false, {32, 64}, {}, true, true, true};

constexpr int64_t kBatch = 4;
const Attributes kPlain = {{"transpose_a", false}, {"transpose_b", false}};
const Attributes kAll = {{"axes", Shape{}}, {"keepdims", false}};

Attributes to(const char* dtype) { return {{"dtype", std::string(dtype)}}; }

// A training step as `fit` records it.
class Step {
 public:
  explicit Step(const Net& net) : net_(net) {
    const ValueId labels = take({DType::Int32, {60}});
    const ValueId p =
        classifier(call(graph_, "cast", {take({DType::UInt8, {60, 28, 28, 1}})}, to("float32")));
    const ValueId losses = call(graph_, "sparse_cross_entropy", {p, labels}, {{"epsilon", 1e-7}});
    const ValueId loss = call(graph_, "reduce_mean", {losses}, kAll);
    update(graph_.gradients(loss, weights_));
    const ValueId place = call(graph_, "argmax", {p}, {{"axis", int64_t{-1}}});
    const ValueId matches =
        call(graph_, "cast", {call(graph_, "equal", {labels, place})}, to("float32"));
    rooted.outputs = {loss, call(graph_, "reduce_sum", {matches}, kAll)};
  }

  RootedGraph rooted;

 private:
  ValueId take(const TensorSpec& spec) {
    return call(graph_, "take_batch", {graph_.input("data", spec), order_, step_},
                {{"batch_size", kBatch}});
  }

  ValueId weight(const Shape& shape) {
    variables_.push_back(testing::make_variable("weight", shape, 0.0f));
    return weights_.emplace_back(graph_.read(variables_.back()));
  }

  ValueId with_bias(ValueId y, int64_t size) {
    return net_.has_bias ? call(graph_, "add", {y, weight({size})}) : y;
  }

  ValueId classifier(ValueId images) {
    ValueId x = call(graph_, "multiply", {images, graph_.full(f32({}), 1.0 / 255)});
    int64_t channels = 1;
    for (const int64_t filters : net_.filters) {
      const Attributes window = {{"strides", Shape{1, 1}},
                                 {"padding", Shape(4, net_.is_padded ? net_.kernel / 2 : 0)},
                                 {"dilations", Shape{1, 1}},
                                 {"groups", int64_t{1}},
                                 {"activation", std::string("linear")},
                                 {"activation_alpha", 0.0}};
      x = call(graph_, "conv2d", {x, weight({net_.kernel, net_.kernel, channels, filters})},
               window);
      x = call(graph_, "relu", {with_bias(x, filters)});
      x = call(graph_, "max_pool2d", {x},
               {{"window", Shape{2, 2}}, {"strides", Shape{2, 2}}, {"padding", Shape(4, 0)}});
      channels = filters;
    }
    int64_t features = num_elements(graph_.value(x).spec.shape) / kBatch;
    x = call(graph_, "reshape", {x}, {{"shape", Shape{kBatch, features}}});
    if (net_.drops) {
      const ValueId state = graph_.input("state", {DType::Int64, {2}});
      x = call(graph_, "dropout", {x, state}, {{"rate", 0.5}, {"stream", int64_t{1}}});
    }
    for (const int64_t units : net_.hidden) {
      x = call(graph_, "matmul", {x, weight({features, units})}, kPlain);
      x = call(graph_, "relu", {with_bias(x, units)});
      features = units;
    }
    x = with_bias(call(graph_, "matmul", {x, weight({features, 10})}, kPlain), 10);
    return call(graph_, "softmax", {x}, {{"axis", int64_t{-1}}});
  }

  void update(const std::vector<ValueId>& gradients) {
    std::vector<ValueId> inputs = {graph_.input("rate", f32({}))};
    if (net_.has_adam) inputs.push_back(graph_.input("iterations", {DType::Int64, {}}));
    inputs.insert(inputs.end(), weights_.begin(), weights_.end());
    inputs.insert(inputs.end(), gradients.begin(), gradients.end());
    const std::vector<ValueId> weights = weights_;
    if (net_.has_adam) {
      for (int slot = 0; slot < 2; ++slot) {
        for (const ValueId id : weights) inputs.push_back(weight(graph_.value(id).spec.shape));
      }
    }
    const auto count = static_cast<int64_t>(weights.size());
    const Attributes sgd = {{"count", count}, {"momentum", 0.0}, {"nesterov", false}};
    const Attributes adam = {
        {"count", count}, {"beta_1", 0.9}, {"beta_2", 0.999}, {"epsilon", 1e-7}};
    const std::vector<ValueId> updated = net_.has_adam ? graph_.apply("adam_update", inputs, adam)
                                                       : graph_.apply("sgd_update", inputs, sgd);
    for (size_t i = 0; i < updated.size(); ++i) graph_.assign(variables_[i], updated[i]);
  }

  const Net& net_;
  Graph& graph_ = rooted.graph;
  ValueId order_ = graph_.input("order", {DType::Int32, {60}});
  ValueId step_ = graph_.input("step", {DType::Int64, {}});
  std::vector<VariablePtr> variables_;
  std::vector<ValueId> weights_;
};

using Names = std::vector<std::string>;

// The ops of the nodes by name. Other tests check where regions begin and end.
Names names_of(const RootedGraph& rooted) {
  Names names;
  for (const Node& node : rooted.graph.nodes()) {
    const bool is_left_out = node.op == &op_reshape || node.op == &op_region ||
                             node.op->is_elementwise || node.op == &op_reduce_mean;
    if (is_left_out) continue;
    names.push_back(node.op == &op_fused ? node.attributes.get_string("fusion")
                                         : std::string(node.op->name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

void check_names(const RootedGraph& rooted, Names wanted) {
  std::sort(wanted.begin(), wanted.end());
  const Names received = names_of(rooted);
  const auto text = [](const Names& names) {
    std::string all;
    for (const std::string& name : names) all += name + " ";
    return all;
  };
  CHECK_EQUAL(text(received), text(wanted));
}

void check_cuda(const Net& net, const Names& wanted) {
  PassOptions options = testing::with_cuda_fusions();
  options.runs_side_by_side = true;
  check_names(run_passes(Step(net).rooted, options), wanted);
}

void check_cpu(const Net& net, const Names& wanted) {
  PassOptions options;
  options.backend = &backend(Device{});
  options.fusions = options.backend->fusions();
  check_names(run_passes(Step(net).rooted, options), wanted);
}

constexpr const char* kForward = "conv2d_max_pool2d";
constexpr const char* kDgrad = "conv2d_max_pool2d_dgrad";
constexpr const char* kWgrad = "conv2d_max_pool2d_wgrad";
constexpr const char* kHead = "dense_sparse_softmax_cross_entropy_dgrad";

// These are the programs of an H200.
TEST(the_fusions_of_cuda_in_the_reference_networks) {
  check_cuda(kNetA,
             {"take_batches", kForward, kHead, "matmul", kWgrad, "sgd_update", "count_matches"});
  for (const Net& net : {kNetB, kNetC}) {
    check_cuda(
        net, {"take_batches", kForward, kForward, "dense", kHead, "dense_wgrad", "matmul",
              "dense_wgrad", kDgrad, kWgrad, kWgrad, "sgd_update", "sgd_update", "count_matches"});
  }
  check_cuda(kNetD, {"take_batches", kForward, kForward, kHead, "dense_wgrad", kDgrad, kWgrad,
                     kWgrad, "adam_update", "adam_update", "count_matches"});
}

TEST(the_fusions_of_the_cpu_in_the_reference_networks) {
  const Names common = {"take_batch", "take_batch", "sparse_softmax_cross_entropy",
                        "matmul",     "matmul",     "argmax",
                        "reduce_sum"};
  const auto check = [&](const Net& net, Names more) {
    more.insert(more.end(), common.begin(), common.end());
    check_cpu(net, more);
  };
  check(kNetA, {kForward, "matmul", kWgrad, "sgd_update"});
  check(kNetB, {kForward, kForward, "dense", "dense", "matmul", "matmul", "reduce_sum",
                "reduce_sum", kDgrad, kWgrad, kWgrad, "sgd_update"});
  // oneDNN's convolution is faster where there are many channels.
  check(kNetC, {kForward, "conv2d", "max_pool2d", "dense", "dense", "matmul", "matmul",
                "reduce_sum", "reduce_sum", kDgrad, kWgrad, kWgrad, "sgd_update"});
  check(kNetD, {kForward, "conv2d", "max_pool2d", "dropout", "dense", "dropout", "reduce_sum",
                kDgrad, kWgrad, kWgrad, "adam_update"});
}

}  // namespace
}  // namespace kerascnn
