#include "core/backend/cuda/runtime/graph_fills.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/runtime/check.h"
#include "core/base/ceil_div.h"

namespace kerascnn::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1024;

__global__ void fill_words(uint32_t* data, uint32_t word, int64_t count) {
  begin_kernel();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    data[i] = word;
  }
}

struct Fill {
  uint32_t* data = nullptr;
  uint32_t word = 0;
  int64_t count = 0;
};

// What a memset node does, where it fills words that lie side by side.
std::optional<Fill> fill_of(cudaGraphNode_t node) {
  cudaGraphNodeType type;
  check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
  if (type != cudaGraphNodeTypeMemset) return std::nullopt;
  cudaMemsetParams params{};
  check(cudaGraphMemsetNodeGetParams(node, &params), "cudaGraphMemsetNodeGetParams");
  const uint64_t row_bytes = uint64_t{params.width} * params.elementSize;
  const uint64_t bytes = row_bytes * params.height;
  const auto address = reinterpret_cast<uintptr_t>(params.dst);
  const bool is_dense = params.height == 1 || params.pitch == row_bytes;
  if (!is_dense || address % sizeof(uint32_t) != 0 || bytes % sizeof(uint32_t) != 0) {
    return std::nullopt;
  }
  // The value has as many bytes as an element; a word repeats them.
  uint32_t word = params.value;
  if (params.elementSize == 1) word = (word & 0xFFU) * 0x01010101U;
  if (params.elementSize == 2) word = (word & 0xFFFFU) * 0x00010001U;
  return Fill{static_cast<uint32_t*>(params.dst), word,
              static_cast<int64_t>(bytes / sizeof(uint32_t))};
}

bool is_kernel(cudaGraphNode_t node) {
  cudaGraphNodeType type;
  check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
  return type == cudaGraphNodeTypeKernel;
}

bool contains(const GraphNodes& nodes, cudaGraphNode_t node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

struct Edges {
  GraphNodes nodes;
  std::vector<cudaGraphEdgeData> data;
};

// cudaGraphNodeGetDependencies, or cudaGraphNodeGetDependentNodes.
using FindEdges = cudaError_t(cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*, size_t*);

Edges edges_of(cudaGraphNode_t node, FindEdges* find, const char* name) {
  size_t count = 0;
  check(find(node, nullptr, nullptr, &count), name);
  Edges edges{GraphNodes(count), std::vector<cudaGraphEdgeData>(count)};
  if (count > 0) check(find(node, edges.nodes.data(), edges.data.data(), &count), name);
  return edges;
}

Edges dependencies_of(cudaGraphNode_t node) {
  return edges_of(node, cudaGraphNodeGetDependencies, "cudaGraphNodeGetDependencies");
}

Edges dependents_of(cudaGraphNode_t node) {
  return edges_of(node, cudaGraphNodeGetDependentNodes, "cudaGraphNodeGetDependentNodes");
}

// The nodes between `before` and `last`, without the former and with the latter.
GraphNodes nodes_between(const GraphNodes& before, const GraphNodes& last) {
  GraphNodes found, waiting = last;
  while (!waiting.empty()) {
    const cudaGraphNode_t node = waiting.back();
    waiting.pop_back();
    if (contains(before, node) || contains(found, node)) continue;
    found.push_back(node);
    const GraphNodes earlier = dependencies_of(node).nodes;
    waiting.insert(waiting.end(), earlier.begin(), earlier.end());
  }
  return found;
}

cudaGraph_t captured_graph(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  check(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr),
        "cudaStreamGetCaptureInfo");
  return graph;
}

cudaGraphNode_t add_kernel(cudaGraph_t graph, Fill fill, const Edges& dependencies) {
  const int64_t blocks = std::clamp<int64_t>(ceil_div(fill.count, kThreads), 1, kMostBlocks);
  void* arguments[] = {&fill.data, &fill.word, &fill.count};
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeKernel;
  params.kernel.func = reinterpret_cast<void*>(fill_words);
  params.kernel.gridDim = dim3(static_cast<unsigned>(blocks));
  params.kernel.blockDim = dim3(kThreads);
  params.kernel.kernelParams = arguments;
  cudaGraphNode_t node = nullptr;
  check(cudaGraphAddNode(&node, graph, dependencies.nodes.data(), dependencies.data.data(),
                         dependencies.nodes.size(), &params),
        "cudaGraphAddNode (kernel)");
  return node;
}

}  // namespace

GraphNodes GraphFills::add_kernels(cudaStream_t stream, const GraphNodes& before,
                                   const GraphNodes& ending, GraphNodes& last) {
  GraphNodes kernels;
  for (cudaGraphNode_t node : nodes_between(before, last)) {
    const std::optional<Fill> fill = fill_of(node);
    if (!fill) continue;
    Edges dependencies = dependencies_of(node);
    for (size_t i = 0; i < dependencies.nodes.size(); ++i) {
      const cudaGraphNode_t other = dependencies.nodes[i];
      const bool is_ending = contains(ending, other) || !contains(before, other);
      if (!may_start_early_ || !is_ending || !is_kernel(other)) continue;
      dependencies.data[i].from_port = cudaGraphKernelNodePortProgrammatic;
      dependencies.data[i].type = cudaGraphDependencyTypeProgrammatic;
    }
    const cudaGraph_t graph = captured_graph(stream);
    const cudaGraphNode_t kernel = add_kernel(graph, *fill, dependencies);
    for (cudaGraphNode_t next : dependents_of(node).nodes) {
      check(cudaGraphAddDependencies(graph, &kernel, &next, nullptr, 1),
            "cudaGraphAddDependencies");
    }
    std::replace(last.begin(), last.end(), node, kernel);
    kernels.push_back(kernel);
    replaced_.push_back(node);
  }
  return kernels;
}

void GraphFills::remove_fills() {
  for (cudaGraphNode_t node : replaced_) {
    check(cudaGraphDestroyNode(node), "cudaGraphDestroyNode");
  }
  replaced_.clear();
}

}  // namespace kerascnn::cuda
