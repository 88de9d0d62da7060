// Fills of memory in captured graphs. Libraries such as cuDNN zero counters in their workspaces by
// cudaMemsetAsync. As a node of a graph a fill starts when all work before it has ended, and a
// kernel behind it waits as long again: on an H200 three microseconds each, in a training step of
// ResNet-18 seven times between two convolutions. A kernel in its place can start early.
#pragma once

#include <cuda_runtime.h>

#include <vector>

namespace kerascnn::cuda {

using GraphNodes = std::vector<cudaGraphNode_t>;

class GraphFills {
 public:
  // `may_start_early` says whether the device has kernels that wait by themselves (begin.cuh).
  explicit GraphFills(bool may_start_early) : may_start_early_(may_start_early) {}

  // Adds a kernel for each fill that was captured on the stream between the nodes `before` and
  // `last`, and returns those kernels. What waits for the fill waits for the kernel too. Of the
  // nodes that it waits for, it starts while those still run that are among `ending` or were
  // captured behind `before`.
  GraphNodes add_kernels(cudaStream_t stream, const GraphNodes& before, const GraphNodes& ending,
                         GraphNodes& last);

  // Removes the fills that have kernels. A graph that is being captured can't lose nodes.
  void remove_fills();

 private:
  bool may_start_early_;
  GraphNodes replaced_;
};

}  // namespace kerascnn::cuda
