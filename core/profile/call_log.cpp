#include "core/profile/call_log.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/error.h"

namespace kerascnn {
namespace {

thread_local CallInfoPtr current_call;
thread_local std::vector<Scope> eager_scopes;

// Unlike the system's number of a thread, never given again.
uint64_t thread_number() {
  static std::atomic<uint64_t> last{0};
  thread_local const uint64_t number = ++last;
  return number;
}

}  // namespace

namespace detail {
std::atomic<int64_t> profile_session{0};
}

CallInfo make_call_info(const OpDef& op, const Attributes& attributes, Specs inputs,
                        Specs outputs) {
  const OpCost cost = op_cost(op, attributes, inputs, outputs);
  CallInfo info;
  info.op = op.name;
  info.flop = cost.flop;
  info.bytes = cost.bytes;
  bool is_first = true;
  for (const Specs specs : {inputs, outputs}) {
    for (const TensorSpec& spec : specs) {
      if (is_first || (!is_floating(info.dtype) && is_floating(spec.dtype)))
        info.dtype = spec.dtype;
      is_first = false;
    }
  }
  for (const TensorSpec& spec : outputs) info.memory_bytes += num_bytes(spec);
  return info;
}

int64_t profile_clock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

CallLog& CallLog::get() {
  static CallLog& log = *new CallLog;  // threads may run kernels until the process ends
  return log;
}

void CallLog::start(int64_t max_events) {
  const std::lock_guard lock(mutex_);
  if (is_profiling()) {
    throw ValueError(
        "profiler: a trace is being recorded already, in this thread or another; there can be one "
        "at a time, so end it first, or leave this one out");
  }
  max_events_ = max_events;
  records_ = {};
  call_index_.clear();
  kernel_index_.clear();
  tracks_.clear();
  tracers_.clear();
  records_.start = profile_clock();
  detail::profile_session.store(++sessions_);
}

CallRecords CallLog::stop() {
  std::vector<DeviceTracer*> tracers;
  {
    const std::lock_guard lock(mutex_);
    if (!is_profiling()) throw ValueError("profiler: no trace is being recorded");
    records_.end = profile_clock();
    tracers.swap(tracers_);
  }
  // Tracers add to the log, so it stays open until they are done.
  const auto close = [&] {
    const std::lock_guard lock(mutex_);
    detail::profile_session.store(0);
    return std::exchange(records_, {});
  };
  try {
    for (DeviceTracer* tracer : tracers) tracer->finish();
  } catch (...) {
    close();
    throw;
  }
  return close();
}

void CallLog::add(const CallInfoPtr& call, int64_t start, int64_t end) {
  const std::lock_guard lock(mutex_);
  const uint64_t thread = thread_number();
  const int32_t track =
      tracks_.try_emplace(thread, static_cast<int32_t>(tracks_.size())).first->second;
  add_event(call, {.track = track, .start = start, .end = end});
}

void CallLog::add(const CallInfoPtr& call, const std::string& kernel, int32_t track, int64_t start,
                  int64_t end) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] =
      kernel_index_.try_emplace(kernel, static_cast<int32_t>(records_.kernels.size()));
  if (is_new) records_.kernels.push_back(kernel);
  add_event(call, {.kernel = at->second, .track = track, .start = start, .end = end});
}

void CallLog::add_event(const CallInfoPtr& call, CallEvent event) {
  if (!is_profiling()) return;
  if (static_cast<int64_t>(records_.events.size()) >= max_events_) {
    ++records_.lost_events;
    return;
  }
  const auto [at, is_new] =
      call_index_.try_emplace(call.get(), static_cast<int32_t>(records_.calls.size()));
  if (is_new) records_.calls.push_back(call);
  event.call = at->second;
  records_.events.push_back(event);
}

void CallLog::attach(DeviceTracer& tracer) {
  const std::lock_guard lock(mutex_);
  if (std::find(tracers_.begin(), tracers_.end(), &tracer) == tracers_.end()) {
    tracers_.push_back(&tracer);
  }
}

CurrentCall::CurrentCall(CallInfoPtr call)
    : before_(std::exchange(current_call, std::move(call))) {}
CurrentCall::~CurrentCall() { current_call = std::move(before_); }
const CallInfoPtr& CurrentCall::get() { return current_call; }

void EagerScope::push(const std::string& name, std::optional<Phase> phase) {
  const Scope outer = get();
  const std::string path = outer.empty() ? name : outer.path + "/" + name;
  eager_scopes.push_back(
      {.path = path, .phases = phase ? static_cast<uint8_t>(*phase) : outer.phases});
}

void EagerScope::pop() {
  if (!eager_scopes.empty()) eager_scopes.pop_back();
}

Scope EagerScope::get() { return eager_scopes.empty() ? Scope{} : eager_scopes.back(); }

EagerScopeGuard::EagerScopeGuard(const Scope& scope)
    : before_(std::exchange(eager_scopes, {scope})) {}
EagerScopeGuard::~EagerScopeGuard() { eager_scopes = std::move(before_); }

}  // namespace kerascnn
