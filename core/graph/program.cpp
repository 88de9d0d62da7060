#include "core/graph/program.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <list>
#include <mutex>
#include <sstream>
#include <utility>

#include "core/backend/dependencies.h"
#include "core/backend/shuffled_executor.h"
#include "core/base/error.h"
#include "core/graph/error_context.h"
#include "core/graph/lanes.h"
#include "core/graph/passes/passes.h"
#include "core/graph/schedule.h"
#include "core/memory/poison.h"
#include "core/ops/fused_elementwise.h"

namespace kerascnn {
namespace {

// Programs that are run with a few sets of buffers in turn (double buffering, a partial last batch)
// don't make a new executor each time: on CUDA that is a new capture.
constexpr size_t kMaxExecutors = 4;
// Kernels read and write vectors of this many bytes.
constexpr uintptr_t kInputAlignment = 16;
// Calls wait whose results are no larger, as each has memory for them: so many that a graph of all
// has about this many nodes. A step of more takes longer than to start it.
constexpr int64_t kMostWaitingResults = 4096;
constexpr uint64_t kNodesOfCalls = 512;
constexpr int64_t kInArena = -1;

// Memory of a step beside inputs and variables.
struct StepMemory {
  char* arena = nullptr;
  char* results = nullptr;  // of a function
};

// Where a kernel's argument is. Inputs are unknown until a run, each lane has an arena, and each
// slot of a function has results.
struct Operand {
  enum class Kind : uint8_t { Fixed, Input, Arena, Results } kind = Kind::Fixed;
  int32_t input = -1;
  void* data = nullptr;
  int64_t offset = 0;  // in the arena or the results
  int64_t bytes = 0;

  bool is_absent() const { return kind == Kind::Fixed && data == nullptr; }
  void* address(const std::vector<void*>& inputs, const StepMemory& memory) const {
    switch (kind) {
      case Kind::Input:
        return inputs[input];
      case Kind::Arena:
        return memory.arena + offset;
      case Kind::Results:
        return memory.results + offset;
      case Kind::Fixed:
        break;
    }
    return data;
  }
};

struct PlannedNode {
  std::shared_ptr<Kernel> kernel;
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;
  Operand workspace;
  CallInfoPtr call;
  const Node* node = nullptr;  // of the schedule's graph
};

// Of a fused group: the ops in it.
std::string node_label(const Graph& graph, const Node& node) {
  std::string label(node.op->name);
  if (node.op->name == "fused_elementwise") {
    std::vector<TensorSpec> inputs;
    for (ValueId id : node.inputs) inputs.push_back(graph.value(id).spec);
    label = element_program_name(decode_element_program(node.attributes, inputs));
  }
  if (!node.scope.empty()) label += " (" + node.scope.path + ")";
  return label;
}

std::vector<TensorSpec> specs_of(const Graph& graph, const std::vector<ValueId>& values) {
  std::vector<TensorSpec> specs;
  for (ValueId id : values) specs.push_back(graph.value(id).spec);
  return specs;
}

// Of the outputs that somebody reads.
std::vector<TensorSpec> read_outputs(const Graph& graph, const PlannedNode& planned) {
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i < planned.outputs.size(); ++i) {
    if (planned.outputs[i].is_absent()) continue;
    specs.push_back(graph.value(planned.node->outputs[i]).spec);
  }
  return specs;
}

CallInfoPtr call_info(const Graph& graph, const PlannedNode& planned, Device device) {
  const Node& node = *planned.node;
  const std::vector<TensorSpec> outputs = read_outputs(graph, planned);
  CallInfo info = make_call_info(*node.op, node.attributes, specs_of(graph, node.inputs), outputs);
  info.label = node_label(graph, node);
  info.scope = node.scope;
  info.op = info.label.substr(0, info.label.find(" ("));
  info.kernel = planned.kernel->description();
  info.memory_bytes += planned.kernel->workspace_bytes();
  info.device = device;
  return std::make_shared<const CallInfo>(std::move(info));
}

bool overlaps(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes) {
  const auto first = reinterpret_cast<uintptr_t>(a), second = reinterpret_cast<uintptr_t>(b);
  return first < second + static_cast<uintptr_t>(b_bytes) &&
         second < first + static_cast<uintptr_t>(a_bytes);
}

}  // namespace

struct Program::Impl {
  Device device;
  ProgramStats stats;
  Schedule schedule;
  std::vector<Tensor> constants;  // on the device; undefined where no kernel reads it
  StoragePtr arena;               // of all lanes, one behind the other
  int64_t lane_bytes = 0;         // of each
  StoragePtr results;             // of all slots; null where the outputs are in the arena
  int64_t slot_bytes = 0;         // of each
  int64_t num_slots = 1;
  std::vector<PlannedNode> nodes;
  std::vector<Tensor> outputs;  // in the first lane or slot

  // Guards what a run changes.
  std::mutex mutex;
  std::vector<Tensor> bound_inputs;  // kept alive until the next run
  std::vector<Tensor> staging;       // private copies of inputs that can't be read where they are
  struct BoundExecutor {
    std::vector<void*> inputs;
    std::unique_ptr<Executor> executor;
  };
  std::list<BoundExecutor> executors;  // the one used last first
  std::unique_ptr<CallQueue> calls;    // made for the first one; goes before what it uses

  void plan(const CompileOptions& options);
  std::vector<std::unique_ptr<Kernel>> plan_kernels(const CompileOptions& options);
  void place(std::vector<std::unique_ptr<Kernel>> kernels, const CompileOptions& options);
  void allocate_arena(const CompileOptions& options);
  std::vector<int64_t> place_results(BufferPlan& buffers);
  void move_constants();
  void check_states() const;
  void run(const std::vector<Tensor>& inputs, int64_t steps, bool later);
  std::vector<std::vector<double>> time_instructions(const std::vector<Tensor>& inputs,
                                                     int64_t passes, int64_t repeats);
  std::vector<Tensor> call(const std::vector<CallArgument>& arguments);
  std::unique_ptr<CallQueue> make_calls();
  void note_changes() const;
  void check_count(size_t num_inputs) const;
  void check_inputs(const std::vector<Tensor>& inputs) const;
  void check_input(size_t index, const Tensor& input, bool is_anywhere) const;
  std::vector<void*> bind(const std::vector<Tensor>& inputs, std::vector<Tensor>& usable);
  Tensor usable_input(size_t index, const Tensor& input);
  bool is_overwritten(const Tensor& input) const;
  std::vector<Instruction> instructions(const std::vector<void*>& inputs,
                                        const StepMemory& memory) const;
  Lanes lanes(const std::vector<void*>& inputs, char* arena_of_all, int64_t count) const;
  Lanes lanes(const std::vector<void*>& inputs) const;
  Dependencies dependencies(int64_t repeats) const;
  Executor& executor_for(const std::vector<void*>& inputs);
};

void Program::Impl::check_states() const {
  for (const VariablePtr& variable : schedule.graph.states()) {
    const Device where = variable->value().device();
    if (where == device) continue;
    throw DeviceError(message("variable \"", variable->name(), "\" is on ", device_name(where),
                              ", but the program is compiled for ", device_name(device),
                              "; create the model and the program on one device"));
  }
}

void Program::Impl::plan(const CompileOptions& options) {
  check_states();
  std::vector<std::unique_ptr<Kernel>> kernels = plan_kernels(options);
  move_constants();
  place(std::move(kernels), options);
}

// One entry for each position of the order; null where there is nothing to compute.
std::vector<std::unique_ptr<Kernel>> Program::Impl::plan_kernels(const CompileOptions& options) {
  const Graph& graph = schedule.graph;
  Backend& device_backend = backend(device);
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<TensorSpec> inputs, outputs;
  for (int32_t index : schedule.order) {
    const Node& node = graph.nodes()[index];
    inputs.clear();
    outputs.clear();
    for (ValueId id : node.inputs) inputs.push_back(graph.value(id).spec);
    for (ValueId id : node.outputs) outputs.push_back(graph.value(id).spec);
    const bool is_empty = std::all_of(outputs.begin(), outputs.end(), [](const TensorSpec& spec) {
      return num_elements(spec.shape) == 0;
    });
    const PlanRequest request{*node.op, node.attributes, inputs, outputs, options.allow_tf32};
    kernels.push_back(is_empty ? nullptr : with_scope(node.scope.path, [&] {
      return plan_kernel(device_backend, request);
    }));
  }
  return kernels;
}

// Only constants that a kernel reads are worth device memory.
void Program::Impl::move_constants() {
  const Graph& graph = schedule.graph;
  constants.resize(graph.constants().size());
  for (int32_t index : schedule.order) {
    for (ValueId id : graph.nodes()[index].inputs) {
      const Value& source = graph.value(schedule.roots[id]);
      if (source.kind != ValueKind::Constant || constants[source.source].defined()) continue;
      constants[source.source] = graph.constants()[source.source].to(device);
      stats.constant_bytes += constants[source.source].bytes();
    }
  }
}

void Program::Impl::place(std::vector<std::unique_ptr<Kernel>> kernels,
                          const CompileOptions& options) {
  const Graph& graph = schedule.graph;
  std::vector<int64_t> workspace_bytes;
  for (const auto& kernel : kernels) {
    workspace_bytes.push_back(kernel == nullptr ? 0 : kernel->workspace_bytes());
  }
  BufferPlan buffers = plan_buffers(schedule, workspace_bytes);
  const std::vector<int64_t> result_offsets =
      options.is_function ? place_results(buffers)
                          : std::vector<int64_t>(buffers.buffers.size(), kInArena);
  Backend& device_backend = backend(device);
  const int64_t max_unshared_bytes = shuffle_seed() > 0 ? shuffled_unshared_bytes(device_backend)
                                                        : device_backend.max_unshared_bytes();
  const MemoryPlan memory = plan_memory(buffers.buffers, max_unshared_bytes);
  stats.least_arena_bytes =
      max_unshared_bytes > 0 ? plan_memory(buffers.buffers).bytes : memory.bytes;
  lane_bytes = memory.bytes;

  const auto in_arena = [&](int32_t buffer, int64_t bytes) -> Operand {
    if (buffer == kNoBuffer) return {.bytes = bytes};
    if (const int64_t offset = result_offsets[buffer]; offset != kInArena) {
      return {.kind = Operand::Kind::Results, .offset = offset, .bytes = bytes};
    }
    if (buffers.buffers[buffer].bytes == 0) return {.bytes = bytes};
    return {.kind = Operand::Kind::Arena, .offset = memory.offsets[buffer], .bytes = bytes};
  };
  const auto operand = [&](ValueId id) -> Operand {
    const ValueId root = schedule.roots[id];
    const Value& source = graph.value(root);
    const int64_t bytes = num_bytes(graph.value(id).spec);
    const auto fixed = [&](void* data) { return Operand{.data = data, .bytes = bytes}; };
    switch (source.kind) {
      case ValueKind::Input:
        return {.kind = Operand::Kind::Input, .input = source.source, .bytes = bytes};
      case ValueKind::State:
        return fixed(graph.states()[source.source]->value().data());
      case ValueKind::Constant:
        return fixed(constants[source.source].data());
      case ValueKind::Result:
        break;
    }
    const int32_t state = schedule.home_states[root];
    if (state >= 0) return fixed(graph.states()[state]->value().data());
    return in_arena(buffers.value_buffers[root], bytes);
  };

  for (size_t position = 0; position < schedule.order.size(); ++position) {
    if (kernels[position] == nullptr) continue;
    const Node& node = graph.nodes()[schedule.order[position]];
    PlannedNode planned;
    planned.kernel = std::move(kernels[position]);
    for (ValueId id : node.inputs) planned.inputs.push_back(operand(id));
    for (ValueId id : node.outputs) planned.outputs.push_back(operand(id));
    planned.node = &node;
    planned.workspace =
        in_arena(buffers.workspace_buffers[position], planned.kernel->workspace_bytes());
    planned.call = call_info(graph, planned, device);
    nodes.push_back(std::move(planned));
  }
  allocate_arena(options);
  stats.num_instructions = static_cast<int64_t>(nodes.size());
  stats.longest_chain = longest_chain(dependencies(1));

  for (ValueId id : schedule.outputs) {
    const int32_t buffer = buffers.value_buffers[schedule.roots[id]];
    const TensorSpec& spec = graph.value(id).spec;
    const Shape strides = contiguous_strides(spec.shape);
    const bool is_result = result_offsets[buffer] != kInArena;
    outputs.emplace_back(is_result ? results : arena, spec, strides,
                         is_result ? result_offsets[buffer] : memory.offsets[buffer]);
  }
}

// Takes the buffers of outputs out of the arena. For each buffer: where it is in a slot's results,
// or kInArena.
std::vector<int64_t> Program::Impl::place_results(BufferPlan& buffers) {
  std::vector<int64_t> offsets(buffers.buffers.size(), kInArena);
  bool is_apart = true;  // has each output memory of its own?
  for (ValueId id : schedule.outputs) {
    const int32_t buffer = buffers.value_buffers[schedule.roots[id]];
    is_apart = is_apart && offsets[buffer] == kInArena;
    if (offsets[buffer] != kInArena) continue;
    offsets[buffer] = slot_bytes;
    slot_bytes += align_buffer(std::exchange(buffers.buffers[buffer].bytes, 0));
  }
  if (backend(device).later_runs() != nullptr && is_apart && slot_bytes <= kMostWaitingResults) {
    const uint64_t calls = kNodesOfCalls / std::max<uint64_t>(schedule.order.size(), 1);
    num_slots =
        std::clamp<int64_t>(static_cast<int64_t>(std::bit_floor(calls)), 1, LaterRuns::kMostSteps);
  }
  results = allocate_storage(num_slots * slot_bytes, device);
  // What lies between results is copied with them, and tools look for memory that nothing wrote.
  backend(device).fill(results->data(), 0, results->bytes());
  return offsets;
}

// With as many lanes as are of use and fit.
void Program::Impl::allocate_arena(const CompileOptions& options) {
  const Backend& device_backend = backend(device);
  if (options.repeats && lane_bytes > 0) {
    if (shuffle_seed() > 0) {
      stats.num_lanes = shuffled_lanes();
    } else if (const int64_t most = device_backend.max_lanes(lane_bytes); most > 1) {
      // Inputs can be anywhere: nothing is written there. Nor is anything of this touched.
      const std::vector<void*> nowhere(schedule.graph.inputs().size(), nullptr);
      char* const somewhere = reinterpret_cast<char*>(uintptr_t{1} << 62);
      stats.num_lanes =
          choose_lanes(lanes(nowhere, somewhere, 2), MemoryRange{somewhere, lane_bytes}, most);
    }
  }
  try {
    arena = allocate_storage(stats.num_lanes * lane_bytes, device);
  } catch (const OutOfMemoryError&) {
    if (stats.num_lanes == 1) throw;
    stats.num_lanes = 1;
    arena = allocate_storage(lane_bytes, device);
  }
  stats.arena_bytes = stats.num_lanes * lane_bytes;
}

// Is the input's memory part of what the program writes?
bool Program::Impl::is_overwritten(const Tensor& input) const {
  for (const StoragePtr& storage : {arena, results}) {
    if (storage == nullptr) continue;
    if (overlaps(input.data(), input.bytes(), storage->data(), storage->bytes())) return true;
  }
  for (const Assignment& assignment : schedule.graph.assignments()) {
    const Tensor& state = schedule.graph.states()[assignment.state]->value();
    if (overlaps(input.data(), input.bytes(), state.data(), state.bytes())) return true;
  }
  return false;
}

// The input itself, or where kernels can't read it there, a copy whose address stays the same.
Tensor Program::Impl::usable_input(size_t index, const Tensor& input) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(input.data()) % kInputAlignment == 0;
  if (input.bytes() == 0) return input;
  if (input.is_contiguous() && is_aligned && !is_overwritten(input)) return input;
  if (!staging[index].defined()) staging[index] = Tensor::empty(input.spec(), device);
  staging[index].copy_from(input);
  return staging[index];
}

// The list with the inputs and the memory at these addresses.
std::vector<Instruction> Program::Impl::instructions(const std::vector<void*>& inputs,
                                                     const StepMemory& memory) const {
  std::vector<Instruction> result;
  result.reserve(nodes.size());
  for (const PlannedNode& node : nodes) {
    Instruction& instruction = result.emplace_back();
    instruction.kernel = node.kernel;
    instruction.workspace = node.workspace.address(inputs, memory);
    instruction.label = node.call->label;
    instruction.call = node.call;
    for (const Operand& operand : node.inputs) {
      const void* data = operand.address(inputs, memory);
      instruction.inputs.push_back(data);
      instruction.reads.push_back({data, operand.bytes});
    }
    for (const Operand& operand : node.outputs) {
      void* data = operand.address(inputs, memory);
      instruction.outputs.push_back(data);
      instruction.writes.push_back({data, operand.bytes});
    }
    instruction.writes.push_back({instruction.workspace, node.workspace.bytes});
  }
  return result;
}

Lanes Program::Impl::lanes(const std::vector<void*>& inputs, char* arena_of_all,
                           int64_t count) const {
  char* const first_results = results ? static_cast<char*>(results->data()) : nullptr;
  Lanes result;
  for (int64_t lane = 0; lane < count; ++lane) {
    result.push_back(instructions(inputs, {arena_of_all + lane * lane_bytes, first_results}));
  }
  return result;
}

Lanes Program::Impl::lanes(const std::vector<void*>& inputs) const {
  return lanes(inputs, static_cast<char*>(arena->data()), stats.num_lanes);
}

Dependencies Program::Impl::dependencies(int64_t repeats) const {
  // Inputs can be anywhere: nothing is written there.
  const std::vector<void*> nowhere(schedule.graph.inputs().size(), nullptr);
  return find_dependencies(lanes(nowhere), repeats);
}

Executor& Program::Impl::executor_for(const std::vector<void*>& inputs) {
  const auto found = std::find_if(executors.begin(), executors.end(),
                                  [&](const auto& bound) { return bound.inputs == inputs; });
  if (found != executors.end()) {
    executors.splice(executors.begin(), executors, found);
    return *executors.front().executor;
  }
  std::unique_ptr<Executor> executor = backend(device).make_executor(lanes(inputs));
  if (executors.size() == kMaxExecutors) executors.pop_back();
  executors.push_front({inputs, std::move(executor)});
  return *executors.front().executor;
}

void Program::Impl::check_count(size_t num_inputs) const {
  const size_t expected = schedule.graph.inputs().size();
  if (num_inputs == expected) return;
  throw ValueError(message("program: expected ", expected, " inputs, received ", num_inputs));
}

void Program::Impl::check_inputs(const std::vector<Tensor>& inputs) const {
  check_count(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) check_input(i, inputs[i], false);
}

void Program::Impl::check_input(size_t index, const Tensor& input, bool is_anywhere) const {
  const Graph& graph = schedule.graph;
  const TensorSpec& expected = graph.value(graph.inputs()[index]).spec;
  if (!input.defined() || input.spec() != expected) {
    throw ValueError(message("program: input \"", graph.input_names()[index], "\" must be ",
                             spec_string(expected), ", received ",
                             input.defined() ? spec_string(input.spec()) : "nothing"));
  }
  if (input.device() != device && !is_anywhere) {
    throw DeviceError(message("program: input \"", graph.input_names()[index], "\" is on ",
                              device_name(input.device()), ", but the program runs on ",
                              device_name(device), "; move it there first"));
  }
}

// The addresses of what can be read in place of the inputs.
std::vector<void*> Program::Impl::bind(const std::vector<Tensor>& inputs,
                                       std::vector<Tensor>& usable) {
  std::vector<void*> pointers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    usable.push_back(usable_input(i, inputs[i]));
    pointers.push_back(usable.back().data());
  }
  return pointers;
}

void Program::Impl::run(const std::vector<Tensor>& inputs, int64_t steps, bool later) {
  if (steps < 0) throw ValueError(message("program: steps must not be negative, received ", steps));
  check_inputs(inputs);
  const std::lock_guard lock(mutex);
  if (steps == 0) return;
  std::vector<Tensor> usable;
  Executor& executor = executor_for(bind(inputs, usable));
  // Nothing in the arena outlives a run but the outputs, which the next one writes anew.
  if (poisons_memory()) backend(device).fill(arena->data(), kPoison, stats.arena_bytes);
  note_changes();
  if (later) {
    executor.run_later(steps);
  } else {
    executor.run(steps);
  }
  // The inputs of the run before are released here, which is safe: its steps are enqueued where
  // these have other inputs, and memory is reused in stream order.
  bound_inputs = std::move(usable);
}

void Program::Impl::note_changes() const {
  for (const Assignment& assignment : schedule.graph.assignments()) {
    schedule.graph.states()[assignment.state]->value().storage()->note_change();
  }
}

std::vector<Tensor> Program::Impl::call(const std::vector<CallArgument>& arguments) {
  if (results == nullptr) {
    throw ValueError("program: only what was compiled with is_function can be called; use run()");
  }
  check_count(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    check_input(i, arguments[i].tensor, arguments[i].is_lent);
  }
  const std::lock_guard lock(mutex);
  if (calls == nullptr) calls = make_calls();
  note_changes();
  return calls->call(arguments);
}

std::unique_ptr<CallQueue> Program::Impl::make_calls() {
  CalledProgram called;
  called.device = device;
  called.inputs = specs_of(schedule.graph, schedule.graph.inputs());
  for (const Tensor& output : outputs) {
    called.outputs.push_back(output.spec());
    called.output_offsets.push_back(static_cast<char*>(output.data()) -
                                    static_cast<char*>(results->data()));
  }
  called.slot_bytes = slot_bytes;
  called.num_slots = num_slots;
  called.results = results;
  called.arena = arena;
  called.instructions = [this](const std::vector<void*>& inputs, int64_t slot) {
    const int64_t lane = slot % stats.num_lanes;
    return instructions(inputs, {static_cast<char*>(arena->data()) + lane * lane_bytes,
                                 static_cast<char*>(results->data()) + slot * slot_bytes});
  };
  called.is_overwritten = [this](const Tensor& tensor) { return is_overwritten(tensor); };
  return std::make_unique<CallQueue>(std::move(called), backend(device).later_runs());
}

std::vector<std::vector<double>> Program::Impl::time_instructions(const std::vector<Tensor>& inputs,
                                                                  int64_t passes, int64_t repeats) {
  if (passes < 1 || repeats < 1) {
    throw ValueError(message("program: passes and repeats must be at least 1, received ", passes,
                             " and ", repeats));
  }
  check_inputs(inputs);
  const std::lock_guard lock(mutex);
  Backend& device_backend = backend(device);
  const std::vector<VariablePtr>& states = schedule.graph.states();
  std::vector<Tensor> before;
  for (const VariablePtr& state : states) {
    before.push_back(Tensor::empty(state->value().spec(), device));
    before.back().copy_from(state->value());
  }
  const auto restore = [&] {
    for (size_t i = 0; i < states.size(); ++i) states[i]->assign(before[i]);
    device_backend.synchronize();
  };
  std::vector<Tensor> usable;
  std::vector<std::unique_ptr<Executor>> alone;
  Lanes all = lanes(bind(inputs, usable));
  for (Instruction& instruction : all.front()) {
    alone.push_back(device_backend.make_executor({{std::move(instruction)}}));
  }
  std::vector<std::vector<double>> seconds(passes);
  try {
    for (std::vector<double>& row : seconds) {
      for (const auto& executor : alone) {
        device_backend.synchronize();
        const auto start = std::chrono::steady_clock::now();
        executor->run(repeats);
        device_backend.synchronize();
        const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
        row.push_back(elapsed.count() / static_cast<double>(repeats));
      }
      restore();
    }
  } catch (...) {
    restore();
    throw;
  }
  return seconds;
}

Program::Program() : impl_(std::make_unique<Impl>()) {}
Program::~Program() = default;

std::shared_ptr<Program> Program::compile(const Graph& graph, const std::vector<ValueId>& outputs,
                                          Device device, const CompileOptions& options) {
  for (ValueId id : outputs) {
    if (id < 0 || static_cast<size_t>(id) >= graph.values().size()) {
      throw ValueError(message("compile: output %", id, " is not a value of the graph"));
    }
  }
  std::shared_ptr<Program> program(new Program);
  Impl& impl = *program->impl_;
  impl.device = device;
  impl.stats.num_nodes_traced = static_cast<int64_t>(graph.nodes().size());
  RootedGraph rooted{graph, outputs};
  if (options.optimize) {
    Backend& target = backend(device);
    PassOptions passes;
    passes.allow_tf32 = options.allow_tf32;
    passes.fuses = [&](const PlanRequest& request) { return target.fuses(request); };
    passes.num_partial_sums = [&](const PlanRequest& request) {
      return target.num_partial_sums(request);
    };
    passes.runs_side_by_side = target.max_unshared_bytes() > 0 || shuffle_seed() > 0;
    rooted = run_passes(rooted, passes);
  }
  impl.schedule = make_schedule(rooted);
  impl.staging.resize(graph.inputs().size());
  impl.plan(options);
  return program;
}

void Program::run(const std::vector<Tensor>& inputs, int64_t steps, bool later) {
  impl_->run(inputs, steps, later);
}

std::vector<Tensor> Program::call(const std::vector<CallArgument>& arguments) {
  return impl_->call(arguments);
}

void Program::release_inputs() {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->bound_inputs.empty()) return;
  (void)backend(impl_->device).stream();  // where all steps are from here on
  impl_->bound_inputs.clear();
}

std::vector<Tensor> Program::outputs() const { return impl_->outputs; }

Device Program::device() const { return impl_->device; }

ProgramStats Program::stats() const { return impl_->stats; }

Lanes Program::lanes(const std::vector<Tensor>& inputs) const {
  std::vector<void*> pointers;
  for (const Tensor& input : inputs) pointers.push_back(input.data());
  return impl_->lanes(pointers);
}

std::vector<Instruction> Program::instructions(const std::vector<Tensor>& inputs) const {
  return lanes(inputs).front();
}

std::vector<InstructionInfo> Program::describe() const {
  const Graph& graph = impl_->schedule.graph;
  std::vector<InstructionInfo> result;
  for (const PlannedNode& planned : impl_->nodes) {
    const Node& node = *planned.node;
    InstructionInfo& info = result.emplace_back();
    info.call = planned.call;
    info.op = node.op->name;
    info.attributes = node.attributes;
    info.inputs = specs_of(graph, node.inputs);
    info.outputs = read_outputs(graph, planned);
  }
  return result;
}

const std::vector<VariablePtr>& Program::states() const { return impl_->schedule.graph.states(); }

Dependencies Program::dependencies(int64_t repeats) const {
  if (repeats < 1) {
    throw ValueError(message("program: repeats must be at least 1, received ", repeats));
  }
  return impl_->dependencies(repeats);
}

std::vector<std::vector<double>> Program::time_instructions(const std::vector<Tensor>& inputs,
                                                            int64_t passes, int64_t repeats) {
  return impl_->time_instructions(inputs, passes, repeats);
}

std::string Program::to_string() const {
  const Graph& graph = impl_->schedule.graph;
  std::ostringstream out;
  for (const PlannedNode& planned : impl_->nodes) {
    out << planned.call->label << ": " << planned.call->kernel << " -> ";
    for (size_t i = 0; i < planned.node->outputs.size(); ++i) {
      out << (i == 0 ? "" : ", ") << spec_string(graph.value(planned.node->outputs[i]).spec);
    }
    out << '\n';
  }
  return out.str();
}

}  // namespace kerascnn
