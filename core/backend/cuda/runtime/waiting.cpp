#include "core/backend/cuda/runtime/waiting.h"

#include <chrono>

namespace kerascnn::cuda {
namespace {

// Does the query say that the work is done? Throws for what is neither "done" nor "not yet".
bool is_done(cudaError_t status, const char* call) {
  if (status == cudaErrorNotReady) {
    (void)cudaGetLastError();  // no error: the next check must not find it
    return false;
  }
  check(status, call);
  return true;
}

// Did `done` come true within so many seconds?
template <typename Done>
bool spin_until(Done done, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  do {
    if (done()) return true;
  } while (Clock::now() < end);
  return false;
}

}  // namespace

Event make_blocking_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
        "cudaEventCreate");
  return Event(event);
}

bool has_passed(cudaEvent_t event) { return is_done(cudaEventQuery(event), "cudaEventQuery"); }

void wait_for(cudaEvent_t blocking_event, double patience) {
  if (spin_until([&] { return has_passed(blocking_event); }, patience)) return;
  check(cudaEventSynchronize(blocking_event), "cudaEventSynchronize");
  check_given_up();
}

void wait_for(cudaStream_t stream, double patience) {
  const auto has_ended = [&] { return is_done(cudaStreamQuery(stream), "cudaStreamQuery"); };
  if (spin_until(has_ended, patience)) return;
  const Event event = make_blocking_event();
  check(cudaEventRecord(event.get(), stream), "cudaEventRecord");
  check(cudaEventSynchronize(event.get()), "cudaEventSynchronize");
  check_given_up();
}

}  // namespace kerascnn::cuda
