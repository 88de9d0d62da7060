#include "core/graph/program.h"

#include <algorithm>
#include <chrono>
#include <sstream>

#include "core/backend/dependencies.h"
#include "core/base/error.h"
#include "core/graph/program_impl.h"
#include "core/memory/poison.h"

namespace kerascnn {
namespace {

// Programs that are run with a few sets of buffers in turn (double buffering, a partial last batch)
// don't make a new executor each time: on CUDA that is a new capture.
constexpr size_t kMaxExecutors = 4;
// Kernels read and write vectors of this many bytes.
constexpr uintptr_t kInputAlignment = 16;
// dependencies() has a list for each call of all steps; with more of them, memory would run out.
constexpr int64_t kMostListedCalls = 1 << 20;

bool overlaps(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes) {
  const auto first = reinterpret_cast<uintptr_t>(a), second = reinterpret_cast<uintptr_t>(b);
  return first < second + static_cast<uintptr_t>(b_bytes) &&
         second < first + static_cast<uintptr_t>(a_bytes);
}

}  // namespace

// Is the input's memory part of what the program writes?
bool Program::Impl::is_overwritten(const Tensor& input) const {
  for (const StoragePtr& storage : {arena->storage(), results}) {
    if (storage == nullptr) continue;
    if (overlaps(input.data(), input.bytes(), storage->data(), storage->bytes())) return true;
  }
  for (const Assignment& assignment : schedule.graph.assignments()) {
    const Tensor& state = states[assignment.state]->value();
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

ArenaSteps Program::Impl::arena_steps(const std::vector<void*>& inputs, char* first_arena,
                                      int64_t count) const {
  char* const first_results = results ? static_cast<char*>(results->data()) : nullptr;
  ArenaSteps result;
  for (int64_t i = 0; i < count; ++i) {
    result.push_back(instructions(inputs, {first_arena + i * one_arena_bytes, first_results}));
  }
  return result;
}

char* Program::Impl::arena_memory() {
  char* const memory = static_cast<char*>(arena->storage()->data());
  if (bound_place != arena->num_places()) {
    executors.clear();
    calls.reset();
    bound_place = arena->num_places();
  }
  return memory;
}

Dependencies Program::Impl::dependencies(int64_t repeats) const {
  // Inputs can be anywhere: nothing is written there.
  const std::vector<void*> nowhere(schedule.graph.inputs().size(), nullptr);
  return find_dependencies(arena_steps(nowhere, kSomewhere, stats.num_arenas), repeats);
}

Executor& Program::Impl::executor_for(const std::vector<void*>& inputs) {
  char* const memory_of_all = arena_memory();
  const auto found = std::find_if(executors.begin(), executors.end(),
                                  [&](const auto& bound) { return bound.inputs == inputs; });
  if (found != executors.end()) {
    executors.splice(executors.begin(), executors, found);
    return *executors.front().executor;
  }
  std::unique_ptr<Executor> executor =
      backend(device).make_executor(arena_steps(inputs, memory_of_all, stats.num_arenas));
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
  const std::lock_guard arena_lock(*arena);
  std::vector<Tensor> usable;
  Executor& executor = executor_for(bind(inputs, usable));
  // Nothing in the arena outlives a run but the outputs, which the next one writes anew.
  if (poisons_memory()) backend(device).fill(arena_memory(), kPoison, stats.arena_bytes);
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
    states[assignment.state]->value().storage()->note_change();
  }
}

std::vector<Tensor> Program::Impl::call(const std::vector<CallArgument>& arguments) {
  if (!is_function) {
    throw ValueError("program: only what was compiled with is_function can be called; use run()");
  }
  check_count(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    check_input(i, arguments[i].tensor, arguments[i].is_lent);
  }
  const std::lock_guard lock(mutex);
  const std::lock_guard arena_lock(*arena);
  arena_memory();
  if (calls == nullptr) calls = make_calls();
  note_changes();
  return calls->call(arguments);
}

std::unique_ptr<CallQueue> Program::Impl::make_calls() {
  CalledProgram called;
  called.device = device;
  called.inputs = specs_of(schedule.graph, schedule.graph.inputs());
  called.outputs = specs_of(schedule.graph, schedule.outputs);
  for (const Operand& place : output_places) called.output_offsets.push_back(place.offset);
  called.slot_bytes = slot_bytes;
  called.num_slots = num_slots;
  called.results = results;
  called.arena = arena->storage();
  char* const first_arena = arena_memory();
  called.instructions = [this, first_arena](const std::vector<void*>& inputs, int64_t slot) {
    const int64_t number = slot % stats.num_arenas;
    return instructions(inputs, {first_arena + number * one_arena_bytes,
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
  const std::lock_guard arena_lock(*arena);
  char* const memory_of_all = arena_memory();
  Backend& device_backend = backend(device);
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
  ArenaSteps all = arena_steps(bind(inputs, usable), memory_of_all, stats.num_arenas);
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

std::vector<Tensor> Program::Impl::outputs() {
  const std::lock_guard lock(*arena);
  arena_memory();
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < output_places.size(); ++i) {
    const Operand& place = output_places[i];
    const TensorSpec& spec = schedule.graph.value(schedule.outputs[i]).spec;
    const bool is_apart = place.kind == Operand::Kind::Results;
    tensors.emplace_back(is_apart ? results : arena->storage(), spec,
                         contiguous_strides(spec.shape), place.offset);
  }
  return tensors;
}

std::vector<Tensor> Program::outputs() const { return impl_->outputs(); }

Device Program::device() const { return impl_->device; }

ProgramStats Program::stats() const { return impl_->stats; }

ArenaSteps Program::arena_steps(const std::vector<Tensor>& inputs) const {
  std::vector<void*> pointers;
  for (const Tensor& input : inputs) pointers.push_back(input.data());
  const std::lock_guard lock(*impl_->arena);
  return impl_->arena_steps(pointers, impl_->arena_memory(), impl_->stats.num_arenas);
}

std::vector<Instruction> Program::instructions(const std::vector<Tensor>& inputs) const {
  return arena_steps(inputs).front();
}

std::vector<InstructionInfo> Program::describe() const {
  const Graph& graph = impl_->schedule.graph;
  std::vector<InstructionInfo> result;
  for (const PlannedNode& planned : impl_->nodes) {
    const Node& node = *planned.node;
    InstructionInfo& info = result.emplace_back();
    info.call = planned.call;
    if (planned.is_preparation) {
      info.op = "preparation";
      continue;
    }
    info.op = node.op->name;
    info.attributes = node.attributes;
    info.inputs = specs_of(graph, node.inputs);
    info.outputs = read_outputs(graph, planned);
  }
  return result;
}

const std::vector<ArenaBuffer>& Program::memory() const { return impl_->memory; }

std::vector<std::vector<TensorSpec>> Program::meetings() const {
  std::vector<std::vector<TensorSpec>> result;
  for (const PlannedNode& planned : impl_->nodes) {
    if (!planned.kernel->meets_processes()) continue;
    result.push_back(specs_of(impl_->schedule.graph, planned.node->inputs));
  }
  return result;
}

const std::vector<VariablePtr>& Program::states() const { return impl_->states; }

Dependencies Program::dependencies(int64_t repeats) const {
  if (repeats < 1) {
    throw ValueError(message("program: repeats must be at least 1, received ", repeats));
  }
  const auto calls = std::max<int64_t>(1, std::ssize(impl_->nodes));
  if (const int64_t most = std::max<int64_t>(1, kMostListedCalls / calls); repeats > most) {
    throw ValueError(message("program: repeats must be at most ", most, " for a step of ", calls,
                             " kernel calls, received ", repeats));
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
    if (planned.is_preparation) {
      out << planned.call->memory_bytes << " bytes\n";
      continue;
    }
    for (size_t i = 0; i < planned.node->outputs.size(); ++i) {
      out << (i == 0 ? "" : ", ") << spec_string(graph.value(planned.node->outputs[i]).spec);
    }
    out << '\n';
  }
  return out.str();
}

}  // namespace kerascnn
