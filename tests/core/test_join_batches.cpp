// CUDA's fusion that takes the batches of several arrays must give the same bits as the separate
// nodes.
#include <cstring>

#include "check.h"
#include "core/graph/passes/passes.h"
#include "fusion_testing.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::call;
using testing::count_fused;
using testing::count_nodes;

const PassOptions kAlways = testing::with_cuda_fusions();

struct Batches {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  ValueId images = graph.input("images", {DType::UInt8, {9, 3, 5}});
  ValueId labels = graph.input("labels", {DType::Int32, {9}});
  ValueId order = graph.input("order", {DType::Int32, {9}});
  ValueId step = graph.input("step", {DType::Int64, {}});

  ValueId take(ValueId data, int64_t batch_size = 4) {
    return call(graph, "take_batch", {data, order, step}, {{"batch_size", batch_size}});
  }
  ValueId scaled(ValueId batch, double scale) {
    const ValueId floats = call(graph, "cast", {batch}, {{"dtype", "float32"}});
    return call(graph, "multiply", {floats, graph.full({DType::Float32, {}}, scale)});
  }
};

std::vector<std::vector<char>> results(const RootedGraph& rooted) {
  std::vector<uint8_t> images(9 * 15);
  for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<uint8_t>(37 * i);
  const std::vector<int32_t> labels = {4, 0, 7, 1, 2, 8, 3, 5, 6},
                             order = {8, 1, 0, 7, 3, 2, 6, 5, 4};
  const int64_t step = 1;
  const std::vector<const void*> data = {images.data(), labels.data(), order.data(), &step};
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < data.size(); ++i) {
    const TensorSpec& spec = rooted.graph.value(rooted.graph.inputs()[i]).spec;
    inputs.push_back(Tensor::from_host(data[i], spec, Device{}));
  }
  auto program = Program::compile(rooted.graph, rooted.outputs, Device{}, {.optimize = false});
  program->run(inputs);
  std::vector<std::vector<char>> all;
  for (const Tensor& output : program->outputs()) {
    all.emplace_back(static_cast<size_t>(output.bytes()));
    output.copy_to_host(all.back().data());
  }
  return all;
}

TEST(images_and_labels_are_taken_together) {
  Batches b;
  b.rooted.outputs = {b.scaled(b.take(b.images), 1.0 / 255), b.take(b.labels)};
  const RootedGraph apart = run_passes(b.rooted), joined = run_passes(b.rooted, kAlways);
  CHECK_EQUAL(count_nodes(apart.graph, "take_batch"), 2u);
  CHECK_EQUAL(count_nodes(joined.graph, "take_batch"), 0u);
  CHECK_EQUAL(count_fused(joined.graph, "take_batches"), 1u);
  CHECK(results(apart) == results(joined));
}

TEST(batches_of_other_sizes_are_taken_apart) {
  Batches b;
  b.rooted.outputs = {b.take(b.images), b.take(b.labels, 3), b.take(b.order)};
  const RootedGraph joined = run_passes(b.rooted, kAlways);
  CHECK_EQUAL(count_fused(joined.graph, "take_batches"), 1u);
  CHECK_EQUAL(count_nodes(joined.graph, "take_batch"), 1u);
  CHECK(results(run_passes(b.rooted)) == results(joined));
}

TEST(one_batch_stays) {
  Batches b;
  b.rooted.outputs = {b.take(b.labels)};
  CHECK_EQUAL(count_fused(run_passes(b.rooted, kAlways).graph, "take_batches"), 0u);
}

TEST(many_arrays_are_taken_eight_at_a_time) {
  for (const size_t count : {8, 9, 12}) {
    Batches b;
    for (size_t i = 0; i < count; ++i) {
      const ValueId more = b.graph.input("more", {DType::Int32, {9}});
      b.rooted.outputs.push_back(b.take(more));
    }
    const RootedGraph joined = run_passes(b.rooted, kAlways);
    CHECK_EQUAL(count_fused(joined.graph, "take_batches"), count == 12 ? 2u : 1u);
    CHECK_EQUAL(count_nodes(joined.graph, "take_batch"), count == 9 ? 1u : 0u);
  }
}

}  // namespace
}  // namespace kerascnn
