#include "core/backend/later_runs.h"

#include <bit>
#include <utility>

namespace kerascnn {
namespace {

// So many hide what a start costs; more would keep the device waiting where the host is slow.
constexpr int64_t kMostSteps = 16;

}  // namespace

LaterRuns::LaterRuns(std::unique_ptr<Fence> first, std::unique_ptr<Fence> second)
    : last_(std::move(first)), before_(std::move(second)) {}

void LaterRuns::add(Executor& executor, int64_t steps) {
  const std::lock_guard lock(mutex_);
  if (executor_ != &executor) flush();
  executor_ = &executor;
  steps_ += steps;
  is_waiting_ = true;
  if (is_stopped_ || steps_ >= kMostSteps) {
    flush();
  } else if (before_->passed() && (steps_ >= last_steps_ || last_->passed())) {
    // The device is at its last run, or idle. Powers of two, so that there are few numbers of steps
    // that a program is made ready for.
    start(static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(steps_))));
  }
}

void LaterRuns::flush_waiting() {
  const std::lock_guard lock(mutex_);
  if (is_waiting_) start(steps_);
}

void LaterRuns::stop() {
  const std::lock_guard lock(mutex_);
  flush();
  is_stopped_ = true;
}

// What the executor does may ask for a flush: none of these steps waits any more then.
void LaterRuns::start(int64_t steps) {
  Executor& executor = *executor_;
  const int64_t left = steps_ - steps;
  steps_ = 0;
  is_waiting_ = false;
  executor_ = nullptr;
  executor.run(steps);
  before_->record();
  std::swap(before_, last_);
  last_steps_ = steps;
  if (left == 0) return;
  executor_ = &executor;
  steps_ = left;
  is_waiting_ = true;
}

}  // namespace kerascnn
