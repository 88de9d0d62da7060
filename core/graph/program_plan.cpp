// Planning a program: passes, schedule, kernels, and memory for everything.
#include <algorithm>
#include <bit>
#include <unordered_map>
#include <utility>

#include "core/backend/dependencies.h"
#include "core/backend/later_runs.h"
#include "core/backend/shuffled_executor.h"
#include "core/base/error.h"
#include "core/graph/arenas.h"
#include "core/graph/error_context.h"
#include "core/graph/fusion.h"
#include "core/graph/passes/passes.h"
#include "core/graph/program_impl.h"
#include "core/graph/region.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

// Calls wait whose results are no larger, as each has memory for them: so many that a graph of all
// has about this many nodes. A step of more takes longer than to start it.
constexpr int64_t kMostWaitingResults = 4096;
constexpr uint64_t kNodesOfCalls = 512;
constexpr int64_t kInArena = -1;
// So many positions before its kernel a preparation runs beside others: enough for it to be over,
// and few, as its result lies in memory for so long.
constexpr int64_t kPreparedBefore = 4;

// A region is labelled with the ops in it, a fusion with its name.
std::string node_label(const Node& node) {
  std::string label(node.op->name);
  if (node.op == &op_region) label = region_name(read_region(node.attributes));
  if (node.op == &op_fused) label = node.attributes.get_string("fusion");
  if (!node.scope.empty()) label += " (" + node.scope.path + ")";
  return label;
}

// Adds what is known of the node and its kernel to what is known of the call.
CallInfoPtr named(CallInfo info, const PlannedNode& planned, Device device) {
  info.label = node_label(*planned.node);
  info.scope = planned.node->scope;
  info.op = info.label.substr(0, info.label.find(" ("));
  info.kernel = planned.kernel->description();
  info.device = device;
  return std::make_shared<const CallInfo>(std::move(info));
}

CallInfoPtr call_info(const Graph& graph, const PlannedNode& planned, Device device) {
  const Node& node = *planned.node;
  const std::vector<TensorSpec> outputs = read_outputs(graph, planned);
  CallInfo info = make_call_info(*node.op, node.attributes, specs_of(graph, node.inputs), outputs);
  info.memory_bytes += planned.kernel->workspace_bytes();
  return named(std::move(info), planned, device);
}

// The bytes that a call must read and write are those of its second part, so that they count once.
CallInfoPtr preparation_info(const Graph& graph, const PlannedNode& planned,
                             const PlannedPreparation& preparation, Device device) {
  CallInfo info;
  info.dtype = graph.value(planned.node->inputs[preparation.input]).spec.dtype;
  info.memory_bytes = preparation.bytes;
  return named(std::move(info), planned, device);
}

}  // namespace

std::vector<TensorSpec> specs_of(const Graph& graph, const std::vector<ValueId>& values) {
  std::vector<TensorSpec> specs;
  for (ValueId id : values) specs.push_back(graph.value(id).spec);
  return specs;
}

std::vector<TensorSpec> read_outputs(const Graph& graph, const PlannedNode& planned) {
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i < planned.outputs.size(); ++i) {
    if (planned.outputs[i].is_absent()) continue;
    specs.push_back(graph.value(planned.node->outputs[i]).spec);
  }
  return specs;
}

// The variables of the graph, or what stands for them on this device.
void Program::Impl::find_states(const CompileOptions& options) {
  std::unordered_map<const Variable*, VariablePtr> stand_ins;
  for (const auto& [variable, stand_in] : options.stand_ins) {
    if (variable == nullptr || stand_in == nullptr) {
      throw ValueError("compile: one of the variables, or of what stands for them, is null");
    }
    if (stand_in->value().spec() != variable->value().spec()) {
      throw ValueError(message("compile: variable \"", variable->name(), "\" is ",
                               spec_string(variable->value().spec()), ", and what stands for it ",
                               spec_string(stand_in->value().spec())));
    }
    stand_ins[variable.get()] = stand_in;
  }
  states = schedule.graph.states();
  for (VariablePtr& state : states) {
    if (const auto found = stand_ins.find(state.get()); found != stand_ins.end()) {
      state = found->second;
    }
  }
}

void Program::Impl::check_states() const {
  for (const VariablePtr& variable : states) {
    const Device where = variable->value().device();
    if (where == device) continue;
    throw DeviceError(message("variable \"", variable->name(), "\" is on ", device_name(where),
                              ", but the program is compiled for ", device_name(device),
                              "; create the model and the program on one device"));
  }
}

void Program::Impl::plan(const CompileOptions& options) {
  is_function = options.is_function;
  find_states(options);
  check_states();
  std::vector<std::shared_ptr<Kernel>> kernels = plan_kernels(options);
  move_constants();
  place(std::move(kernels), options);
}

// One entry for each position of the order; null where there is nothing to compute.
std::vector<std::shared_ptr<Kernel>> Program::Impl::plan_kernels(const CompileOptions& options) {
  const Graph& graph = schedule.graph;
  Backend& device_backend = backend(device);
  std::vector<std::shared_ptr<Kernel>> kernels;
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
    const PlanRequest request{*node.op, node.attributes,    inputs,
                              outputs,  options.allow_tf32, options.autotune};
    kernels.push_back(with_scope(node.scope.path, [&]() -> std::shared_ptr<Kernel> {
      if (is_empty) return nullptr;
      if (node.op == &op_fused) return fused_kernel(node.attributes);
      return begin_to_plan_kernel(device_backend, request);
    }));
  }
  // Only now: what takes other threads' time does so for all kernels at once.
  for (size_t position = 0; position < kernels.size(); ++position) {
    if (kernels[position] == nullptr) continue;
    with_scope(graph.nodes()[schedule.order[position]].scope.path,
               [&] { kernels[position]->finish_planning(); });
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

std::vector<PlannedPreparation> Program::Impl::split_kernels(
    std::vector<std::shared_ptr<Kernel>>& kernels) const {
  const Graph& graph = schedule.graph;
  std::vector<int64_t> computed(graph.values().size(), -1);  // by root: the position
  std::vector<PlannedPreparation> preparations;
  for (int64_t position = 0; position < std::ssize(kernels); ++position) {
    const Node& node = graph.nodes()[schedule.order[position]];
    for (ValueId id : node.outputs) computed[schedule.roots[id]] = position;
    std::optional<PreparedKernel> parts;
    if (kernels[position] != nullptr) parts = kernels[position]->prepared();
    if (!parts) continue;
    const ValueId root = schedule.roots[node.inputs[parts->input]];
    const int64_t first = std::max(computed[root] + 1, position - kPreparedBefore);
    if (first == position) continue;  // there is nothing that it could run beside
    preparations.push_back(
        {std::move(parts->preparation), parts->input, parts->bytes, first, position});
    kernels[position] = std::move(parts->kernel);
  }
  std::ranges::stable_sort(preparations, {}, &PlannedPreparation::first);
  return preparations;
}

void Program::Impl::place(std::vector<std::shared_ptr<Kernel>> kernels,
                          const CompileOptions& options) {
  const Graph& graph = schedule.graph;
  Backend& device_backend = backend(device);
  // The kernels of a body run one after another.
  const int64_t max_unshared_bytes = options.is_body      ? 0
                                     : shuffle_seed() > 0 ? shuffled_unshared_bytes(device_backend)
                                                          : device_backend.max_unshared_bytes();
  std::vector<PlannedPreparation> preparations;
  const bool runs_side_by_side = shuffle_seed() > 0 || device_backend.max_unshared_bytes() > 0;
  if (runs_side_by_side && !options.is_body) preparations = split_kernels(kernels);
  std::vector<int64_t> workspace_bytes;
  for (const auto& kernel : kernels) {
    workspace_bytes.push_back(kernel == nullptr ? 0 : kernel->workspace_bytes());
  }
  BufferPlan buffers = plan_buffers(schedule, workspace_bytes);
  const size_t num_buffers = buffers.buffers.size();  // those of preparations come behind them
  for (const PlannedPreparation& each : preparations) {
    buffers.buffers.push_back({each.bytes, each.first, each.last});
  }
  // What others overwrite is no place for outputs.
  const int64_t least_bytes = options.arena == nullptr ? 0 : plan_memory(buffers.buffers).bytes;
  is_arena_shared = options.arena != nullptr && !options.is_function && !options.is_body &&
                    least_bytes >= kLeastSharedBytes && device_backend.max_arenas(least_bytes) == 1;
  const std::vector<int64_t> result_offsets =
      options.is_function || options.is_body || is_arena_shared
          ? place_results(buffers, options)
          : std::vector<int64_t>(buffers.buffers.size(), kInArena);
  const MemoryPlan memory = plan_memory(buffers.buffers, max_unshared_bytes);
  stats.least_arena_bytes =
      max_unshared_bytes > 0 ? plan_memory(buffers.buffers).bytes : memory.bytes;
  one_arena_bytes = memory.bytes;

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
        return fixed(states[source.source]->value().data());
      case ValueKind::Constant:
        return fixed(constants[source.source].data());
      case ValueKind::Result:
        break;
    }
    const int32_t state = schedule.home_states[root];
    if (state >= 0) return fixed(states[state]->value().data());
    return in_arena(buffers.value_buffers[root], bytes);
  };

  const auto prepared = [&](size_t i) {
    return in_arena(static_cast<int32_t>(num_buffers + i), preparations[i].bytes);
  };
  std::vector<int64_t> instructions;
  size_t next = 0;  // preparation
  for (size_t position = 0; position < schedule.order.size(); ++position) {
    while (next < preparations.size() &&
           preparations[next].first == static_cast<int64_t>(position)) {
      PlannedPreparation& each = preparations[next];
      each.instruction = std::ssize(nodes);
      PlannedNode planned;
      planned.node = &graph.nodes()[schedule.order[each.last]];
      planned.kernel = each.kernel;
      planned.inputs = {operand(planned.node->inputs[each.input])};
      planned.outputs = {prepared(next)};
      planned.is_preparation = true;
      planned.call = preparation_info(graph, planned, each, device);
      nodes.push_back(std::move(planned));
      ++next;
    }
    instructions.push_back(std::ssize(nodes));
    if (kernels[position] == nullptr) continue;
    const Node& node = graph.nodes()[schedule.order[position]];
    PlannedNode planned;
    planned.kernel = std::move(kernels[position]);
    for (ValueId id : node.inputs) planned.inputs.push_back(operand(id));
    for (size_t i = 0; i < next; ++i) {
      if (preparations[i].last == static_cast<int64_t>(position)) {
        planned.inputs.push_back(prepared(i));
      }
    }
    for (ValueId id : node.outputs) planned.outputs.push_back(operand(id));
    planned.node = &node;
    planned.workspace =
        in_arena(buffers.workspace_buffers[position], planned.kernel->workspace_bytes());
    planned.call = call_info(graph, planned, device);
    nodes.push_back(std::move(planned));
  }
  stats.num_instructions = static_cast<int64_t>(nodes.size());
  if (options.is_body) {
    for (ValueId id : schedule.outputs) {
      output_offsets.push_back(result_offsets[buffers.value_buffers[schedule.roots[id]]]);
    }
    return;
  }
  instructions.push_back(std::ssize(nodes));
  note_memory(buffers, memory, instructions);
  for (const PlannedPreparation& each : preparations) note_preparation(each, instructions);
  for (ValueId id : schedule.outputs) output_places.push_back(operand(id));
  choose_arena(options);
  stats.longest_chain = longest_chain(dependencies(1));
  if (options.allocates) allocate_arena();
}

void Program::Impl::note_memory(const BufferPlan& buffers, const MemoryPlan& places,
                                const std::vector<int64_t>& instructions) {
  const Graph& graph = schedule.graph;
  std::vector<bool> noted(buffers.buffers.size(), false);
  size_t instruction = 0;
  const auto note = [&](int32_t buffer, const TensorSpec* spec) {
    if (buffer == kNoBuffer || noted[buffer] || buffers.buffers[buffer].bytes == 0) return;
    noted[buffer] = true;
    const BufferLifetime& lifetime = buffers.buffers[buffer];
    ArenaBuffer& one = memory.emplace_back();
    one.offset = places.offsets[buffer];
    one.bytes = lifetime.bytes;
    one.first = instructions[lifetime.first];
    one.last = instructions[lifetime.last];
    one.call = nodes[instruction].call;
    one.is_workspace = spec == nullptr;
    if (spec != nullptr) one.spec = *spec;
  };
  for (size_t position = 0; position < schedule.order.size(); ++position) {
    instruction = static_cast<size_t>(instructions[position]);
    if (instruction == nodes.size()) break;
    const Node& node = graph.nodes()[schedule.order[position]];
    if (nodes[instruction].node != &node) continue;
    for (ValueId id : node.outputs) note(buffers.value_buffers[id], &graph.value(id).spec);
    note(buffers.workspace_buffers[position], nullptr);
  }
}

void Program::Impl::note_preparation(const PlannedPreparation& preparation,
                                     const std::vector<int64_t>& instructions) {
  const PlannedNode& planned = nodes[preparation.instruction];
  ArenaBuffer& one = memory.emplace_back();
  one.offset = planned.outputs[0].offset;
  one.bytes = preparation.bytes;
  one.first = preparation.instruction;
  one.last = instructions[preparation.last];
  one.call = planned.call;
  one.is_workspace = true;
}

// Takes the buffers of outputs out of the arena. For each buffer: where it is in a slot's results,
// or kInArena.
std::vector<int64_t> Program::Impl::place_results(BufferPlan& buffers,
                                                  const CompileOptions& options) {
  std::vector<int64_t> offsets(buffers.buffers.size(), kInArena);
  bool is_apart = true;  // has each output memory of its own?
  for (ValueId id : schedule.outputs) {
    const int32_t buffer = buffers.value_buffers[schedule.roots[id]];
    is_apart = is_apart && offsets[buffer] == kInArena;
    if (offsets[buffer] != kInArena) continue;
    offsets[buffer] = slot_bytes;
    slot_bytes += align_buffer(std::exchange(buffers.buffers[buffer].bytes, 0));
  }
  if (options.is_body) return offsets;
  if (options.is_function && backend(device).later_runs() != nullptr && is_apart &&
      slot_bytes <= kMostWaitingResults) {
    const uint64_t calls = kNodesOfCalls / std::max<uint64_t>(schedule.order.size(), 1);
    num_slots =
        std::clamp<int64_t>(static_cast<int64_t>(std::bit_floor(calls)), 1, LaterRuns::kMostSteps);
  }
  results = allocate_storage(num_slots * slot_bytes, device);
  stats.output_bytes = results->bytes();
  // What lies between results is copied with them, and tools look for memory that nothing wrote.
  backend(device).fill(results->data(), 0, results->bytes());
  return offsets;
}

// Gives the program as many arenas as are of use, and a place for them.
void Program::Impl::choose_arena(const CompileOptions& options) {
  const Backend& device_backend = backend(device);
  if (options.repeats && one_arena_bytes > 0 && !is_arena_shared) {
    if (shuffle_seed() > 0) {
      stats.num_arenas = shuffled_arenas();
    } else if (const int64_t most = device_backend.max_arenas(one_arena_bytes); most > 1) {
      // Inputs can be anywhere: nothing is written there. Nor is anything of this touched.
      const std::vector<void*> nowhere(schedule.graph.inputs().size(), nullptr);
      stats.num_arenas = choose_arenas(arena_steps(nowhere, kSomewhere, 2),
                                       MemoryRange{kSomewhere, one_arena_bytes}, most);
    }
  }
  stats.arena_bytes = stats.num_arenas * one_arena_bytes;
  arena = is_arena_shared ? options.arena : std::make_shared<ArenaMemory>(device);
  const std::lock_guard lock(*arena);
  arena->add_user(stats.arena_bytes);
}

// With fewer arenas where there is not enough memory for all.
void Program::Impl::allocate_arena() {
  const std::lock_guard lock(*arena);
  try {
    arena_memory();
  } catch (const OutOfMemoryError&) {
    if (stats.num_arenas == 1) throw;
    arena->add_user(one_arena_bytes);
    arena->remove_user(stats.arena_bytes);
    stats.num_arenas = 1;
    stats.arena_bytes = one_arena_bytes;
    arena_memory();
  }
}

Program::Impl::~Impl() {
  if (arena == nullptr) return;
  // What is bound to the memory goes before it.
  calls.reset();
  executors.clear();
  const std::lock_guard lock(*arena);
  arena->remove_user(stats.arena_bytes);
}

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
  rooted.graph.join_readings();
  for (ValueId& id : rooted.outputs) id = graph.without_reading(id);
  if (options.optimize) {
    Backend& target = backend(device);
    PassOptions passes;
    passes.allow_tf32 = options.allow_tf32;
    passes.autotune = options.autotune;
    passes.backend = &target;
    passes.fusions = target.fusions();
    passes.least_generated_size = target.least_generated_size();
    passes.region_limits = [&](const Shape& domain) { return target.region_limits(domain); };
    passes.runs_side_by_side = target.max_unshared_bytes() > 0 || shuffle_seed() > 0;
    rooted = run_passes(rooted, passes);
  }
  impl.schedule = make_schedule(rooted);
  impl.staging.resize(graph.inputs().size());
  impl.plan(options);
  return program;
}

}  // namespace kerascnn
