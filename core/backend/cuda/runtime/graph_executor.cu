#include "core/backend/cuda/runtime/graph_executor.h"

#include "core/base/error.h"

namespace kerascnn::cuda {
namespace {

// Steps per turn of the unrolled loop. A turn costs the device a few microseconds on top of its
// kernels, which matters beside steps of some ten kernels; more than this gains little and makes
// capture slower.
constexpr int64_t kUnroll = 8;

__global__ void set_turns(int64_t* remaining, int64_t turns) { *remaining = turns; }

// The last node of the loop's body: decides whether there is another turn.
__global__ void count_turn(int64_t* remaining, cudaGraphConditionalHandle another_turn) {
  *remaining -= 1;
  cudaGraphSetConditional(another_turn, *remaining > 0 ? 1 : 0);
}

void run_one(const Instruction& instruction, cudaStream_t stream) {
  try {
    instruction.kernel->run(
        {instruction.inputs, instruction.outputs, instruction.workspace, stream});
  } catch (const LibraryError& error) {
    throw LibraryError(message(instruction.label, ": ", error.what()));
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
  void end() {
    open_ = false;
    cudaGraph_t body = nullptr;  // the graph that was captured into; it stays its owner's
    check(cudaStreamEndCapture(stream_, &body), "cudaStreamEndCapture");
  }

 private:
  cudaStream_t stream_;
  bool open_ = true;
};

}  // namespace

GraphExecutor::GraphExecutor(Context& context, std::vector<Instruction> instructions,
                             LaunchCounters& counters)
    : context_(context), instructions_(std::move(instructions)), counters_(counters) {
  check(cudaMalloc(&remaining_turns_, sizeof(int64_t)), "cudaMalloc of a loop counter");
}

GraphExecutor::~GraphExecutor() {
  // The graph may still be running on the stream; what it reads must outlive it.
  (void)cudaStreamSynchronize(context_.stream());
  (void)cudaFree(remaining_turns_);
}

void GraphExecutor::run_instructions() {
  for (const Instruction& instruction : instructions_) run_one(instruction, context_.stream());
}

GraphExecutor::Loop GraphExecutor::capture(int64_t unroll) {
  Loop loop;
  loop.unroll = unroll;
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

  const cudaStream_t stream = context_.stream();
  // Relaxed: a kernel's first launch may load its module, which the stricter modes forbid.
  check(cudaStreamBeginCaptureToGraph(stream, params.conditional.phGraph_out[0], nullptr, nullptr,
                                      0, cudaStreamCaptureModeRelaxed),
        "cudaStreamBeginCaptureToGraph");
  CaptureGuard guard(stream);
  for (int64_t i = 0; i < unroll; ++i) run_instructions();
  count_turn<<<1, 1, 0, stream>>>(remaining_turns_, another_turn);
  check_launch("count_turn");
  guard.end();

  cudaGraphExec_t exec = nullptr;
  check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  loop.exec = CudaGraphExec(exec);
  ++counters_.graph_captures;
  return loop;
}

void GraphExecutor::launch_loop(Loop& loop, int64_t turns) {
  const cudaStream_t stream = context_.stream();
  set_turns<<<1, 1, 0, stream>>>(remaining_turns_, turns);
  check_launch("set_turns");
  ++counters_.kernel_launches;
  check(cudaGraphLaunch(loop.exec.get(), stream), "cudaGraphLaunch");
  ++counters_.graph_launches;
}

void GraphExecutor::run(int64_t steps) {
  if (steps <= 0 || instructions_.empty()) return;
  check(cudaSetDevice(context_.index()), "cudaSetDevice");
  // The short loop serves single steps and remainders; the unrolled one is captured when it first
  // pays.
  if (loops_.empty()) loops_.push_back(capture(1));
  if (steps >= 2 * kUnroll) {
    if (loops_.size() == 1) loops_.insert(loops_.begin(), capture(kUnroll));
    launch_loop(loops_.front(), steps / kUnroll);
    steps %= kUnroll;
  }
  if (steps > 0) launch_loop(loops_.back(), steps);
}

LaunchExecutor::LaunchExecutor(Context& context, std::vector<Instruction> instructions,
                               LaunchCounters& counters)
    : context_(context), instructions_(std::move(instructions)), counters_(counters) {}

void LaunchExecutor::run(int64_t steps) {
  check(cudaSetDevice(context_.index()), "cudaSetDevice");
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
