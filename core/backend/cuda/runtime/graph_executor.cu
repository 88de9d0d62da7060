#include "core/backend/cuda/runtime/graph_executor.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>

#include "core/backend/collectives.h"
#include "core/backend/cuda/runtime/cupti_tracer.h"
#include "core/backend/cuda/runtime/nccl.h"
#include "core/backend/dependencies.h"
#include "core/base/env.h"
#include "core/base/error.h"
#include "core/memory/poison.h"

namespace kerascnn::cuda {
namespace {

// The number of nodes in a turn of the loop, about. A turn costs the device a few microseconds on
// top of its kernels, and the kernels of two turns don't run side by side, which matters where a
// step has about ten kernels. More nodes gain little and make capture slower.
constexpr int64_t kNodesOfTurn = 512;
constexpr int64_t kLeastOfTurn = 4, kMostOfTurn = 64;  // steps
// Steps with several arenas get this many times as much: there whole steps run side by side.
constexpr int64_t kTimesWithArenas = 2;
// So many runs of one step are left to the loop, such as those of each epoch's last batch. After
// that it is clear that the host looks at the results of each step, and a graph of its own is worth
// its capture.
constexpr int64_t kSingleRunsInLoop = 32;

__global__ void set_turns(int64_t* remaining, int64_t turns) { *remaining = turns; }

// The last node of the loop's body: decides whether there is another turn. There are signals where
// steps meet other processes.
__global__ void count_turn(int64_t* remaining, cudaGraphConditionalHandle another_turn,
                           volatile LoopSignals* signals) {
  *remaining -= 1;
  bool is_over = *remaining <= 0;
  if (signals != nullptr) {
    signals->turn = *remaining;
    is_over = is_over || signals->is_over != 0;
  }
  cudaGraphSetConditional(another_turn, is_over ? 0 : 1);
}

// May a graph with these nodes be the body of a loop?
bool fits_loop(cudaGraph_t graph) {
  size_t count = 0;
  check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  check(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  return std::all_of(nodes.begin(), nodes.end(), [](cudaGraphNode_t node) {
    cudaGraphNodeType type;
    check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
    return type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemcpy ||
           type == cudaGraphNodeTypeMemset || type == cudaGraphNodeTypeEmpty;
  });
}

// The result is a power of two, as numbers of steps often are multiples of one.
int64_t steps_of_turn(int64_t instructions, bool has_arenas) {
  const int64_t nodes = has_arenas ? kTimesWithArenas * kNodesOfTurn : kNodesOfTurn;
  const int64_t steps = nodes / std::max<int64_t>(instructions, 1);
  return static_cast<int64_t>(
      std::bit_floor(static_cast<uint64_t>(std::clamp(steps, kLeastOfTurn, kMostOfTurn))));
}

int64_t count_meetings(const std::vector<Instruction>& instructions) {
  return std::count_if(
      instructions.begin(), instructions.end(),
      [](const Instruction& instruction) { return instruction.kernel->meets_processes(); });
}

void run_one(const Instruction& instruction, cudaStream_t stream, uint32_t settled = 0) {
  try {
    std::optional<TracedCall> traced;
    if (traces_calls()) traced.emplace(instruction.call);
    if (poisons_memory()) {
      for (const MemoryRange& range : overwritten_memory(instruction)) {
        check(cudaMemsetAsync(const_cast<void*>(range.data), kPoison,
                              static_cast<size_t>(range.bytes), stream),
              "cudaMemsetAsync");
      }
    }
    instruction.kernel->run(
        {instruction.inputs, instruction.outputs, instruction.workspace, stream, settled});
  } catch (const LibraryError& error) {
    throw LibraryError(message(instruction.label, ": ", error.what()));
  } catch (const DeviceError& error) {
    throw DeviceError(message(instruction.label, ": ", error.what()));
  }
}

// Ends a capture that an exception left open, so that the stream works again.
class CaptureGuard {
 public:
  explicit CaptureGuard(cudaStream_t stream) : stream_(stream) {}
  ~CaptureGuard() {
    if (!open_) return;
    cudaGraph_t abandoned = nullptr;
    (void)cudaStreamEndCapture(stream_, &abandoned);
    (void)cudaGetLastError();
  }
  // Returns what was captured: a new graph, or the one captured into, which stays its owner's.
  cudaGraph_t end() {
    open_ = false;
    cudaGraph_t captured = nullptr;
    check(cudaStreamEndCapture(stream_, &captured), "cudaStreamEndCapture");
    return captured;
  }

 private:
  cudaStream_t stream_;
  bool open_ = true;
};

// Nodes of a graph that is being captured, and how to wait for each.
class Front {
 public:
  // These nodes are what the next node captured on the stream would wait for.
  static Front of(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaGraphNode_t* nodes = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    size_t count = 0;
    check(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &edges, &count),
          "cudaStreamGetCaptureInfo");
    return Front(GraphNodes(nodes, nodes + count));
  }

  Front() = default;
  explicit Front(const GraphNodes& nodes) {
    for (cudaGraphNode_t node : nodes) add(node, false);
  }

  bool operator==(const Front& other) const { return nodes_ == other.nodes_; }
  const GraphNodes& nodes() const { return nodes_; }

  // With `early` the next node waits by itself and may start while these kernels run.
  void add(const Front& other, bool early = false) {
    for (cudaGraphNode_t node : other.nodes_) add(node, early && is_kernel(node));
  }

  // The kernels among the nodes.
  void for_each_kernel(const std::function<void(cudaGraphNode_t)>& visit) const {
    for (cudaGraphNode_t node : nodes_) {
      if (is_kernel(node)) visit(node);
    }
  }

  // Makes the next node captured on the stream wait for these nodes and for no others.
  void set_on(cudaStream_t stream) {
    const bool is_empty = nodes_.empty();
    check(cudaStreamUpdateCaptureDependencies(stream, is_empty ? nullptr : nodes_.data(),
                                              is_empty ? nullptr : edges_.data(), nodes_.size(),
                                              cudaStreamSetCaptureDependencies),
          "cudaStreamUpdateCaptureDependencies");
  }

 private:
  static bool is_kernel(cudaGraphNode_t node) {
    cudaGraphNodeType type;
    check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
    return type == cudaGraphNodeTypeKernel;
  }

  // Instructions that launch nothing pass on what they wait for, so a node can come twice.
  void add(cudaGraphNode_t node, bool early) {
    if (std::find(nodes_.begin(), nodes_.end(), node) != nodes_.end()) return;
    cudaGraphEdgeData edge{};  // it waits for the node's end
    if (early) {
      edge.from_port = cudaGraphKernelNodePortProgrammatic;
      edge.type = cudaGraphDependencyTypeProgrammatic;
    }
    nodes_.push_back(node);
    edges_.push_back(edge);
  }

  GraphNodes nodes_;
  std::vector<cudaGraphEdgeData> edges_;
};

// Where kernels of different branches could run, those of the longest chain get the multiprocessors
// first.
void set_priorities(const std::vector<PrioritizedNode>& nodes) {
  if (!env_flag("KERASCNN_CUDA_PRIORITIES", true)) return;
  for (const PrioritizedNode& node : nodes) {
    cudaLaunchAttributeValue value{};
    value.priority = node.priority;
    check(cudaGraphKernelNodeSetAttribute(node.kernel, cudaLaunchAttributePriority, &value),
          "cudaGraphKernelNodeSetAttribute");
  }
}

}  // namespace

bool uses_branches() { return env_flag("KERASCNN_CUDA_BRANCHES", true); }

GraphExecutor::GraphExecutor(Context& context, ArenaSteps arenas, LaunchCounters& counters,
                             bool single_steps)
    : context_(context),
      arenas_(std::move(arenas)),
      counters_(counters),
      sizes_(steps_of_turn(size(), arenas_.size() > 1)),
      meetings_(count_meetings(arenas_.front())),
      uses_loops_(env_flag("KERASCNN_CUDA_LOOPS", true)),
      single_runs_(single_steps ? kSingleRunsInLoop : 0) {
  check(cudaMalloc(&remaining_turns_, sizeof(int64_t)), "cudaMalloc of a loop counter");
}

GraphExecutor::~GraphExecutor() {
  // The graph may still be running on the stream, or be about to; what it reads must outlive it.
  (void)cudaStreamSynchronize(context_.quiet_stream());
  (void)cudaFree(remaining_turns_);
}

// Captures the instructions `steps` times. The next work on the stream waits for all of them.
GraphExecutor::CapturedNodes GraphExecutor::capture_instructions(int64_t steps,
                                                                 cudaStream_t stream) {
  const Dependencies dependencies =
      uses_branches() ? find_dependencies(arenas_, steps) : chain_dependencies(size() * steps);
  // Each kernel lets one other start early, the one that depends on it the most: with more, kernels
  // that wait would take the place of those that could run. Where memory is poisoned, a fill comes
  // first, which does not wait by itself.
  const bool any_early = context_.allows_early_starts() && !poisons_memory();
  const std::vector<int32_t> critical = critical_successors(dependencies);
  struct Last {
    Front front;                               // the last nodes
    std::vector<const Instruction*> launched;  // the instructions that these nodes belong to
  };
  std::vector<Last> captured;
  captured.reserve(dependencies.size());
  const std::vector<int64_t> slack = find_slack(dependencies);
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  CapturedNodes nodes{{}, GraphFills(any_early)};
  for (size_t i = 0; i < dependencies.size(); ++i) {
    const Instruction& instruction = instruction_at(arenas_, steps, static_cast<int64_t>(i));
    const bool starts_early = instruction.kernel->starts_early();
    Front front, ending;
    std::vector<const Instruction*> before, running;
    for (int32_t index : dependencies[i]) {
      const bool is_critical = any_early && critical[index] == static_cast<int32_t>(i);
      const bool is_early = is_critical && starts_early;
      const Last& other = captured[index];
      front.add(other.front, is_early);
      if (is_critical) ending.add(other.front);
      before.insert(before.end(), other.launched.begin(), other.launched.end());
      if (is_early) running.insert(running.end(), other.launched.begin(), other.launched.end());
    }
    front.set_on(stream);
    // All kernels before those that may still be running have ended: the latter waited for them
    // before they let this one start.
    run_one(instruction, stream, settled_inputs(instruction, running));
    Front after = Front::of(stream);
    const bool has_launched = !(after == front);
    if (has_launched) {
      std::optional<TracedCall> traced;
      if (traces_calls()) traced.emplace(instruction.call);
      GraphNodes last = after.nodes();
      const GraphNodes fills = nodes.fills.add_kernels(stream, front.nodes(), ending.nodes(), last);
      after = Front(last);
      // Sums over processes need few multiprocessors, and other GPUs wait for them.
      const int priority = instruction.kernel->meets_processes()
                               ? greatest
                               : static_cast<int>(std::min<int64_t>(greatest + slack[i], least));
      const auto set_priority = [&](cudaGraphNode_t kernel) {
        nodes.kernels.push_back({kernel, priority});
      };
      after.for_each_kernel(set_priority);
      std::for_each(fills.begin(), fills.end(), set_priority);
    }
    captured.push_back({std::move(after), has_launched ? std::vector{&instruction} : before});
  }
  Front last;
  for (int32_t index : find_leaves(dependencies)) last.add(captured[index].front);
  last.set_on(stream);
  return nodes;
}

GraphExecutor::Captured GraphExecutor::capture_loop(int64_t steps) {
  Captured loop;
  cudaGraph_t graph = nullptr;
  check(cudaGraphCreate(&graph, 0), "cudaGraphCreate");
  loop.graph = CudaGraph(graph);

  cudaGraphConditionalHandle another_turn;
  check(cudaGraphConditionalHandleCreate(&another_turn, graph, 1, cudaGraphCondAssignDefault),
        "cudaGraphConditionalHandleCreate");
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = another_turn;
  params.conditional.type = cudaGraphCondTypeWhile;
  params.conditional.size = 1;
  cudaGraphNode_t node;
  check(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params), "cudaGraphAddNode (while)");

  const std::lock_guard capturing(context_.capturing());
  const cudaStream_t stream = context_.capture_stream();
  // The mode is relaxed because a kernel's first launch may load its module, which the stricter
  // modes forbid.
  check(cudaStreamBeginCaptureToGraph(stream, params.conditional.phGraph_out[0], nullptr, nullptr,
                                      0, cudaStreamCaptureModeRelaxed),
        "cudaStreamBeginCaptureToGraph");
  CaptureGuard guard(stream);
  try {
    CapturedNodes nodes = capture_instructions(steps, stream);
    LoopSignals* const signals = meetings_ > 0 ? loop_signals() : nullptr;
    count_turn<<<1, 1, 0, stream>>>(remaining_turns_, another_turn, signals);
    check_launch("count_turn");
    (void)guard.end();
    nodes.fills.remove_fills();
    set_priorities(nodes.kernels);
  } catch (...) {
    // Destroying a graph whose body could not be captured crashes inside the driver (580), so a few
    // kilobytes are left behind instead.
    (void)loop.graph.release();
    throw;
  }

  cudaGraphExec_t exec = nullptr;
  check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  loop.exec = CudaGraphExec(exec);
  ++counters_.graph_captures;
  return loop;
}

GraphExecutor::Captured GraphExecutor::capture_straight(int64_t steps) {
  Captured straight;
  const std::lock_guard capturing(context_.capturing());
  const cudaStream_t stream = context_.capture_stream();
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  CaptureGuard guard(stream);
  CapturedNodes nodes = capture_instructions(steps, stream);
  straight.graph = CudaGraph(guard.end());
  nodes.fills.remove_fills();
  set_priorities(nodes.kernels);
  cudaGraphExec_t exec = nullptr;
  check(cudaGraphInstantiate(&exec, straight.graph.get(), 0), "cudaGraphInstantiate");
  straight.exec = CudaGraphExec(exec);
  ++counters_.graph_captures;
  return straight;
}

GraphExecutor::Captured& GraphExecutor::find_or_capture_loop(int64_t steps) {
  const auto found = loops_.find(steps);
  if (found != loops_.end()) return found->second;
  return loops_.emplace(steps, capture_loop(steps)).first->second;
}

// NCCL adds nodes by which a thread of the host sends where it has no other way to a GPU, as to
// those of other machines, and a loop's body may have no such nodes.
bool GraphExecutor::loops_may_meet() {
  if (loops_may_meet_) return *loops_may_meet_;
  const std::lock_guard capturing(context_.capturing());
  const cudaStream_t stream = context_.capture_stream();
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  CaptureGuard guard(stream);
  for (const Instruction& instruction : arenas_.front()) {
    if (instruction.kernel->meets_processes()) run_one(instruction, stream);
  }
  const CudaGraph meetings(guard.end());
  loops_may_meet_ = fits_loop(meetings.get());
  return *loops_may_meet_;
}

void GraphExecutor::launch_loop(int64_t steps, int64_t turns) {
  const Captured& loop = find_or_capture_loop(steps);
  const cudaStream_t stream = context_.stream();
  set_turns<<<1, 1, 0, stream>>>(remaining_turns_, turns);
  check_launch("set_turns");
  ++counters_.kernel_launches;
  check_given_up();
  check(cudaGraphLaunch(loop.exec.get(), stream), "cudaGraphLaunch");
  ++counters_.graph_launches;
  note_meetings(meetings_ * steps * turns, stream);
}

void GraphExecutor::run(int64_t steps) {
  if (steps <= 0 || size() == 0) return;
  use_device(context_.index());
  if (is_profiling()) {
    run_profiled(steps);
    return;
  }
  if (steps == 1 && (meetings_ > 0 || ++single_runs_ > kSingleRunsInLoop)) {
    launch_straight(straight_, {{.size = 1, .turns = 1}});
    return;
  }
  const std::vector<LoopRun> runs = sizes_.plan(steps);
  if (!uses_loops_ || (meetings_ > 0 && !loops_may_meet())) {
    launch_straight(straight_, runs);
    return;
  }
  meet_with_graphs(runs, [&](int64_t size) { (void)find_or_capture_loop(size); });
  for (const LoopRun& run : runs) launch_loop(run.size, run.turns);
}

// Where this process has other devices in the sums, all of them make their graphs first: what
// making one asks of the driver may wait for devices, one of which would wait in a sum for the
// graph that is being made. And where one can't make its graph, none has started.
void GraphExecutor::meet_with_graphs(const std::vector<LoopRun>& runs,
                                     const std::function<void(int64_t)>& capture) {
  if (meetings_ == 0) return;
  for (const LoopRun& run : runs) capture(run.size);
  meet_devices_of_process();
}

void GraphExecutor::launch_straight(std::map<int64_t, Captured>& graphs,
                                    const std::vector<LoopRun>& runs) {
  meet_with_graphs(runs, [&](int64_t size) { (void)find_or_capture(graphs, size); });
  for (const LoopRun& run : runs) launch_turns(graphs, run);
}

GraphExecutor::Captured& GraphExecutor::find_or_capture(std::map<int64_t, Captured>& graphs,
                                                        int64_t steps) {
  const auto found = graphs.find(steps);
  if (found != graphs.end()) return found->second;
  return graphs.emplace(steps, capture_straight(steps)).first->second;
}

// Does the same as run(), but the host repeats the turns, because CUPTI does not know the kernels
// in a loop's body.
void GraphExecutor::run_profiled(int64_t steps) {
  CuptiTracer::get().ensure_started();
  if (profile_session_ != profile_session()) {
    check(cudaStreamSynchronize(context_.stream()), "cudaStreamSynchronize");
    profiled_.clear();
    profile_session_ = profile_session();
  }
  launch_straight(profiled_, sizes_.plan(steps));
}

void GraphExecutor::launch_turns(std::map<int64_t, Captured>& graphs, const LoopRun& run) {
  const Captured& graph = find_or_capture(graphs, run.size);
  for (int64_t turn = 0; turn < run.turns; ++turn) {
    const cudaStream_t stream = context_.stream();
    check_given_up();
    check(cudaGraphLaunch(graph.exec.get(), stream), "cudaGraphLaunch");
    ++counters_.graph_launches;
    note_meetings(meetings_ * run.size, stream);
  }
}

void GraphExecutor::run_later(int64_t steps) {
  if (steps <= 0 || size() == 0) return;
  if (meetings_ > 0) {
    run(steps);
    return;
  }
  use_device(context_.index());
  context_.later_runs().add(*this, steps);
}

LaunchExecutor::LaunchExecutor(Context& context, std::vector<Instruction> instructions,
                               LaunchCounters& counters)
    : context_(context), instructions_(std::move(instructions)), counters_(counters) {}

void LaunchExecutor::run(int64_t steps) {
  use_device(context_.index());
  if (count_meetings(instructions_) > 0) meet_devices_of_process();
  for (int64_t step = 0; step < steps; ++step) {
    for (const Instruction& instruction : instructions_) {
      run_one(instruction, context_.stream());
      ++counters_.kernel_launches;
      // Waiting after each kernel puts the name of the one that failed into the error.
      check(cudaStreamSynchronize(context_.stream()), instruction.label);
    }
  }
}

}  // namespace kerascnn::cuda
