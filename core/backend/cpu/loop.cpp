// Loops and choices: the host runs the kernels of their bodies.
#include "core/graph/loop_plan.h"

#include <algorithm>
#include <cstring>

#include "core/backend/cpu/kernels.h"
#include "core/base/error.h"

namespace kerascnn::cpu {
namespace {

void copy_rows(const std::vector<RowCopy>& copies, int64_t row) {
  for (const RowCopy& copy : copies) {
    const char* const from = static_cast<const char*>(copy.from);
    char* const to = static_cast<char*>(copy.to);
    std::memcpy(to + (copy.to_row ? row * copy.bytes : 0),
                from + (copy.from_row ? row * copy.bytes : 0), static_cast<size_t>(copy.bytes));
  }
}

void run_all(const std::vector<Instruction>& instructions) {
  for (const Instruction& instruction : instructions) {
    try {
      instruction.kernel->run(
          {instruction.inputs, instruction.outputs, instruction.workspace, nullptr});
    } catch (const Error& error) {
      throw DeviceError(message(instruction.label, ": ", error.what()));
    }
  }
}

class LoopKernel final : public Kernel {
 public:
  explicit LoopKernel(const PlanRequest& request) : plan_(request, Device{}) {}

  void run(const KernelArgs& args) override {
    const BoundLoop loop = plan_.bind(args);
    for (const MemoryRange& range : loop.zeroed) {
      std::memset(const_cast<void*>(range.data), 0, static_cast<size_t>(range.bytes));
    }
    copy_rows(loop.begin, 0);
    const int64_t most = loop.length < 0 ? INT64_MAX : loop.length;
    const int64_t count =
        loop.given_count == nullptr ? most : std::clamp<int64_t>(*loop.given_count, 0, most);
    int64_t step = 0;
    for (; step < count; ++step) {
      if (loop.goes_on != nullptr) {
        run_all(loop.condition);
        if (!*loop.goes_on) break;
      }
      const int64_t row = loop.reverse ? count - 1 - step : step;
      copy_rows(loop.before, row);
      run_all(loop.body);
      copy_rows(loop.after, row);
    }
    copy_rows(loop.end, 0);
    if (loop.count != nullptr) *loop.count = step;
  }

  int64_t workspace_bytes() const override { return plan_.workspace_bytes(); }
  bool keeps_state() const override { return plan_.keeps_state(); }
  bool meets_processes() const override { return plan_.meets_processes(); }
  std::string description() const override { return "kerascnn loop, " + plan_.description(); }

 private:
  LoopPlan plan_;
};

class SwitchKernel final : public Kernel {
 public:
  explicit SwitchKernel(const PlanRequest& request) : plan_(request, Device{}) {}

  void run(const KernelArgs& args) override {
    const int64_t last = static_cast<int64_t>(plan_.size()) - 1;
    const int64_t index = *static_cast<const int32_t*>(args.inputs[0]);
    const BoundBranch branch =
        plan_.bind(static_cast<size_t>(std::clamp<int64_t>(index, 0, last)), args);
    run_all(branch.body);
    copy_rows(branch.after, 0);
  }

  int64_t workspace_bytes() const override { return plan_.workspace_bytes(); }
  bool keeps_state() const override { return plan_.keeps_state(); }
  bool meets_processes() const override { return plan_.meets_processes(); }
  std::string description() const override { return "kerascnn switch, " + plan_.description(); }

 private:
  SwitchPlan plan_;
};

}  // namespace

std::unique_ptr<Kernel> plan_loop(const PlanRequest& request) {
  return std::make_unique<LoopKernel>(request);
}

std::unique_ptr<Kernel> plan_switch(const PlanRequest& request) {
  return std::make_unique<SwitchKernel>(request);
}

}  // namespace kerascnn::cpu
