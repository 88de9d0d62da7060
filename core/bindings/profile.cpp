#include "core/backend/backend.h"
#include "core/base/error.h"
#include "core/bindings/bindings.h"
#include "core/bindings/graph.h"
#include "core/profile/call_log.h"

namespace kerascnn::bindings {
namespace {

void start(int64_t max_events, const std::string& device) {
  CallLog::get().start(max_events);
  try {
    backend(device_from_name(device)).prepare_profile();
  } catch (...) {
    CallLog::get().stop();
    throw;
  }
}

nb::list calls_of(const CallRecords& records) {
  nb::list calls;
  for (const CallInfoPtr& call : records.calls) {
    nb::dict row;
    row["phase"] = call->scope.phase();
    row["layer"] = call->scope.path;
    row["op"] = call->op;
    row["kernel"] = call->kernel;
    row["dtype"] = dtype_name(call->dtype);
    row["flop"] = call->flop;
    row["bytes"] = call->bytes;
    row["memory_bytes"] = call->memory_bytes;
    row["device"] = device_name(call->device);
    calls.append(row);
  }
  return calls;
}

// Five numbers for each event; Python reads them as an array.
nb::bytes events_of(const CallRecords& records) {
  std::vector<int64_t> numbers;
  numbers.reserve(5 * records.events.size());
  for (const CallEvent& event : records.events) {
    numbers.insert(numbers.end(), {event.call, event.kernel, event.track,
                                   event.start - records.start, event.end - records.start});
  }
  return nb::bytes(numbers.data(), numbers.size() * sizeof(int64_t));
}

nb::dict stop() {
  CallRecords records;
  {
    // Waits for the device.
    const Unlocked release;
    records = CallLog::get().stop();
  }
  nb::dict result;
  result["calls"] = calls_of(records);
  result["kernels"] = records.kernels;
  result["events"] = events_of(records);
  result["lost_events"] = records.lost_events;
  result["start"] = records.start;
  result["nanoseconds"] = records.end - records.start;
  return result;
}

}  // namespace

Phase phase_from_name(std::string_view name) {
  for (const Phase phase : {kForward, kBackward, kUpdate}) {
    if (Scope{.path = "", .phases = static_cast<uint8_t>(phase)}.phase() == name) return phase;
  }
  throw ValueError(
      message("a phase is \"forward\", \"backward\" or \"update\"; received \"", name, "\""));
}

void bind_profile(nb::module_& m) {
  m.def("start_profile", &start, nb::arg("max_events"), nb::arg("device"),
        "Records the kernel calls of all threads from here on. Raises ValueError where somebody "
        "records already, DeviceError where the device's kernels can't be recorded.");
  m.def("stop_profile", &stop, nb::sig("def stop_profile() -> dict[str, typing.Any]"),
        "Ends the recording and gives what ran: calls, names of kernels, and for each event the "
        "call, the kernel (-1: what the call says), the track, and start and end in nanoseconds.");
  m.def("is_profiling", &is_profiling);
  m.def("profile_clock", &profile_clock, "Nanoseconds of the clock that events are timed with.");
  m.def(
      "push_eager_scope",
      [](const std::string& name, const std::optional<std::string>& phase) {
        EagerScope::push(name, phase ? std::optional(phase_from_name(*phase)) : std::nullopt);
      },
      nb::arg("name"), nb::arg("phase").none(),
      "What this thread computes at once belongs to this layer, for profiles.");
  m.def("pop_eager_scope", &EagerScope::pop);
  m.def("in_eager_scope", [] { return !EagerScope::get().empty(); });
}

}  // namespace kerascnn::bindings
