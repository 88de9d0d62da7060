// Which tapes record in this thread.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "core/eager/tape_node.h"
#include "core/tensor/variable.h"

namespace kerascnn {

class Tape;

struct Recorder {
  std::vector<std::shared_ptr<Tape>> tapes;  // that record, in the order in which they began
  // Nodes from here on are of one of these tapes. What an earlier tape recorded is over, else a
  // loop that carries a tensor on would keep all of its steps.
  uint64_t first = std::numeric_limits<uint64_t>::max();
  // Pauses in this thread after which tapes go on. What those tapes know is not over: a call that
  // another tape records meanwhile may use it, and they may record that tape's gradients.
  int num_pauses = 0;
  // The list in which a pause collects the trainable variables that are read in it.
  std::vector<VariablePtr>* reads = nullptr;

  static Recorder& here();
};

extern thread_local Recorder thread_recorder;
inline Recorder& Recorder::here() { return thread_recorder; }

inline bool is_recording() { return !Recorder::here().tapes.empty(); }
// Does it matter that a variable is read?
inline bool notes_reads() { return is_recording() || Recorder::here().reads != nullptr; }

// Is it a result of what these tapes record, or watched by one of them?
inline bool is_tracked(const Tensor& tensor) {
  const TapeEdge& edge = tensor.edge();
  return edge.node != nullptr && edge.node->sequence() >= Recorder::here().first;
}

// Notes a call if gradients can go through it. Gives the outputs their edges.
void record_call(const EagerPlanPtr& plan, Inputs inputs, std::span<Tensor> outputs);

// The variable's value as a tensor that shares its memory. While tapes record, those that watch
// variables watch it if it is trainable.
Tensor read_variable(const VariablePtr& variable);

uint64_t sequence_now();

// Nothing is recorded in this thread while this lives, but the variables that are read are noted.
class RecordingPause {
 public:
  RecordingPause() : reads_before_(Recorder::here().reads) {
    tapes_.swap(Recorder::here().tapes);
    ++Recorder::here().num_pauses;
    Recorder::here().reads = &reads_;
  }
  ~RecordingPause() {
    tapes_.swap(Recorder::here().tapes);
    --Recorder::here().num_pauses;
    Recorder::here().reads = reads_before_;
  }
  RecordingPause(const RecordingPause&) = delete;
  RecordingPause& operator=(const RecordingPause&) = delete;

  const std::vector<VariablePtr>& reads() const { return reads_; }

 private:
  std::vector<std::shared_ptr<Tape>> tapes_;
  std::vector<VariablePtr> reads_;
  std::vector<VariablePtr>* reads_before_;
};

}  // namespace kerascnn
