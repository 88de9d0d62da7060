// A graph made ready to run on one device: optimized, planned into one block of memory, its kernels
// chosen. Nothing is allocated and no Python runs after the first step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/dependencies.h"
#include "core/graph/arena_memory.h"
#include "core/graph/call_queue.h"
#include "core/graph/graph.h"

namespace kerascnn {

struct ProgramStats {
  int64_t arena_bytes = 0;        // all intermediate results and workspaces, of all arenas
  int64_t least_arena_bytes = 0;  // with one arena, where buffers share memory as far as they can
  int64_t output_bytes = 0;       // of outputs that are not in the arena
  int64_t num_arenas = 1;         // steps in a row that share no memory for these
  int64_t constant_bytes = 0;
  int64_t num_instructions = 0;
  int64_t longest_chain = 0;     // instructions that have to run one after another
  int64_t num_nodes_traced = 0;  // before the passes
};

struct CompileOptions {
  bool optimize = true;  // off: every traced node runs by itself, for finding faults
  bool allow_tf32 = true;
  // Will runs have several steps? Otherwise all steps share one place for their intermediate
  // results.
  bool repeats = true;
  // Is it for call()? Then results have places of their own, for several calls at a time.
  bool is_function = false;
  // Is it what a node runs (body_program.h)? Then its memory is part of the node's workspace.
  bool is_body = false;
  // May kernels be chosen by timing them (core/backend/kernel_choice.h)?
  bool autotune = false;
  // The arena of programs that this one takes turns with. From kLeastSharedBytes on its
  // intermediate results are there; else, and without one, it has memory of its own.
  std::shared_ptr<ArenaMemory> arena = nullptr;
  // Off: the arena's memory is allocated by the first run.
  bool allocates = true;
  // Variables of the graph, and what the program reads and writes in place of each: variables of
  // the same spec, as they are on another device (replicas.h).
  std::vector<std::pair<VariablePtr, VariablePtr>> stand_ins = {};
};

// Small programs gain more from steps that run side by side than from the memory.
constexpr int64_t kLeastSharedBytes = int64_t{16} << 20;

// What one kernel call of a step is, for profiles.
struct InstructionInfo {
  CallInfoPtr call;
  // Of the graph; what is fused in it has a name in `call`. "preparation" for the first part of a
  // kernel that runs in two (PreparedKernel), of which nothing but the call is given.
  std::string op;
  Attributes attributes;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;  // without optional ones that nobody reads
};

// A piece of the arena, which holds a result or a kernel's workspace from instruction `first` to
// `last`.
struct ArenaBuffer {
  int64_t offset = 0;
  int64_t bytes = 0;
  int64_t first = 0;
  int64_t last = 0;
  CallInfoPtr call;  // what computes it
  TensorSpec spec;   // of a result
  bool is_workspace = false;
};

class Program {
 public:
  // Throws OutOfMemoryError where the arena does not fit (nothing is changed then; others with the
  // same arena find memory for themselves again).
  static std::shared_ptr<Program> compile(const Graph& graph, const std::vector<ValueId>& outputs,
                                          Device device, const CompileOptions& options = {});

  // Runs `steps` steps with these inputs (contiguous, on the program's device, specs as traced) and
  // waits for nothing on CUDA. Inputs must stay alive until the next run or synchronize; the
  // program keeps them. `later`: the steps may be enqueued later, together with those of further
  // runs. This shows only in the time: whatever is asked of the device afterwards finds them done.
  void run(const std::vector<Tensor>& inputs, int64_t steps = 1, bool later = false);

  // One step as a function: its results belong to the caller. Arguments are of the traced specs;
  // they are used where they are, or copied where that changes from call to call, where kernels
  // can't read them or where the step overwrites them. On CUDA calls may be enqueued later, as with
  // `later` above. Only programs that were compiled for it have this; others throw ValueError.
  std::vector<Tensor> call(const std::vector<CallArgument>& arguments);

  // Lets go of the inputs of the last run, whose memory others may then use after its steps.
  void release_inputs();

  // The results of the last step: memory that the next run of this program overwrites.
  std::vector<Tensor> outputs() const;

  Device device() const;
  ProgramStats stats() const;
  // The kernel calls of a step over these inputs, in an order that is right, for each arena; for
  // tests and tools. The memory that they touch is the program's.
  ArenaSteps arena_steps(const std::vector<Tensor>& inputs) const;
  // The same for the first arena alone.
  std::vector<Instruction> instructions(const std::vector<Tensor>& inputs) const;
  // The descriptions are in the order of instructions().
  std::vector<InstructionInfo> describe() const;
  // What lies in the arena of a step, in the order in which it is written.
  const std::vector<ArenaBuffer>& memory() const;
  // What each kernel call that meets other processes takes, in the order of the calls.
  std::vector<std::vector<TensorSpec>> meetings() const;
  // The variables that it reads or writes.
  const std::vector<VariablePtr>& states() const;
  // Which instructions wait for which in `repeats` steps in a row, each in its arena; see
  // find_dependencies.
  Dependencies dependencies(int64_t repeats) const;
  // Seconds that a run of each instruction takes: one row for each pass over the step, in which
  // each instruction is run `repeats` times by itself before the next one's turn. The first pass
  // makes what is needed for that. Variables hold afterwards what they held before, outputs nothing
  // that means something.
  std::vector<std::vector<double>> time_instructions(const std::vector<Tensor>& inputs,
                                                     int64_t passes, int64_t repeats);
  // One line per instruction: label, kernel description, output specs.
  std::string to_string() const;

  ~Program();

 private:
  friend class BodyProgram;
  Program();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kerascnn
