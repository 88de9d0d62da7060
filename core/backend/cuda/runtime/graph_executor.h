// Runs a program as a CUDA graph whose loop over steps is on the device, so that any number of
// steps is a few launches from the host. In the graph a kernel waits only for those whose results
// or memory it needs (dependencies.h). So small kernels run side by side, and those of the next
// step run beside the last ones of the step before; with several arenas whole steps do. On the
// longest path a kernel starts while the one before still runs, and waits for its end by itself
// (device/begin.cuh), which hides the cost of a start.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/graph_fills.h"
#include "core/backend/loop_sizes.h"

namespace kerascnn::cuda {

// May kernels of a graph run side by side (KERASCNN_CUDA_BRANCHES)?
bool uses_branches();

// Counts what the host has launched; the executors of one device share it.
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
  // `single_steps` says that runs will have one step each; they get a graph without a loop at once.
  GraphExecutor(Context& context, ArenaSteps arenas, LaunchCounters& counters, bool single_steps);
  ~GraphExecutor() override;

  void run(int64_t steps) override;
  void run_later(int64_t steps) override;

 private:
  struct Captured {
    CudaGraph graph;
    CudaGraphExec exec;
  };

  int64_t size() const { return static_cast<int64_t>(arenas_.front().size()); }
  // A graph that is one WHILE node; each turn of its body runs some steps.
  Captured capture_loop(int64_t steps);
  // The same steps once, without a loop.
  Captured capture_straight(int64_t steps);
  // What is left to do for nodes when their graph has been captured.
  struct CapturedNodes {
    std::vector<PrioritizedNode> kernels;
    GraphFills fills;
  };
  CapturedNodes capture_instructions(int64_t steps, cudaStream_t stream);
  Captured& find_or_capture_loop(int64_t steps);
  void launch_loop(int64_t steps, int64_t turns);
  // May the kernels that meet other processes be in a loop's body?
  bool loops_may_meet();
  // Before steps that meet others: captures the graphs of these runs, and waits for the process'
  // other devices.
  void meet_with_graphs(const std::vector<LoopRun>& runs,
                        const std::function<void(int64_t steps)>& capture);
  // The host repeats the steps of straight graphs, which `graphs` has or gets.
  void launch_straight(std::map<int64_t, Captured>& graphs, const std::vector<LoopRun>& runs);
  // The straight graph of so many steps.
  Captured& find_or_capture(std::map<int64_t, Captured>& graphs, int64_t steps);
  // The host repeats the steps that `graphs` has, or gets, a straight graph of.
  void launch_turns(std::map<int64_t, Captured>& graphs, const LoopRun& run);
  void run_profiled(int64_t steps);

  Context& context_;
  ArenaSteps arenas_;
  LaunchCounters& counters_;
  LoopSizes sizes_;
  // How many kernels of a step meet other processes. Where there are any, runs are started at once,
  // because others wait for them.
  int64_t meetings_;
  // Steps that meet others are in loops where both hold.
  bool uses_loops_;                     // KERASCNN_CUDA_LOOPS
  std::optional<bool> loops_may_meet_;  // what loops_may_meet() has found
  int64_t* remaining_turns_ = nullptr;  // on the device: what a loop counts down
  std::map<int64_t, Captured> loops_;   // by the steps of a turn
  // Graphs without a loop, since a loop's cost shows where steps come one by one.
  std::map<int64_t, Captured> straight_;  // by their steps
  int64_t single_runs_;
  // Turns without loops, for the recording that goes on: a kernel is known by the node that it was
  // captured as in such graphs only.
  std::map<int64_t, Captured> profiled_;
  int64_t profile_session_ = 0;
};

// Runs the instructions one by one, without graphs, which shows which kernel fails
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
