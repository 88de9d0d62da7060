// What ran, and when: the log of kernel calls while somebody profiles. Off, which is the rule, it
// costs those who run kernels one relaxed load.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/device.h"
#include "core/base/dtype.h"
#include "core/ops/op.h"
#include "core/profile/scope.h"

namespace kerascnn {

// A kernel call, the same each time it runs.
struct CallInfo {
  std::string label;  // "conv2d (sequential/conv2d_1)"
  Scope scope;
  std::string op;
  std::string kernel;            // Kernel::description(): the library, and what it chose
  DType dtype = DType::Float32;  // of the first floating tensor, else of the first
  int64_t flop = 0;
  int64_t bytes = 0;         // to and from memory, at least (OpCost)
  int64_t memory_bytes = 0;  // of results and workspace
  Device device;
};
using CallInfoPtr = std::shared_ptr<const CallInfo>;

// What is known of a call of the op with these specs, without the outputs that nobody reads.
CallInfo make_call_info(const OpDef& op, const Attributes& attributes, Specs inputs, Specs outputs);

// Something that ran on a device for a call.
struct CallEvent {
  int32_t call = 0;     // index into CallRecords::calls
  int32_t kernel = -1;  // index into CallRecords::kernels; -1 for what the call says
  int32_t track = 0;    // the thread, or the stream of a GPU
  int64_t start = 0;    // nanoseconds of profile_clock()
  int64_t end = 0;
};

struct CallRecords {
  std::vector<CallInfoPtr> calls;
  std::vector<std::string> kernels;  // names of what calls ran on a GPU
  std::vector<CallEvent> events;
  int64_t lost_events = 0;  // beyond the limit
  int64_t start = 0;
  int64_t end = 0;
};

// Something that learns of a device's kernels otherwise than from the calls themselves.
class DeviceTracer {
 public:
  virtual ~DeviceTracer() = default;
  // Adds all events up to now to the log. The tracer of a session is asked once.
  virtual void finish() = 0;
};

// Nanoseconds of the steady clock.
int64_t profile_clock();

namespace detail {
extern std::atomic<int64_t> profile_session;
}

// A number for each recording, 0 while there is none.
inline int64_t profile_session() { return detail::profile_session.load(std::memory_order_relaxed); }
inline bool is_profiling() { return profile_session() != 0; }

class CallLog {
 public:
  static CallLog& get();

  // Throws ValueError where somebody records already.
  void start(int64_t max_events);
  // Ends the recording, also where a tracer fails. Throws ValueError where there is none.
  CallRecords stop();

  // Outside of a recording it has no effect.
  void add(const CallInfoPtr& call, int64_t start, int64_t end);
  void add(const CallInfoPtr& call, const std::string& kernel, int32_t track, int64_t start,
           int64_t end);
  // finish() will be called when the recording ends.
  void attach(DeviceTracer& tracer);

 private:
  void add_event(const CallInfoPtr& call, CallEvent event);

  std::mutex mutex_;
  int64_t sessions_ = 0;
  int64_t max_events_ = 0;
  CallRecords records_;
  std::unordered_map<const CallInfo*, int32_t> call_index_;
  std::unordered_map<std::string, int32_t> kernel_index_;
  std::unordered_map<uint64_t, int32_t> tracks_;  // by thread
  std::vector<DeviceTracer*> tracers_;
};

// The call that this thread is about to run, for who runs kernels without knowing what they are of.
class CurrentCall {
 public:
  explicit CurrentCall(CallInfoPtr call);
  ~CurrentCall();
  CurrentCall(const CurrentCall&) = delete;
  CurrentCall& operator=(const CurrentCall&) = delete;

  static const CallInfoPtr& get();  // null outside

 private:
  CallInfoPtr before_;
};

// The layer and phase of what this thread computes at once, outside of programs. Kept only while
// somebody profiles.
class EagerScope {
 public:
  // Without a phase, that of the scope around holds.
  static void push(const std::string& name, std::optional<Phase> phase);
  static void pop();
  static Scope get();
};

// Takes the place of all that was pushed, while it lives.
class EagerScopeGuard {
 public:
  explicit EagerScopeGuard(const Scope& scope);
  ~EagerScopeGuard();
  EagerScopeGuard(const EagerScopeGuard&) = delete;
  EagerScopeGuard& operator=(const EagerScopeGuard&) = delete;

 private:
  std::vector<Scope> before_;
};

}  // namespace kerascnn
