#include "core/graph/replicas.h"

#include <optional>

#include "core/bindings/bindings.h"

namespace kerascnn::bindings {
namespace {

// As a block of Python's `with`.
class AsReplica {
 public:
  AsReplica(std::shared_ptr<Replicas> replicas, int64_t replica)
      : seen_(replicas->seen_from(replica)) {}
  void enter() { scope_.emplace(seen_); }
  void exit() { scope_.reset(); }

 private:
  std::shared_ptr<const Collectives> seen_;
  std::optional<CollectivesScope> scope_;
};

void init_replicas(Replicas* self, const std::vector<std::string>& devices,
                   std::vector<std::string> names) {
  std::vector<Device> found;
  for (const std::string& name : devices) found.push_back(device_from_name(name));
  new (self) Replicas(found, std::move(names));
}

}  // namespace

void bind_replicas(nb::module_& m) {
  nb::class_<Mirror>(m, "Mirror",
                     "What stands on other devices for a variable of the first one, and follows "
                     "what is assigned to it.")
      .def(nb::init<std::vector<VariablePtr>, bool>(), nb::arg("others"), nb::arg("adds_up"),
           "With `adds_up` the values are parts of a sum: the others follow by zeros.")
      .def_prop_ro("others", &Mirror::others, nb::rv_policy::copy)
      .def("refresh", &Mirror::refresh, nb::arg("first"), nb::call_guard<Unlocked>(),
           "Brings the others up to date where the first one was written to since `settle`.")
      .def("settle", &Mirror::settle, nb::arg("first"),
           "All devices hold now what they are to hold.");
  nb::class_<Replicas>(m, "Replicas", "Devices of this process that compute one step together.")
      .def("__init__", &init_replicas, nb::arg("devices"), nb::arg("names"),
           "`names` are what errors call them.")
      .def_prop_ro("size", &Replicas::size);
  nb::class_<AsReplica>(m, "AsReplica", "A block whose kernels are planned for one of the devices.")
      .def(nb::init<std::shared_ptr<Replicas>, int64_t>(), nb::arg("replicas"), nb::arg("replica"))
      .def("__enter__",
           [](nb::object self) {
             nb::cast<AsReplica&>(self).enter();
             return self;
           })
      .def("__exit__", [](AsReplica& self, const nb::args&) { self.exit(); });
  nb::class_<ReplicatedProgram>(m, "ReplicatedProgram", nb::is_weak_referenceable(),
                                "A step on several devices, a program for each.")
      .def(nb::init<std::shared_ptr<Replicas>, std::vector<std::shared_ptr<Program>>,
                    std::vector<VariablePtr>, std::vector<std::shared_ptr<Mirror>>>(),
           nb::arg("replicas"), nb::arg("programs"), nb::arg("firsts"), nb::arg("mirrors"),
           "`firsts`: the variables of the first program that have one of the `mirrors`.")
      .def("run", &ReplicatedProgram::run, nb::arg("inputs"), nb::arg("steps") = 1,
           nb::call_guard<Unlocked>(),
           "Runs `steps` steps of all programs at the same time, each with its own inputs.");
}

}  // namespace kerascnn::bindings
