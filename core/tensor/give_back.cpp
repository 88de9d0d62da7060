#include "core/tensor/give_back.h"

#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "core/backend/backend.h"
#include "core/base/error.h"

namespace kerascnn {
namespace {

// A loop over batches has one or two on their way back.
constexpr size_t kMostWaiting = 16;
// An owner that lends more wants it back as soon as it is said to be free.
constexpr int64_t kLargeBytes = int64_t{64} << 20;

struct Waiting {
  std::unique_ptr<Fence> work;
  std::function<void()> release;
};

struct Queue {
  std::mutex mutex;
  std::deque<Waiting> waiting;  // in the order of their work, if there is one device
};

// Never destroyed: memory may go back as late as when the process ends.
Queue& queue() {
  static Queue& known = *new Queue;
  return known;
}

bool has_passed(Fence& work) {
  try {
    return work.passed();
  } catch (const Error&) {
    return true;
  }
}

void wait_for(Fence& work) {
  try {
    work.wait();
  } catch (const Error&) {
    // Nothing runs any more.
  }
}

std::unique_ptr<Fence> work_until_now(Device device) {
  try {
    std::unique_ptr<Fence> work = backend(device).make_fence();
    work->record();
    return work;
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

// The releases run outside of the lock: they may call into Python, and from there come back.
void give_back_finished() {
  std::deque<Waiting> finished;
  {
    const std::lock_guard lock(queue().mutex);
    auto& waiting = queue().waiting;
    while (!waiting.empty() && has_passed(*waiting.front().work)) {
      finished.push_back(std::move(waiting.front()));
      waiting.pop_front();
    }
  }
  for (const Waiting& one : finished) one.release();
}

void give_back_after_work(Device device, int64_t bytes, std::function<void()> release) {
  give_back_finished();
  std::unique_ptr<Fence> work = work_until_now(device);
  if (work != nullptr && bytes >= kLargeBytes) wait_for(*work);
  if (work == nullptr || has_passed(*work)) return release();
  Waiting oldest;
  {
    const std::lock_guard lock(queue().mutex);
    auto& waiting = queue().waiting;
    waiting.push_back({std::move(work), std::move(release)});
    if (waiting.size() > kMostWaiting) {
      oldest = std::move(waiting.front());
      waiting.pop_front();
    }
  }
  if (oldest.work == nullptr) return;
  wait_for(*oldest.work);
  oldest.release();
}

}  // namespace kerascnn
