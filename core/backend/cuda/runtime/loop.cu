// Loops and choices on a GPU. In a graph that is being captured a loop is a WHILE node and a choice
// is a SWITCH node, whose bodies are captured once: the device decides how often they run, and
// which one. The copies of a step to and from rows read the number of the row from device memory,
// so that all steps are the same launches. A turn of a WHILE node costs as much as several
// launches, so a turn of a loop whose length is known makes several steps. Outside of captures,
// which is for finding faults, the host decides.
#include "core/graph/loop_plan.h"

#include <algorithm>
#include <functional>

#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/base/error.h"

namespace kerascnn::cuda {
namespace {

// BoundLoop::counters.
constexpr int kStep = 0, kCount = 1, kRow = 2;
constexpr size_t kMostCopies = 32;  // of a launch
// The most steps in a turn of the WHILE node, where the number of steps is known.
constexpr int64_t kMostSteps = 16;
constexpr int64_t kMostLaunches = 64;
constexpr int64_t kMostCopyBlocks = 512;

struct CopyBatch {
  RowCopy copies[kMostCopies];
};

template <typename T>
__device__ void copy_as(const char* from, char* to, int64_t bytes) {
  const int64_t count = bytes / static_cast<int64_t>(sizeof(T));
  const T* const source = reinterpret_cast<const T*>(from);
  T* const target = reinterpret_cast<T*>(to);
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    target[i] = source[i];
  }
}

__global__ void copy_rows(CopyBatch batch, const int64_t* counters) {
  const RowCopy& copy = batch.copies[blockIdx.y];
  const int64_t row = counters[kRow];
  const char* const from =
      static_cast<const char*>(copy.from) + (copy.from_row ? row * copy.bytes : 0);
  char* const to = static_cast<char*>(copy.to) + (copy.to_row ? row * copy.bytes : 0);
  const auto all = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to) |
                   static_cast<uintptr_t>(copy.bytes);
  if (all % sizeof(int4) == 0) {
    copy_as<int4>(from, to, copy.bytes);
  } else if (all % sizeof(int) == 0) {
    copy_as<int>(from, to, copy.bytes);
  } else {
    copy_as<char>(from, to, copy.bytes);
  }
}

// `another` is the handle of the WHILE node, where `decides`.
struct Decision {
  cudaGraphConditionalHandle another = 0;
  bool decides = false;
};

__device__ void set_row(int64_t* counters, bool reverse) {
  counters[kRow] = reverse ? counters[kCount] - 1 - counters[kStep] : counters[kStep];
}

__device__ void decide(const int64_t* counters, Decision decision, const bool* goes_on) {
  if (!decision.decides) return;
  const bool has_steps = counters[kStep] < counters[kCount];
  cudaGraphSetConditional(decision.another, has_steps && (goes_on == nullptr || *goes_on) ? 1 : 0);
}

// `most` is the number of steps where no other is given.
__global__ void begin_loop(int64_t* counters, const int64_t* given, int64_t most, bool reverse,
                           Decision decision) {
  const int64_t count = given == nullptr ? most : *given;
  counters[kStep] = 0;
  counters[kCount] = count < 0 ? 0 : (count < most ? count : most);
  set_row(counters, reverse);
  decide(counters, decision, nullptr);
}

__global__ void end_step(int64_t* counters, bool reverse, Decision decision) {
  counters[kStep] += 1;
  set_row(counters, reverse);
  decide(counters, decision, nullptr);
}

__global__ void decide_by(const int64_t* counters, const bool* goes_on, Decision decision) {
  decide(counters, decision, goes_on);
}

__global__ void choose_branch(const int32_t* index, int last, cudaGraphConditionalHandle branch) {
  const int32_t wanted = *index;
  cudaGraphSetConditional(branch, static_cast<unsigned>(wanted < 0 ? 0 : min(wanted, last)));
}

void launch_copies(const std::vector<RowCopy>& copies, const int64_t* counters,
                   cudaStream_t stream) {
  for (size_t first = 0; first < copies.size(); first += kMostCopies) {
    const size_t count = std::min(copies.size() - first, kMostCopies);
    CopyBatch batch{};
    int64_t most = 0;
    for (size_t i = 0; i < count; ++i) {
      batch.copies[i] = copies[first + i];
      most = std::max(most, copies[first + i].bytes);
    }
    const auto blocks = static_cast<unsigned>(
        std::clamp<int64_t>(ceil_div(most, kThreads * int64_t{16}), 1, kMostCopyBlocks));
    copy_rows<<<dim3(blocks, static_cast<unsigned>(count)), kThreads, 0, stream>>>(batch, counters);
    check_launch("copy_rows");
  }
}

void launch_all(const std::vector<Instruction>& instructions, cudaStream_t stream) {
  for (const Instruction& instruction : instructions) {
    try {
      instruction.kernel->run(
          {instruction.inputs, instruction.outputs, instruction.workspace, stream});
    } catch (const LibraryError& error) {
      throw LibraryError(message(instruction.label, ": ", error.what()));
    } catch (const DeviceError& error) {
      throw DeviceError(message(instruction.label, ": ", error.what()));
    }
  }
}

template <typename T>
T read_back(const T* data, cudaStream_t stream) {
  T value{};
  check(cudaMemcpyAsync(&value, data, sizeof(T), cudaMemcpyDeviceToHost, stream),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return value;
}

// A conditional node in the graph that is being captured from a stream.
class ConditionalNode {
 public:
  // A handle of the graph. Nodes that set its value come before the node.
  explicit ConditionalNode(cudaStream_t stream) : stream_(stream) {
    check(cudaStreamGetCaptureInfo(stream, &status_, nullptr, &graph_, nullptr, nullptr, nullptr),
          "cudaStreamGetCaptureInfo");
    check(cudaGraphConditionalHandleCreate(&handle_, graph_, 0, cudaGraphCondAssignDefault),
          "cudaGraphConditionalHandleCreate");
  }

  cudaGraphConditionalHandle handle() const { return handle_; }

  // Adds the node behind what was captured up to now, with a body for each of `bodies`, which are
  // captured on `inner`. Later captures on the stream wait for it.
  void add(cudaGraphConditionalNodeType type, cudaStream_t inner,
           const std::vector<std::function<void(cudaStream_t)>>& bodies) {
    const cudaGraphNode_t* nodes = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    size_t count = 0;
    check(cudaStreamGetCaptureInfo(stream_, &status_, nullptr, &graph_, &nodes, &edges, &count),
          "cudaStreamGetCaptureInfo");
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle_;
    params.conditional.type = type;
    params.conditional.size = static_cast<unsigned>(bodies.size());
    cudaGraphNode_t node = nullptr;
    check(cudaGraphAddNode(&node, graph_, nodes, edges, count, &params),
          "cudaGraphAddNode (conditional)");
    for (size_t i = 0; i < bodies.size(); ++i) {
      capture(params.conditional.phGraph_out[i], inner, bodies[i]);
    }
    check(cudaStreamUpdateCaptureDependencies(stream_, &node, nullptr, 1,
                                              cudaStreamSetCaptureDependencies),
          "cudaStreamUpdateCaptureDependencies");
  }

 private:
  static void capture(cudaGraph_t body, cudaStream_t inner,
                      const std::function<void(cudaStream_t)>& launch) {
    check(cudaStreamBeginCaptureToGraph(inner, body, nullptr, nullptr, 0,
                                        cudaStreamCaptureModeRelaxed),
          "cudaStreamBeginCaptureToGraph");
    cudaGraph_t captured = nullptr;
    try {
      launch(inner);
    } catch (...) {
      (void)cudaStreamEndCapture(inner, &captured);
      (void)cudaGetLastError();
      throw;
    }
    check(cudaStreamEndCapture(inner, &captured), "cudaStreamEndCapture");
  }

  cudaStream_t stream_;
  cudaStreamCaptureStatus status_ = cudaStreamCaptureStatusNone;
  cudaGraph_t graph_ = nullptr;
  cudaGraphConditionalHandle handle_ = 0;
};

Device current_device() { return {DeviceType::Cuda, Context::current().index()}; }

// A loop that data ends, or a choice, may be another one in each process, which would wait for the
// others; and between machines NCCL adds nodes that no body may have, of loops of known length too.
void refuse_meetings(const char* op, bool meets_processes) {
  if (!meets_processes) return;
  throw DeviceError(message(op,
                            ": its body sums over the GPUs of several processes (all_reduce, as "
                            "of BatchNormalization(synchronized=True)), which a loop or a choice "
                            "on the device can't; move it out of the body, or use unroll=True"));
}

class LoopKernel final : public Kernel {
 public:
  explicit LoopKernel(const PlanRequest& request)
      : plan_(request, current_device()), inner_(make_stream()) {
    refuse_meetings("loop", plan_.meets_processes());
  }

  void run(const KernelArgs& args) override {
    BoundLoop loop = plan_.bind(args);
    const auto stream = static_cast<cudaStream_t>(args.stream);
    for (const MemoryRange& range : loop.zeroed) {
      zero_memory(const_cast<void*>(range.data), range.bytes, stream);
    }
    if (loop.count != nullptr) {
      loop.end.push_back({loop.counters + kStep, loop.count, sizeof(int64_t)});
    }
    if (is_capturing(stream)) {
      capture(loop, stream);
    } else {
      launch(loop, stream);
    }
    launch_copies(loop.end, loop.counters, stream);
  }

  int64_t workspace_bytes() const override { return plan_.workspace_bytes(); }
  bool keeps_state() const override { return plan_.keeps_state(); }
  std::string description() const override { return "kerascnn loop, " + plan_.description(); }

 private:
  static void begin(const BoundLoop& loop, Decision decision, cudaStream_t stream) {
    const int64_t most = loop.length < 0 ? INT64_MAX : loop.length;
    begin_loop<<<1, 1, 0, stream>>>(loop.counters, loop.given_count, most, loop.reverse, decision);
    check_launch("begin_loop");
    launch_copies(loop.begin, loop.counters, stream);
  }

  static void check_condition(const BoundLoop& loop, Decision decision, cudaStream_t stream) {
    if (loop.goes_on == nullptr) return;
    launch_all(loop.condition, stream);
    decide_by<<<1, 1, 0, stream>>>(loop.counters, loop.goes_on, decision);
    check_launch("decide_by");
  }

  static void step(const BoundLoop& loop, Decision decision, cudaStream_t stream) {
    launch_copies(loop.before, loop.counters, stream);
    launch_all(loop.body, stream);
    launch_copies(loop.after, loop.counters, stream);
    end_step<<<1, 1, 0, stream>>>(loop.counters, loop.reverse, decision);
    check_launch("end_step");
  }

  // How many steps a turn makes. Bodies with loops or choices in them make one step, because each
  // step would capture these again.
  static int64_t steps_of_turn(const BoundLoop& loop);

  static void capture_known(const BoundLoop& loop, cudaStream_t stream, cudaStream_t inner_stream,
                            int64_t steps) {
    if (loop.length <= steps) {
      begin(loop, {}, stream);
      for (int64_t i = 0; i < loop.length; ++i) step(loop, {}, stream);
      return;
    }
    ConditionalNode node(stream);
    const Decision decision{node.handle(), true};
    begin(loop, decision, stream);
    // Steps that don't fill a turn come first.
    for (int64_t i = 0; i < loop.length % steps; ++i) step(loop, {}, stream);
    node.add(cudaGraphCondTypeWhile, inner_stream, {[&](cudaStream_t inner) {
               for (int64_t i = 0; i < steps; ++i) {
                 step(loop, i + 1 < steps ? Decision{} : decision, inner);
               }
             }});
  }

  void capture(const BoundLoop& loop, cudaStream_t stream) {
    if (loop.goes_on == nullptr && loop.given_count == nullptr) {
      capture_known(loop, stream, inner_.get(), steps_of_turn(loop));
      return;
    }
    ConditionalNode node(stream);
    const Decision decision{node.handle(), true};
    begin(loop, decision, stream);
    check_condition(loop, decision, stream);
    node.add(cudaGraphCondTypeWhile, inner_.get(), {[&](cudaStream_t inner) {
               step(loop, decision, inner);
               check_condition(loop, decision, inner);
             }});
  }

  static void launch(const BoundLoop& loop, cudaStream_t stream) {
    begin(loop, {}, stream);
    const int64_t count = read_back(loop.counters + kCount, stream);
    for (int64_t i = 0; i < count; ++i) {
      check_condition(loop, {}, stream);
      if (loop.goes_on != nullptr && !read_back(loop.goes_on, stream)) break;
      step(loop, {}, stream);
    }
  }

  LoopPlan plan_;
  Stream inner_;  // bodies are captured on this one
};

class SwitchKernel final : public Kernel {
 public:
  explicit SwitchKernel(const PlanRequest& request)
      : plan_(request, current_device()), inner_(make_stream()) {
    refuse_meetings("switch", plan_.meets_processes());
  }

  void run(const KernelArgs& args) override {
    const auto stream = static_cast<cudaStream_t>(args.stream);
    const auto* const index = input<int32_t>(args, 0);
    const int last = static_cast<int>(plan_.size()) - 1;
    const auto run_branch = [&](size_t branch, cudaStream_t on) {
      const BoundBranch bound = plan_.bind(branch, args);
      launch_all(bound.body, on);
      for (const RowCopy& copy : bound.after) {
        check(cudaMemcpyAsync(copy.to, copy.from, static_cast<size_t>(copy.bytes),
                              cudaMemcpyDeviceToDevice, on),
              "cudaMemcpyAsync");
      }
    };
    if (!is_capturing(stream)) {
      return run_branch(static_cast<size_t>(std::clamp(read_back(index, stream), 0, last)), stream);
    }
    ConditionalNode node(stream);
    choose_branch<<<1, 1, 0, stream>>>(index, last, node.handle());
    check_launch("choose_branch");
    std::vector<std::function<void(cudaStream_t)>> bodies;
    for (size_t i = 0; i < plan_.size(); ++i) {
      bodies.emplace_back([&run_branch, i](cudaStream_t inner) { run_branch(i, inner); });
    }
    node.add(cudaGraphCondTypeSwitch, inner_.get(), bodies);
  }

  int64_t workspace_bytes() const override { return plan_.workspace_bytes(); }
  bool keeps_state() const override { return plan_.keeps_state(); }
  std::string description() const override { return "kerascnn switch, " + plan_.description(); }

 private:
  SwitchPlan plan_;
  Stream inner_;
};

int64_t LoopKernel::steps_of_turn(const BoundLoop& loop) {
  const auto has_bodies = [](const Instruction& instruction) {
    return dynamic_cast<const LoopKernel*>(instruction.kernel.get()) != nullptr ||
           dynamic_cast<const SwitchKernel*>(instruction.kernel.get()) != nullptr;
  };
  if (std::any_of(loop.body.begin(), loop.body.end(), has_bodies)) return 1;
  constexpr int64_t own_launches = 3;  // copies before and after, end_step
  const int64_t launches = static_cast<int64_t>(loop.body.size()) + own_launches;
  return std::clamp<int64_t>(kMostLaunches / launches, 1, kMostSteps);
}

}  // namespace

std::unique_ptr<Kernel> plan_loop(const PlanRequest& request) {
  return std::make_unique<LoopKernel>(request);
}

std::unique_ptr<Kernel> plan_switch(const PlanRequest& request) {
  return std::make_unique<SwitchKernel>(request);
}

}  // namespace kerascnn::cuda
