#include "core/tensor/variable.h"

#include "core/bindings/bindings.h"
#include "core/eager/recorder.h"

namespace kerascnn::bindings {

Tensor read_variable_object(nb::handle variable) {
  // Tapes keep a variable that they watch; without one its memory is all that is wanted.
  const Variable& held = held_by<Variable>(variable, "a variable's value");
  if (!notes_reads()) return held.value();
  return read_variable(nb::cast<VariablePtr>(variable));
}

void bind_variable(nb::module_& m) {
  nb::class_<Variable>(m, "Variable", nb::is_weak_referenceable(),
                       "Named state whose memory stays in place: programs update it there.")
      .def(nb::new_([](std::string name, const Tensor& value) {
             return std::make_shared<Variable>(std::move(name), value.copy());
           }),
           nb::arg("name"), nb::arg("value"), "Starts from a copy of `value`.")
      .def_prop_ro("name", &Variable::name)
      .def_prop_ro(
          "value", [](nb::handle self) { return read_variable_object(self); },
          nb::sig("def value(self) -> Tensor"), "Shares the variable's memory.")
      .def_prop_rw("trainable", &Variable::trainable, &Variable::set_trainable,
                   "Do tapes watch it when it is read?")
      .def_prop_ro(
          "version", [](const Variable& v) { return v.value().storage()->version(); },
          "How often it was written to.")
      .def_prop_ro("dtype", [](const Variable& v) { return dtype_name(v.value().dtype()); })
      .def_prop_ro("shape", [](const Variable& v) { return to_tuple(v.value().shape()); })
      .def_prop_ro("device", [](const Variable& v) { return device_name(v.value().device()); })
      .def(
          "assign",
          [](const Variable& variable, const Tensor& value) {
            Unlocked released;
            variable.assign(value);
          },
          nb::arg("value"),
          "Copies a tensor of the same shape and dtype, from any device, into place.");
}

}  // namespace kerascnn::bindings
