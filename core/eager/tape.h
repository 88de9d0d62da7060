// A tape: which calls gradients are taken through, and by what.
//
//   const auto tape = std::make_shared<Tape>(/*persistent=*/false, /*watches_variables=*/true);
//   tape->start();
//   Tensor y = ...;                      // calls with a watched input, or a result of one
//   tape->stop();
//   tape->gradients({y}, {{}}, {x.edge()});
//
// Recording is of the thread that started the tape. Tapes nest; each records for itself.
#pragma once

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/eager/recorder.h"

namespace kerascnn {

struct EdgeHash {
  size_t operator()(const std::pair<const TapeNode*, uint32_t>& edge) const {
    return reinterpret_cast<size_t>(edge.first) * 31 + edge.second;
  }
};

// What a gradient is taken by: a tensor, or all readings of a variable.
using TapeSource = std::vector<TapeEdge>;

class Tape : public std::enable_shared_from_this<Tape> {
 public:
  Tape(bool persistent, bool watches_variables);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  void start();
  void stop();  // in the thread that started it, else ValueError
  void pause();
  void resume();  // in the thread that paused it
  bool is_recording() const { return is_recording_; }
  // Forgets all it has recorded.
  void reset();

  // Throws TypeError for a tensor that is not floating, ValueError where the tape does not record.
  void watch(Tensor& tensor);
  void watch(const VariablePtr& variable);
  const std::vector<VariablePtr>& watched_variables() const { return variables_; }

  // Empty where the variable was not watched.
  TapeSource source_of(const VariablePtr& variable) const;
  // Empty where the tensor is neither watched nor the result of a call.
  TapeSource source_of(const Tensor& source) const;

  // d sum(targets * output_gradients) / d source for each of `sources`; undefined where there is no
  // way through what this tape recorded. An undefined output gradient stands for ones. One walk
  // from the targets back, without recursion, in the order of recording. A tape that is not
  // persistent can do it once, and lets go of what it passes.
  std::vector<Tensor> gradients(const std::vector<Tensor>& targets,
                                const std::vector<Tensor>& output_gradients,
                                const std::vector<TapeSource>& sources);

 private:
  friend Tensor read_variable(const VariablePtr& variable);
  using Edge = std::pair<const TapeNode*, uint32_t>;

  // Does it follow what is read of the variable now?
  bool follows(const VariablePtr& variable) const;
  std::vector<std::shared_ptr<TapeNode>>& readings_of(const VariablePtr& variable);
  void note(const VariablePtr& variable, const std::shared_ptr<TapeLeaf>& leaf);
  bool covers(uint64_t sequence) const;
  // Was the edge itself watched, or read of a variable, before the call with this number?
  bool watched(const TapeEdge& edge, uint64_t sequence) const;
  bool may_take_gradients() const { return !ranges_.empty() && (persistent_ || !is_used_); }
  bool is_needed_by_others() const;
  void check_usable() const;

  const bool persistent_;
  const bool watches_variables_;
  bool is_recording_ = false;
  bool is_used_ = false;
  // [first, last] numbers of nodes that were recorded; the last range is open while it records.
  std::vector<std::pair<uint64_t, uint64_t>> ranges_;
  // The least number of its calls and of what it watches; nodes with lower numbers have nothing to
  // do with it.
  uint64_t first_ = std::numeric_limits<uint64_t>::max();
  std::vector<std::shared_ptr<TapeNode>> watched_;            // keeps them while they are known
  std::unordered_map<Edge, uint64_t, EdgeHash> last_before_;  // the last call before it was watched
  std::vector<VariablePtr> variables_;
  // A leaf for each time that a watched variable was read.
  std::unordered_map<const Variable*, std::vector<std::shared_ptr<TapeNode>>> readings_;

  friend class BackwardWalk;
  friend bool records_once();
  friend bool may_be_asked_for(uint64_t sequence);
};

// Does one tape record in this thread, and not for gradients of gradients?
bool records_once();

// The variables that are not trained, and that tapes which record in this thread watch.
std::vector<VariablePtr> watched_untrained();

}  // namespace kerascnn
