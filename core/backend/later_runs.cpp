#include "core/backend/later_runs.h"

#include <bit>
#include <utility>

namespace kerascnn {

LaterRuns::LaterRuns(std::unique_ptr<Fence> first, std::unique_ptr<Fence> second)
    : last_(std::move(first)), before_(std::move(second)) {}

void LaterRuns::add(Executor& executor, int64_t steps) {
  const std::lock_guard lock(mutex_);
  if (executor_ != &executor || failure_ != nullptr) flush();
  executor_ = &executor;
  steps_ += steps;
  is_waiting_ = true;
  if (is_stopped_ || steps_ >= kMostSteps) {
    flush();
  } else if (before_->passed() && (steps_ >= last_steps_ || last_->passed())) {
    // The device is at its last run, or idle. The numbers are powers of two, so that a program is
    // made ready for few numbers of steps.
    start(static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(steps_))));
  }
}

void LaterRuns::flush_waiting() {
  const std::lock_guard lock(mutex_);
  // The executor's work asks for a flush as well: for it none of these steps waits any more.
  if (is_starting_) return;
  if (failure_ != nullptr) {
    is_waiting_ = false;
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  if (is_waiting_) start(steps_);
}

void LaterRuns::flush_quietly() noexcept {
  if (!is_waiting_) return;
  const std::lock_guard lock(mutex_);
  if (is_starting_ || failure_ != nullptr) return;
  try {
    flush();
  } catch (...) {
    failure_ = std::current_exception();
    is_waiting_ = true;
  }
}

void LaterRuns::stop() {
  const std::lock_guard lock(mutex_);
  flush_quietly();
  is_stopped_ = true;
}

// For other threads the steps wait until they are on the device.
void LaterRuns::start(int64_t steps) {
  const int64_t left = steps_ - steps;
  is_starting_ = true;
  try {
    executor_->run(steps);
    before_->record();
  } catch (...) {
    settle(0);
    throw;
  }
  std::swap(before_, last_);
  last_steps_ = steps;
  settle(left);
}

// Notes that so many steps wait now.
void LaterRuns::settle(int64_t left) {
  steps_ = left;
  if (left == 0) executor_ = nullptr;
  is_waiting_ = left > 0;
  is_starting_ = false;
}

}  // namespace kerascnn
