// Runs a program as a CUDA graph whose loop over steps is on the device, so that any number of
// steps is at most two launches from the host. In the graph a kernel waits only for those whose
// results or memory it needs (dependencies.h), so that small kernels run side by side, those of
// the next step beside the last ones of the step before. On the longest path a kernel starts while
// the one before still runs, and waits for its end by itself (device/begin.cuh), which hides what a
// start costs.
#pragma once

#include <vector>

#include "core/backend/backend.h"
#include "core/backend/cuda/runtime/context.h"

namespace kerascnn::cuda {

// May kernels of a graph run side by side (KERASCNN_CUDA_BRANCHES)?
bool uses_branches();

// Shared by the executors of one device: what the host has launched.
struct LaunchCounters {
  int64_t kernel_launches = 0;
  int64_t graph_launches = 0;
  int64_t graph_captures = 0;
};

struct PrioritizedNode {
  cudaGraphNode_t kernel;
  int priority;  // of a stream: smaller numbers come first
};

class GraphExecutor : public Executor {
 public:
  GraphExecutor(Context& context, std::vector<Instruction> instructions, LaunchCounters& counters);
  ~GraphExecutor() override;

  void run(int64_t steps) override;

 private:
  // A graph that is one WHILE node; each turn of its body runs the instructions `unroll` times.
  struct Loop {
    int64_t unroll = 1;
    CudaGraph graph;
    CudaGraphExec exec;
  };

  Loop capture(int64_t unroll);
  void capture_single();
  std::vector<PrioritizedNode> capture_instructions(int64_t unroll);
  void launch_loop(Loop& loop, int64_t turns);

  Context& context_;
  std::vector<Instruction> instructions_;
  LaunchCounters& counters_;
  int64_t* remaining_turns_ = nullptr;  // on the device: what the loop counts down
  std::vector<Loop> loops_;             // by descending unroll; the last unrolls nothing
  // The instructions once, without a loop: what the loop costs shows where steps come one by one.
  CudaGraph single_graph_;
  CudaGraphExec single_;
  int64_t single_runs_ = 0;
};

// Runs the instructions one by one, without graphs: for finding the kernel that fails
// (KERASCNN_CUDA_GRAPHS=0).
class LaunchExecutor : public Executor {
 public:
  LaunchExecutor(Context& context, std::vector<Instruction> instructions, LaunchCounters& counters);
  void run(int64_t steps) override;

 private:
  Context& context_;
  std::vector<Instruction> instructions_;
  LaunchCounters& counters_;
};

}  // namespace kerascnn::cuda
