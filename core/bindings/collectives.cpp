// The engine that moves bytes between processes, given by Python (kerascnn/distribution/mpi.py).
#include "core/backend/collectives.h"

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
}

}  // namespace kerascnn::bindings
