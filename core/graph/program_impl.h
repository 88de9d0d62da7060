// What a program is made of; for the files that implement it. program_plan.cpp fills it when the
// program is compiled, program.cpp runs it.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/graph/call_queue.h"
#include "core/graph/program.h"
#include "core/graph/schedule.h"
#include "core/tensor/tensor.h"

namespace kerascnn {

// The memory of a step beside inputs and variables.
struct StepMemory {
  char* arena = nullptr;
  char* results = nullptr;  // where outputs are not in the arena
};

// An arena where none is needed, to see which memory kernels share. Nothing of it is touched.
inline char* const kSomewhere = reinterpret_cast<char*>(uintptr_t{1} << 62);

// Where a kernel's argument is. Inputs are unknown until a run, intermediate results are in the
// arena of the step, and outputs in results where others use the arena too: each slot of a function
// has some.
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
  const Node* node = nullptr;   // of the schedule's graph
  bool is_preparation = false;  // of the node's kernel (PreparedKernel)
};

// The first part of a kernel that a program runs in two (PreparedKernel).
struct PlannedPreparation {
  std::shared_ptr<Kernel> kernel;
  size_t input = 0;  // of the node
  int64_t bytes = 0;
  int64_t first = 0;  // the position that it comes before
  int64_t last = 0;   // that of the node
  int64_t instruction = 0;
};

std::vector<TensorSpec> specs_of(const Graph& graph, const std::vector<ValueId>& values);
// The specs of the outputs that somebody reads.
std::vector<TensorSpec> read_outputs(const Graph& graph, const PlannedNode& planned);

struct Program::Impl {
  Device device;
  ProgramStats stats;
  Schedule schedule;
  std::vector<VariablePtr> states;     // those of the graph, or what stands for them
  std::vector<Tensor> constants;       // on the device; undefined where no kernel reads it
  std::shared_ptr<ArenaMemory> arena;  // of all arenas, one behind the other; null in a body
  bool is_arena_shared = false;        // with other programs
  int64_t bound_place = 0;             // of the arena: where kernels were bound to it
  int64_t one_arena_bytes = 0;         // of each
  StoragePtr results;                  // of all slots; null where the outputs are in the arena
  int64_t slot_bytes = 0;              // of each
  int64_t num_slots = 1;
  bool is_function = false;  // of CompileOptions
  std::vector<PlannedNode> nodes;
  std::vector<ArenaBuffer> memory;      // of one arena
  std::vector<Operand> output_places;   // in the first arena or slot
  std::vector<int64_t> output_offsets;  // of a body: in its results

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

  Impl() = default;
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void plan(const CompileOptions& options);
  std::vector<std::shared_ptr<Kernel>> plan_kernels(const CompileOptions& options);
  void place(std::vector<std::shared_ptr<Kernel>> kernels, const CompileOptions& options);
  // Replaces kernels by the second parts of theirs and returns the first parts.
  std::vector<PlannedPreparation> split_kernels(
      std::vector<std::shared_ptr<Kernel>>& kernels) const;
  void choose_arena(const CompileOptions& options);
  void allocate_arena();
  // With the arena's lock: where it is now. Kernels that are bound to another place are given up.
  char* arena_memory();
  std::vector<Tensor> outputs();
  std::vector<int64_t> place_results(BufferPlan& buffers, const CompileOptions& options);
  // `instructions`: by position in the order, and one more, the first instruction from there on.
  void note_memory(const BufferPlan& buffers, const MemoryPlan& places,
                   const std::vector<int64_t>& instructions);
  void note_preparation(const PlannedPreparation& preparation,
                        const std::vector<int64_t>& instructions);
  void move_constants();
  void find_states(const CompileOptions& options);
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
  ArenaSteps arena_steps(const std::vector<void*>& inputs, char* first_arena, int64_t count) const;
  Dependencies dependencies(int64_t repeats) const;
  Executor& executor_for(const std::vector<void*>& inputs);
};

}  // namespace kerascnn
