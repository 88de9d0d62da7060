// Operators of tensors, and the same as functions, for calls that need nothing but the core:
// tensors (and variables) of one dtype on one device, Python numbers, no trace. Such a call goes
// straight to its plan; every other one is given to the function of kerascnn.ops, which knows all
// cases.
#include <atomic>
#include <cmath>

#include "core/bindings/bindings.h"
#include "core/eager/eager.h"
#include "core/ops/definitions.h"
#include "core/tensor/variable.h"

namespace kerascnn::bindings {
namespace {

// Calls that touch more memory let other threads of Python run meanwhile; for smaller ones that
// would cost more than the call.
constexpr int64_t kReleaseFrom = int64_t{256} << 10;

PyTypeObject* tensor_type = nullptr;
PyTypeObject* variable_type = nullptr;  // kerascnn.Variable
PyObject* core_name = nullptr;          // "core", its attribute
// How many traces and scopes of automatic casts are open in the process: in these, calls mean
// something else.
std::atomic<int> open_scopes{0};

enum class Dtypes : uint8_t { Floating, Numbers };

struct Operator {
  const OpDef* op;
  int num_operands;
  Dtypes dtypes;
  Attributes attributes;
  PyObject* fallback = nullptr;  // the function of kerascnn.ops
};

Operator add{&op_add, 2, Dtypes::Numbers, {}};
Operator subtract{&op_subtract, 2, Dtypes::Numbers, {}};
Operator multiply{&op_multiply, 2, Dtypes::Numbers, {}};
Operator divide{&op_divide, 2, Dtypes::Floating, {}};
Operator maximum{&op_maximum, 2, Dtypes::Numbers, {}};
Operator minimum{&op_minimum, 2, Dtypes::Numbers, {}};
Operator matmul{&op_matmul, 2, Dtypes::Floating, {{"transpose_a", false}, {"transpose_b", false}}};
Operator negative{&op_negative, 1, Dtypes::Numbers, {}};
Operator absolute{&op_absolute, 1, Dtypes::Numbers, {}};
Operator square{&op_square, 1, Dtypes::Numbers, {}};
Operator exp_{&op_exp, 1, Dtypes::Floating, {}};
Operator log_{&op_log, 1, Dtypes::Floating, {}};
Operator sqrt_{&op_sqrt, 1, Dtypes::Floating, {}};
Operator rsqrt{&op_rsqrt, 1, Dtypes::Floating, {}};
Operator tanh_{&op_tanh, 1, Dtypes::Floating, {}};
Operator relu{&op_relu, 1, Dtypes::Floating, {}};
Operator sigmoid{&op_sigmoid, 1, Dtypes::Floating, {}};
Operator* const operators[] = {&add,    &subtract, &multiply, &divide, &maximum, &minimum,
                               &matmul, &negative, &absolute, &square, &exp_,    &log_,
                               &sqrt_,  &rsqrt,    &tanh_,    &relu,   &sigmoid};

bool takes(Dtypes dtypes, DType dtype) {
  return is_floating(dtype) || (dtypes == Dtypes::Numbers && is_integer(dtype));
}

PyObject* new_reference(PyObject* object) {
  Py_INCREF(object);
  return object;
}

PyObject* not_implemented() { return new_reference(Py_NotImplemented); }

// An operand as the core takes it. `held` keeps what is made for the call.
const Tensor* as_tensor(PyObject* object, Tensor& held) {
  if (Py_TYPE(object) == tensor_type) {
    return nb::inst_ready(object) ? nb::inst_ptr<Tensor>(object) : nullptr;
  }
  if (Py_TYPE(object) != variable_type) return nullptr;
  const nb::object core = nb::steal(PyObject_GetAttr(object, core_name));
  if (!core.is_valid()) nb::raise_python_error();
  held = read_variable_object(core);
  return &held;
}

// A Python number beside a tensor takes the tensor's dtype, if it is one of that kind.
const Tensor* as_scalar(PyObject* object, const Tensor& like, Tensor& held) {
  double value = 0;
  if (PyFloat_CheckExact(object)) {
    if (!is_floating(like.dtype())) return nullptr;
    value = PyFloat_AS_DOUBLE(object);
    // Half precision is rounded by way of float32: only where that is exact is it rounded once.
    const bool is_half = itemsize(like.dtype()) == 2;
    if (is_half && static_cast<double>(static_cast<float>(value)) != value) return nullptr;
  } else if (PyLong_CheckExact(object)) {
    int overflow = 0;
    const long long whole = PyLong_AsLongLongAndOverflow(object, &overflow);
    // Numbers that the dtype has exactly.
    const long long most = itemsize(like.dtype()) > 2 ? 1 << 24 : 127;
    const long long least = like.dtype() == DType::UInt8 ? 0 : -most;
    if (overflow != 0 || whole < least || whole > most) return nullptr;
    value = static_cast<double>(whole);
  } else {
    return nullptr;
  }
  held = scalar_tensor(like.dtype(), value, like.device());
  return &held;
}

Tensor run(const Operator& entry, Inputs inputs) {
  const EagerPlanPtr plan = find_plan(*entry.op, entry.attributes, inputs, eager_tf32());
  Tensor output;
  if (plan->work_bytes < kReleaseFrom) {
    execute(plan, inputs, {&output, 1});
  } else {
    Unlocked released;
    execute(plan, inputs, {&output, 1});
  }
  return output;
}

// NotImplemented where the call is not one of these.
PyObject* try_binary(const Operator& entry, PyObject* a, PyObject* b) noexcept {
  if (open_scopes.load(std::memory_order_relaxed) != 0) return not_implemented();
  try {
    Tensor held_a, held_b;
    const Tensor* x = as_tensor(a, held_a);
    const Tensor* y = as_tensor(b, held_b);
    if (x == nullptr && y == nullptr) return not_implemented();
    if (x == nullptr) x = as_scalar(a, *y, held_a);
    if (y == nullptr && x != nullptr) y = as_scalar(b, *x, held_b);
    if (x == nullptr || y == nullptr || x->dtype() != y->dtype() ||
        !takes(entry.dtypes, x->dtype()) || x->device() != y->device()) {
      return not_implemented();
    }
    if (&entry == &matmul && (x->shape().size() != 2 || y->shape().size() != 2)) {
      return not_implemented();
    }
    const Tensor* inputs[] = {x, y};
    return nb::cast(run(entry, inputs)).release().ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyObject* try_unary(const Operator& entry, PyObject* x) noexcept {
  if (open_scopes.load(std::memory_order_relaxed) != 0) return not_implemented();
  try {
    Tensor held;
    const Tensor* input = as_tensor(x, held);
    if (input == nullptr || !takes(entry.dtypes, input->dtype())) return not_implemented();
    return nb::cast(run(entry, {&input, 1})).release().ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

template <Operator* entry>
PyObject* binary_slot(PyObject* a, PyObject* b) noexcept {
  PyObject* result = try_binary(*entry, a, b);
  if (result != Py_NotImplemented || entry->fallback == nullptr) return result;
  Py_DECREF(result);
  PyObject* arguments[] = {a, b};
  return PyObject_Vectorcall(entry->fallback, arguments, 2, nullptr);
}

template <Operator* entry>
PyObject* unary_slot(PyObject* x) noexcept {
  PyObject* result = try_unary(*entry, x);
  if (result != Py_NotImplemented || entry->fallback == nullptr) return result;
  Py_DECREF(result);
  return PyObject_Vectorcall(entry->fallback, &x, 1, nullptr);
}

const Operator& operator_in(PyObject* capsule) {
  return *static_cast<const Operator*>(PyCapsule_GetPointer(capsule, nullptr));
}

// A wrong number of arguments is left to the function that is called next: it names them.
PyObject* call_binary(PyObject* self, PyObject* const* arguments, Py_ssize_t count) noexcept {
  if (count != 2) return not_implemented();
  return try_binary(operator_in(self), arguments[0], arguments[1]);
}

PyObject* call_unary(PyObject* self, PyObject* const* arguments, Py_ssize_t count) noexcept {
  return count == 1 ? try_unary(operator_in(self), arguments[0]) : not_implemented();
}

using FastCall = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t) noexcept;

PyCFunction as_method(FastCall function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef binary_method = {"at_once", as_method(&call_binary), METH_FASTCALL, nullptr};
PyMethodDef unary_method = {"at_once", as_method(&call_unary), METH_FASTCALL, nullptr};

Operator& find_operator(std::string_view name) {
  for (Operator* entry : operators) {
    if (entry->op->name == name) return *entry;
  }
  throw ValueError(message("there is no operator for the op \"", name, "\""));
}

nb::object at_once(const std::string& name) {
  Operator& entry = find_operator(name);
  const nb::object self = nb::steal(PyCapsule_New(&entry, nullptr, nullptr));
  return nb::steal(
      PyCFunction_New(entry.num_operands == 2 ? &binary_method : &unary_method, self.ptr()));
}

void set_fallback(const std::string& name, nb::object function) {
  find_operator(name).fallback = function.release().ptr();
}

// A base for classes in Python that have these operators: kerascnn.Variable.
nb::object make_operators_type() {
  PyType_Spec spec = {"kerascnn._core.Operators", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                      tensor_operator_slots};
  return nb::steal(PyType_FromSpec(&spec));
}

void set_variable_type(nb::handle type) {
  variable_type = reinterpret_cast<PyTypeObject*>(nb::object(nb::borrow(type)).release().ptr());
}

}  // namespace

#define KERASCNN_SLOT(slot, function) {slot, reinterpret_cast<void*>(&function)}
PyType_Slot tensor_operator_slots[] = {
    KERASCNN_SLOT(Py_nb_add, binary_slot<&add>),
    KERASCNN_SLOT(Py_nb_subtract, binary_slot<&subtract>),
    KERASCNN_SLOT(Py_nb_multiply, binary_slot<&multiply>),
    KERASCNN_SLOT(Py_nb_true_divide, binary_slot<&divide>),
    KERASCNN_SLOT(Py_nb_matrix_multiply, binary_slot<&matmul>),
    KERASCNN_SLOT(Py_nb_negative, unary_slot<&negative>),
    KERASCNN_SLOT(Py_nb_absolute, unary_slot<&absolute>),
    {0, nullptr},
};
#undef KERASCNN_SLOT

void bind_operators(nb::module_& m) {
  tensor_type = reinterpret_cast<PyTypeObject*>(nb::type<Tensor>().ptr());
  core_name = PyUnicode_InternFromString("core");
  m.def("at_once", &at_once, nb::arg("op"),
        nb::sig("def at_once(op: str) -> collections.abc.Callable[..., typing.Any]"),
        "A function that runs one op on tensors without any conversion, and returns NotImplemented "
        "for arguments that need one.");
  m.def("set_fallback", &set_fallback, nb::arg("op"), nb::arg("function"),
        nb::sig("def set_fallback(op: str, function: collections.abc.Callable[..., typing.Any]) -> "
                "None"),
        "What an operator of tensors calls where its operands need a conversion.");
  m.def("set_variable_type", &set_variable_type, nb::arg("type"),
        "The class whose instances operators read as the tensor in their attribute `core`.");
  m.attr("Operators") = make_operators_type();
  m.def(
      "enter_scope", [] { ++open_scopes; },
      "From here on every operator takes the long way, where traces and casts are known.");
  m.def("leave_scope", [] { --open_scopes; });
}

}  // namespace kerascnn::bindings
