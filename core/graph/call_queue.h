// A program as a function: each call is one step, takes inputs that can be anywhere, and gives
// results of its own.
//
// On a GPU a step of a small network takes less time than to start it by itself. So a call takes a
// slot: a place for what has to be copied to the device, and one for its results. It notes what is
// to be done and returns. Calls that came together start as one (core/backend/later_runs.h), by
// kernels that were bound to the slots once and for all.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/later_runs.h"
#include "core/tensor/tensor.h"

namespace kerascnn {

// An argument of a call: a tensor on the program's device, or memory of the host that is only lent
// for the time of the call.
struct CallArgument {
  Tensor tensor;
  bool is_lent = false;
};

// What calls need of their program.
struct CalledProgram {
  Device device;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  std::vector<int64_t> output_offsets;  // in the results of a slot
  int64_t slot_bytes = 0;               // of a slot's results
  int64_t num_slots = 1;
  StoragePtr results;  // slot by slot
  StoragePtr arena;    // of intermediate results
  // The kernel calls of a step in a slot, with the inputs at these addresses.
  std::function<std::vector<Instruction>(const std::vector<void*>& inputs, int64_t slot)>
      instructions;
  // Would a step overwrite this tensor?
  std::function<bool(const Tensor&)> is_overwritten;
};

class CallQueue final : public Executor {
 public:
  // `later` may be null; then no call waits.
  CallQueue(CalledProgram program, LaterRuns* later);
  ~CallQueue() override;  // starts the waiting calls
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // Only one thread at a time may use it. The arguments have the program's input specs.
  std::vector<Tensor> call(const std::vector<CallArgument>& arguments);

  // Starts the first `steps` of the waiting calls: from LaterRuns, with its lock, or from call()
  // when nothing waits.
  void run(int64_t steps) override;

 private:
  // A call, from when it is made until its slot is taken again.
  struct Call {
    std::vector<Tensor> sources;  // of the inputs that are copied; else undefined
    std::vector<Tensor> results;  // where they are wanted, one by one; empty where in `results_`
  };
  struct Bound {
    std::vector<void*> inputs;
    int64_t count;  // calls
    std::unique_ptr<Executor> executor;
  };

  bool has_to_be_copied(size_t index, const CallArgument& argument) const;
  void choose_copies(const std::vector<CallArgument>& arguments);
  void lay_out(std::vector<bool> is_copied);
  void begin_anew();
  void settle();
  Tensor place_of(size_t input, int64_t slot) const;
  Tensor kept_on_host(size_t input, int64_t slot, const Tensor& lent);
  std::vector<Tensor> results_of(int64_t slot) const;
  bool is_result(const Tensor& tensor) const;
  void start(int64_t first, int64_t count);
  void copy_inputs(int64_t first, int64_t count);
  void copy_results(int64_t first, int64_t count);
  Executor& executor_for(int64_t count);

  CalledProgram program_;
  LaterRuns* later_;
  Backend& backend_;

  // For each input: an input that is always at one address is read there, since the kernels would
  // have to be bound anew to another one.
  std::vector<bool> is_copied_;
  std::vector<Tensor> in_place_;
  std::vector<int64_t> offsets_;  // in a slot
  int64_t slot_bytes_ = 0;        // of the copied inputs
  int64_t num_slots_ = 1;
  StoragePtr slots_;        // on the device
  std::vector<char> host_;  // what callers lent, slot by slot

  std::vector<Call> calls_;  // by slot
  int64_t num_made_ = 0;     // calls with a slot
  int64_t num_started_ = 0;
  Tensor results_;              // of all slots, for callers; new when the first slot is taken
  std::list<Bound> executors_;  // the one used last first
};

}  // namespace kerascnn
