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

class Tape : public std::enable_shared_from_this<Tape> {
 public:
  Tape(bool persistent, bool watches_variables);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  void start();
  void stop();  // in the thread that started it, else ValueError
  bool is_recording() const { return is_recording_; }
  // Forgets all it has recorded.
  void reset();

  // Throws TypeError for a tensor that is not floating, ValueError where the tape does not record.
  void watch(Tensor& tensor);
  void watch(const VariablePtr& variable);
  const std::vector<VariablePtr>& watched_variables() const { return variables_; }

  // The edge that gradients by a variable end at; null where it was not watched.
  TapeEdge edge_of(const VariablePtr& variable) const;
  // Ends a source that this tape knows nothing of at no edge.
  TapeEdge edge_of(const Tensor& source) const;

  // d sum(targets * output_gradients) / d source for each edge in `sources`; undefined where there
  // is no way. An undefined output gradient stands for ones. One walk from the targets back,
  // without recursion, in the order of recording. A tape that is not persistent can do it once, and
  // lets go of what it passes.
  std::vector<Tensor> gradients(const std::vector<Tensor>& targets,
                                const std::vector<Tensor>& output_gradients,
                                const std::vector<TapeEdge>& sources);

 private:
  friend Tensor read_variable(const VariablePtr& variable);
  void note(const VariablePtr& variable, const std::shared_ptr<TapeLeaf>& leaf);
  bool covers(uint64_t sequence) const;
  bool is_needed_by_others() const;
  void check_usable() const;

  const bool persistent_;
  const bool watches_variables_;
  bool is_recording_ = false;
  bool is_used_ = false;
  // [first, last] numbers of nodes that were recorded; the last range is open while it records.
  std::vector<std::pair<uint64_t, uint64_t>> ranges_;
  std::vector<std::shared_ptr<TapeNode>> watched_;
  std::unordered_set<const TapeNode*> is_watched_;
  std::vector<VariablePtr> variables_;
  std::unordered_map<const Variable*, std::shared_ptr<TapeLeaf>> leaves_;

  friend class BackwardWalk;
  friend bool records_once();
};

// Does one tape record in this thread, and not for gradients of gradients?
bool records_once();

}  // namespace kerascnn
