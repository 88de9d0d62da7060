#include "core/bindings/held_function.h"

#include <unordered_set>
#include <vector>

namespace kerascnn::bindings {
namespace {

// Changed with Python's lock only. It outlives everything that is static.
std::unordered_set<HeldFunction*>& all_held() {
  static auto* const held = new std::unordered_set<HeldFunction*>();
  return *held;
}

}  // namespace

HeldFunction::HeldFunction(nb::object function) : function_(std::move(function)) {
  all_held().insert(this);
}

HeldFunction::~HeldFunction() { all_held().erase(this); }

void HeldFunction::release_all() {
  // All of them are out of reach before the first one ends, which may end others that hold any.
  std::vector<nb::object> functions;
  for (HeldFunction* held : all_held()) functions.push_back(std::move(held->function_));
}

std::shared_ptr<HeldFunction> hold(nb::object function) {
  return {new HeldFunction(std::move(function)), [](HeldFunction* own) {
            if (!can_release_objects()) return;
            nb::gil_scoped_acquire acquired;
            delete own;
          }};
}

void bind_held_functions(nb::module_& m) {
  m.def("release_functions", &HeldFunction::release_all,
        "Lets go of all functions of Python's that gradients and ops hold: none can be computed "
        "from then on. For the end of the interpreter.");
  nb::module_::import_("atexit").attr("register")(m.attr("release_functions"));
}

}  // namespace kerascnn::bindings
