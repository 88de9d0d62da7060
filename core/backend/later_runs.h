// Runs of a program whose results are not wanted yet, collected so that many are started at once.
//
// A step of a small network takes a GPU less time than to start it by itself. Where Python takes
// steps one by one, such as between hooks of batches, each run is noted first, and those that came
// together start as one while the device is busy with the ones before.
//
// The delay can't be noticed: code that is about to put other work on the device, or to look at
// results, calls flush() before. So steps and the work between them keep their order.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>

#include "core/backend/backend.h"

namespace kerascnn {

class LaterRuns {
 public:
  // So many steps hide what a start costs; more would keep the device waiting where the host is
  // slow.
  static constexpr int64_t kMostSteps = 16;

  // The fences mark the ends of the two runs that were started last.
  LaterRuns(std::unique_ptr<Fence> first, std::unique_ptr<Fence> second);

  // Notes steps behind those that wait. Starts some where many wait, where the device has nothing
  // to do, and where it is at the last run and as many wait as that has. The executor must live
  // until flush().
  void add(Executor& executor, int64_t steps);
  // Starts all waiting steps; returns when they are on the device, whichever thread starts them.
  void flush() {
    if (is_waiting_) flush_waiting();
  }
  // The same for callers that can't report a failure: the next add() or flush() throws it.
  void flush_quietly() noexcept;
  // Steps are started when they are noted from now on, because others look at memory without
  // asking.
  void stop();
  bool is_stopped() const { return is_stopped_; }

 private:
  void flush_waiting();
  void start(int64_t steps);
  void settle(int64_t left);

  std::recursive_mutex mutex_;
  std::atomic<bool> is_waiting_{false};  // steps, or a failure that is not reported yet
  std::exception_ptr failure_;
  std::atomic<bool> is_stopped_{false};
  bool is_starting_ = false;      // by the thread that has the lock
  Executor* executor_ = nullptr;  // whose steps wait
  int64_t steps_ = 0;
  int64_t last_steps_ = 0;  // of the run that was started last
  std::unique_ptr<Fence> last_, before_;
};

}  // namespace kerascnn
