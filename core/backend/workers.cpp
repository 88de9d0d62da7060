#include "core/backend/workers.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "core/backend/cpu/parallel.h"
#include "core/base/env.h"
#include "core/base/signal_stack.h"

namespace kerascnn {
namespace {

// More threads don't copy faster: with these the memory is the limit.
constexpr int kMostWorkers = 3;

}  // namespace

SlicedWork::SlicedWork(int64_t slices, std::function<void(int64_t)> run,
                       std::function<void()> at_end)
    : slices_(slices), run_(std::move(run)), at_end_(std::move(at_end)), left_(slices) {
  if (slices == 0) finish(0);
}

bool SlicedWork::take_one() {
  const int64_t slice = next_.fetch_add(1);
  if (slice >= slices_) return false;
  if (!is_cancelled_) {
    try {
      run_(slice);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      is_cancelled_ = true;
    }
  }
  finish(1);
  return true;
}

// Some slices are over. The thread that ends the last slice ends the work.
void SlicedWork::finish(int64_t slices) {
  if (left_.fetch_sub(slices) != slices) return;
  if (!is_cancelled_) {
    try {
      at_end_();
      has_ended_ = true;
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
  }
  is_over_ = true;
  is_over_.notify_all();
}

void SlicedWork::wait() {
  while (take_one()) {
  }
  is_over_.wait(false);
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

bool SlicedWork::cancel() {
  is_cancelled_ = true;
  while (take_one()) {  // runs none of them any more
  }
  is_over_.wait(false);
  return has_ended_;
}

Workers& Workers::shared() {
  // Never destroyed: its threads may outlive static objects.
  static auto* workers = new Workers();
  return *workers;
}

Workers::Workers()
    : num_threads_(static_cast<int>(std::min<int64_t>(
          env_positive("KERASCNN_COPY_THREADS", kMostWorkers), cpu::num_threads() - 1))) {}

void Workers::post(std::shared_ptr<SlicedWork> work) {
  if (num_threads_ <= 0) return;
  {
    const std::lock_guard lock(mutex_);
    if (!has_started_) start_threads();
    waiting_.push_back(std::move(work));
  }
  has_work_.notify_all();
}

void Workers::start_threads() {
  has_started_ = true;
  const SignalsBlocked blocked;  // signals are for the threads that were there before
  try {
    for (int i = 0; i < num_threads_; ++i) std::thread([this] { loop(); }).detach();
  } catch (const std::system_error&) {
    // The system gives no more threads: those that wait for the work do what is left of it.
  }
}

void Workers::loop() {
  for (;;) {
    std::shared_ptr<SlicedWork> work;
    {
      std::unique_lock lock(mutex_);
      has_work_.wait(lock, [this] { return !waiting_.empty(); });
      work = waiting_.front();
    }
    while (work->take_one()) {
    }
    const std::lock_guard lock(mutex_);
    if (!waiting_.empty() && waiting_.front() == work) waiting_.pop_front();
  }
}

}  // namespace kerascnn
