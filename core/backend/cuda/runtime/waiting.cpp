#include "core/backend/cuda/runtime/waiting.h"

#include <chrono>

namespace kerascnn::cuda {
namespace {

// Waking up takes some 50 microseconds: what is over sooner is not worth sleeping for.
constexpr std::chrono::microseconds kSpin(50);

// Whether a query says that the work is done; throws for what is neither "done" nor "not yet".
bool is_done(cudaError_t status, const char* call) {
  if (status == cudaErrorNotReady) {
    (void)cudaGetLastError();  // no error: the next check must not find it
    return false;
  }
  check(status, call);
  return true;
}

// Whether `done` came true while it was worth looking.
template <typename Done>
bool spin_until(Done done) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    if (done()) return true;
  } while (std::chrono::steady_clock::now() < end);
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

void wait_for(cudaEvent_t blocking_event) {
  if (spin_until([&] { return has_passed(blocking_event); })) return;
  check(cudaEventSynchronize(blocking_event), "cudaEventSynchronize");
}

void wait_for(cudaStream_t stream) {
  if (spin_until([&] { return is_done(cudaStreamQuery(stream), "cudaStreamQuery"); })) return;
  const Event event = make_blocking_event();
  check(cudaEventRecord(event.get(), stream), "cudaEventRecord");
  check(cudaEventSynchronize(event.get()), "cudaEventSynchronize");
}

}  // namespace kerascnn::cuda
