// The engine that moves bytes between processes, given by Python (kerascnn/distribution/mpi.py),
// and NCCL, which Python starts and watches (kerascnn/distribution/nccl.py).
#include "core/backend/collectives.h"

#include "core/backend/gpu_collectives.h"
#include "core/bindings/bindings.h"
#include "core/bindings/held_function.h"

namespace kerascnn::bindings {
namespace {

// Kernels run without Python's lock.
auto call_by(const nb::object& function) {
  return [held = hold(function)](const void* send, void* receive, int64_t block_bytes) {
    nb::gil_scoped_acquire acquired;
    (*held)(reinterpret_cast<uintptr_t>(send), reinterpret_cast<uintptr_t>(receive), block_bytes);
  };
}

void set_engine(const std::string& name, int64_t rank, int64_t processes,
                const nb::object& exchange, const nb::object& gather) {
  set_collectives(std::make_shared<const Collectives>(Collectives{.name = name,
                                                                  .rank = rank,
                                                                  .processes = processes,
                                                                  .exchange = call_by(exchange),
                                                                  .gather = call_by(gather)}));
}

std::string open_nccl(const std::string& library) {
  Unlocked released;
  return gpu_collectives().open(library);
}

nb::bytes make_nccl_id() {
  const std::string id = gpu_collectives().make_id();
  return nb::bytes(id.data(), id.size());
}

void join_nccl(int device, const nb::bytes& id, int64_t rank, int64_t processes, double patience) {
  const std::string copy(id.c_str(), id.size());
  Unlocked released;
  gpu_collectives().join(device, copy, rank, processes, patience);
}

nb::dict gpu_meetings() {
  GpuMeetings meetings;
  {
    Unlocked released;
    meetings = gpu_collectives().meetings();
  }
  nb::dict result;
  result["started"] = meetings.started;
  result["ended"] = meetings.ended;
  result["waiting"] = meetings.waiting;
  result["failure"] = meetings.failure;
  result["is_reported"] = meetings.is_reported;
  return result;
}

}  // namespace

void bind_collectives(nb::module_& m) {
  m.def("set_collectives", &set_engine, nb::arg("name"), nb::arg("rank"), nb::arg("processes"),
        nb::arg("exchange"), nb::arg("gather"),
        "Sets the functions by which kernels exchange bytes with other processes, called with two "
        "addresses and the bytes of a block. `exchange`: block i of the first goes to process i, "
        "and block i of the second comes from it. `gather`: the first goes to all processes.");
  m.def(
      "clear_collectives", [] { set_collectives(nullptr); },
      "Takes them away: this process is alone again.");
  m.def("open_nccl", &open_nccl, nb::arg("library"),
        "Opens NCCL, a file or a name that the system finds, and returns its version.");
  m.def("make_nccl_id", &make_nccl_id, "What the first process makes and gives to all.");
  m.def(
      "gpu_uuid", [](int device) { return gpu_collectives().device_uuid(device); },
      nb::arg("device"), "A name that no other GPU has.");
  m.def("join_nccl", &join_nccl, nb::arg("device"), nb::arg("id"), nb::arg("rank"),
        nb::arg("processes"), nb::arg("patience"),
        "Connects the GPU with those of the other processes, all of which call this, and sums "
        "something over them once. Waits for so many seconds.");
  m.def("gpu_meetings", &gpu_meetings, nb::sig("def gpu_meetings() -> dict[str, typing.Any]"),
        "How many sums over processes were started on the GPU and how many have ended, for how "
        "many seconds none of those under way has, what NCCL has found wrong, and whether anybody "
        "was told that they were given up.");
  m.def(
      "give_up_gpus", [](const std::string& reason) { gpu_collectives().give_up(reason); },
      nb::arg("reason"), nb::call_guard<Unlocked>(),
      "Ends sums that wait for other processes: whoever waits for the GPU or uses it from now on "
      "gets a DeviceError with this reason.");
}

}  // namespace kerascnn::bindings
