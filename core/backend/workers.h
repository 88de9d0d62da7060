// Threads that take slices of work while the calling thread does something else, such as copies to
// page-locked memory, which one thread does at a fraction of the memory's speed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

namespace kerascnn {

// Work in slices of which any thread may take the next one.
class SlicedWork {
 public:
  // `run` is called once for each slice from 0 on, by several threads at a time. `at_end` is called
  // once, after all of them and before wait() returns, unless a slice failed or the work was
  // cancelled.
  SlicedWork(int64_t slices, std::function<void(int64_t)> run, std::function<void()> at_end);
  SlicedWork(const SlicedWork&) = delete;
  SlicedWork& operator=(const SlicedWork&) = delete;

  // Runs the next slice; returns false where all are taken.
  bool take_one();
  // Takes slices too, then waits for those that others have taken. Rethrows the first error.
  void wait();
  // Begins no further slice, and returns when none is running. The result says whether the work was
  // done by then.
  bool cancel();

 private:
  void finish(int64_t slices);

  const int64_t slices_;
  const std::function<void(int64_t)> run_;
  const std::function<void()> at_end_;
  std::atomic<int64_t> next_{0};
  std::atomic<int64_t> left_;  // slices that are not over
  std::atomic<bool> is_cancelled_{false}, has_ended_{false}, is_over_{false};
  std::mutex mutex_;  // guards the error
  std::exception_ptr error_;
};

// The threads. They start with the first work, sleep while there is none, and live until the
// process ends. There are as many as kernels on the CPU may use, without the calling one, and at
// most three. If there are none, wait() does all the work.
class Workers {
 public:
  static Workers& shared();

  // Work that came first is taken first.
  void post(std::shared_ptr<SlicedWork> work);

 private:
  Workers();
  void start_threads();
  void loop();

  const int num_threads_;
  bool has_started_ = false;
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::deque<std::shared_ptr<SlicedWork>> waiting_;
};

}  // namespace kerascnn
