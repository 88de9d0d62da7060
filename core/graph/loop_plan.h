// What the kernels of loops and choices share on all devices: their planned bodies, and the layout
// of the node's workspace. A body's kernels have the same arguments in each step. Before it, rows
// of the slices are copied to where it reads them; after it, its outputs are copied to the carries
// and to the rows of the stacks. So one list of kernel calls is the loop, however long it is.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/graph/body_program.h"
#include "core/graph/loop.h"

namespace kerascnn {

// Copies `bytes`. With `from_row` or `to_row` it copies from or to row r of rows of that many
// bytes.
struct RowCopy {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t bytes = 0;
  bool from_row = false;
  bool to_row = false;
};

// A loop with its addresses.
struct BoundLoop {
  int64_t length = 0;  // -1: no limit
  bool reverse = false;
  const int64_t* given_count = nullptr;  // how many steps, on the device; null: `length`
  std::vector<RowCopy> begin;            // before the first step
  std::vector<RowCopy> before, after;    // each step
  std::vector<RowCopy> end;              // after the last one
  std::vector<MemoryRange> zeroed;       // before the first step
  std::vector<Instruction> condition, body;
  const bool* goes_on = nullptr;  // the condition leaves it here; null where there is none
  int64_t* count = nullptr;       // for the number of steps; null where nothing wants it
  int64_t* counters = nullptr;    // kLoopCounters of the device's own
};

constexpr int64_t kLoopCounters = 4;

class LoopPlan {
 public:
  LoopPlan(const PlanRequest& request, Device device);

  int64_t workspace_bytes() const { return total_bytes_; }
  bool keeps_state() const;
  bool meets_processes() const;
  std::string description() const;
  BoundLoop bind(const KernelArgs& args) const;

 private:
  int64_t take(int64_t bytes);

  LoopShape shape_;
  std::unique_ptr<BodyProgram> body_, condition_;
  std::vector<int64_t> row_bytes_;    // of the body's inputs
  std::vector<int64_t> places_;       // in the workspace, of the carries and slices
  std::vector<int64_t> stack_bytes_;  // of the stacks' rows
  int64_t body_place_ = 0, condition_place_ = 0, counters_place_ = 0;
  int64_t total_bytes_ = 0;
};

// One branch of a choice with its addresses.
struct BoundBranch {
  std::vector<Instruction> body;
  std::vector<RowCopy> after;
};

class SwitchPlan {
 public:
  SwitchPlan(const PlanRequest& request, Device device);

  int64_t workspace_bytes() const { return total_bytes_; }
  bool keeps_state() const;
  bool meets_processes() const;
  std::string description() const;
  size_t size() const { return branches_.size(); }
  BoundBranch bind(size_t branch, const KernelArgs& args) const;

 private:
  std::vector<std::unique_ptr<BodyProgram>> branches_;
  size_t num_outputs_ = 0;
  int64_t total_bytes_ = 0;
};

}  // namespace kerascnn
