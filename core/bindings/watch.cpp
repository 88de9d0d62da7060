// Has anybody changed the objects that a model consists of? Looking through their attributes for
// layers and weights takes Python longer than a GPU takes for a few hundred images; comparing them
// with what they were takes this a few microseconds.
#include <unordered_set>

#include "core/bindings/bindings.h"
#include "core/tensor/variable.h"

namespace kerascnn::bindings {
namespace {

// What a value must be later.
struct Entry {
  enum class Mode : uint8_t { Anything, OfType, Object } mode = Mode::Anything;
  PyObject* key = nullptr;
  PyObject* expected = nullptr;

  bool holds(PyObject* value) const {
    if (mode == Mode::OfType) return reinterpret_cast<PyObject*>(Py_TYPE(value)) == expected;
    return mode == Mode::Anything || value == expected;
  }
};

struct Container {
  PyObject* object = nullptr;
  bool is_dict = false;
  std::vector<Entry> entries;

  bool is_unchanged() const { return is_dict ? is_same_dict() : is_same_list(); }

 private:
  bool is_same_dict() const {
    if (PyDict_Size(object) != static_cast<Py_ssize_t>(entries.size())) return false;
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t position = 0;
    for (const Entry& entry : entries) {
      if (!PyDict_Next(object, &position, &key, &value)) return false;
      if (key != entry.key || !entry.holds(value)) return false;
    }
    return true;
  }

  bool is_same_list() const {
    const auto size = static_cast<Py_ssize_t>(entries.size());
    if (PyList_Size(object) != size) return false;
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (!entries[static_cast<size_t>(i)].holds(PyList_GetItem(object, i))) return false;
    }
    return true;
  }
};

nb::object attributes_of(nb::handle owner) {
  PyObject* attributes = PyObject_GenericGetDict(owner.ptr(), nullptr);
  if (attributes == nullptr) nb::raise_python_error();
  return nb::steal(attributes);
}

// Owns nothing: what it points to lives as long as the list that is made with it, which Python's
// search for circles can see.
class Watch {
 public:
  bool is_unchanged() const {
    for (const auto& [owner, attributes] : owners_) {
      if (attributes_of(owner).ptr() != attributes) return false;
    }
    for (const auto& [variable, trainable] : variables_) {
      if (variable->trainable() != trainable) return false;
    }
    for (const Container& container : containers_) {
      if (!container.is_unchanged()) return false;
    }
    return true;
  }

 private:
  friend class Notes;

  std::vector<std::pair<PyObject*, PyObject*>> owners_;
  std::vector<std::pair<const Variable*, bool>> variables_;
  std::vector<Container> containers_;
};

class Notes {
 public:
  Notes(nb::handle kinds, nb::handle left_out) : kinds_(kinds), left_out_(left_out) {}

  // An object, and those of the kinds that it leads to.
  void take(nb::handle owner) {
    waiting_.push_back(owner);
    while (!waiting_.empty()) {
      const nb::handle next = waiting_.back();
      waiting_.pop_back();
      if (seen_.insert(next.ptr()).second) take_one(next);
    }
  }

  std::pair<Watch, nb::list> result() { return {std::move(watch_), std::move(kept_)}; }

 private:
  void keep(nb::handle object) { kept_.append(object); }

  void take_one(nb::handle owner) {
    keep(owner);
    if (nb::isinstance<Variable>(owner)) {
      const auto* variable = nb::cast<const Variable*>(owner);
      watch_.variables_.emplace_back(variable, variable->trainable());
      return;
    }
    const nb::object attributes = attributes_of(owner);
    watch_.owners_.emplace_back(owner.ptr(), attributes.ptr());
    take_dict(attributes, true);
  }

  // The same object where it is or holds one of the kinds, else another one of its type.
  Entry entry(nb::handle key, nb::handle value) {
    const bool is_container =
        PyDict_Check(value.ptr()) || PyList_Check(value.ptr()) || PyTuple_Check(value.ptr());
    if (is_container) take_container(value);
    const int counts = is_container ? 1 : PyObject_IsInstance(value.ptr(), kinds_.ptr());
    if (counts < 0) nb::raise_python_error();
    if (counts == 0 && !PyBool_Check(value.ptr())) {
      keep(value.type());
      return {Entry::Mode::OfType, key.ptr(), value.type().ptr()};
    }
    keep(value);
    if (!is_container && counts != 0) waiting_.push_back(value);
    return {Entry::Mode::Object, key.ptr(), value.ptr()};
  }

  void take_container(nb::handle value) {
    if (!seen_.insert(value.ptr()).second) return;
    if (PyDict_Check(value.ptr())) {
      take_dict(value, false);
      return;
    }
    const bool is_list = PyList_Check(value.ptr());
    Container container{value.ptr(), false, {}};
    for (nb::handle item : value) container.entries.push_back(entry(nb::handle(), item));
    if (is_list) watch_.containers_.push_back(std::move(container));  // a tuple stays as it is
  }

  void take_dict(nb::handle dict, bool has_attributes) {
    Container container{dict.ptr(), true, {}};
    for (auto [key, value] : nb::borrow<nb::dict>(dict)) {
      keep(key);
      const int is_left_out = has_attributes ? PySet_Contains(left_out_.ptr(), key.ptr()) : 0;
      if (is_left_out < 0) nb::raise_python_error();
      container.entries.push_back(is_left_out != 0 ? Entry{Entry::Mode::Anything, key.ptr()}
                                                   : entry(key, value));
    }
    keep(dict);
    watch_.containers_.push_back(std::move(container));
  }

  nb::handle kinds_, left_out_;
  nb::list kept_;
  std::unordered_set<PyObject*> seen_;
  std::vector<nb::handle> waiting_;
  Watch watch_;
};

std::pair<Watch, nb::list> watch(const nb::list& owners, const nb::tuple& kinds,
                                 const nb::frozenset& left_out) {
  Notes notes(kinds, left_out);
  for (nb::handle owner : owners) notes.take(owner);
  return notes.result();
}

// Numbers, texts, None and functions among the attributes of some objects: what layers are told.
// Owns nothing either.
class Settings {
 public:
  bool is_unchanged() const {
    for (const Setting& setting : settings_) {
      if (!setting.is_same()) return false;
    }
    return true;
  }

  // The names of those that are not what they were.
  nb::set changed() const {
    nb::set names;
    for (const Setting& setting : settings_) {
      if (!setting.is_same()) names.add(nb::handle(setting.key));
    }
    return names;
  }

 private:
  friend std::pair<Settings, nb::list> note_settings(const nb::list&, const nb::tuple&,
                                                     const nb::frozenset&);

  struct Setting {
    PyObject* attributes;
    PyObject* key;
    PyObject* expected;

    bool is_same() const {
      PyObject* value = PyDict_GetItemWithError(attributes, key);
      if (value == nullptr && PyErr_Occurred() != nullptr) nb::raise_python_error();
      if (value == nullptr || value == expected) return value != nullptr;
      if (Py_TYPE(value) != Py_TYPE(expected) || !is_plain(value)) return false;
      const int equal = PyObject_RichCompareBool(value, expected, Py_EQ);
      if (equal < 0) nb::raise_python_error();
      return equal == 1;
    }
  };

  static bool is_plain(PyObject* value) {
    return PyFloat_CheckExact(value) || PyLong_CheckExact(value) || PyUnicode_CheckExact(value);
  }

  std::vector<Setting> settings_;
};

std::pair<Settings, nb::list> note_settings(const nb::list& owners, const nb::tuple& kinds,
                                            const nb::frozenset& left_out) {
  Settings found;
  nb::list kept;
  for (nb::handle owner : owners) {
    const nb::object attributes = attributes_of(owner);
    kept.append(attributes);
    for (auto [key, value] : nb::borrow<nb::dict>(attributes)) {
      const int is_left_out = PySet_Contains(left_out.ptr(), key.ptr());
      if (is_left_out < 0) nb::raise_python_error();
      if (is_left_out != 0) continue;
      bool counts = value.is_none() || PyBool_Check(value.ptr()) || Settings::is_plain(value.ptr());
      if (!counts && PyCallable_Check(value.ptr()) != 0) {
        const int is_kind = PyObject_IsInstance(value.ptr(), kinds.ptr());
        if (is_kind < 0) nb::raise_python_error();
        counts = is_kind == 0;
      }
      if (!counts) continue;
      kept.append(key);
      kept.append(value);
      found.settings_.push_back({attributes.ptr(), key.ptr(), value.ptr()});
    }
  }
  return {std::move(found), std::move(kept)};
}

}  // namespace

void bind_watch(nb::module_& m) {
  nb::class_<Watch>(m, "Watch", "What the attributes of some objects were.")
      .def("is_unchanged", &Watch::is_unchanged,
           "Whether they have the same names and values of the same types, and where a value is of "
           "one of the kinds, a bool, a list, a dictionary or a tuple, the same value; the same "
           "for all in lists and dictionaries among them. Variables have to be as trainable.");
  m.def("watch", &watch, nb::arg("owners"), nb::arg("kinds"), nb::arg("left_out"),
        nb::sig("def watch(owners: list, kinds: tuple[type, ...], left_out: frozenset[str]) -> "
                "tuple[Watch, list]"),
        "A `Watch` of the attributes of the objects, and of those of the kinds that they lead to, "
        "but not of attributes with the names that are left out; and what has to be kept for as "
        "long as it is asked.");
  nb::class_<Settings>(m, "Settings", "What plain values and functions some objects had.")
      .def("is_unchanged", &Settings::is_unchanged,
           "Whether they have equal numbers and texts, and the same functions, bools and None.")
      .def("changed", &Settings::changed, "The names of attributes for which this is not so.");
  m.def("note_settings", &note_settings, nb::arg("owners"), nb::arg("kinds"), nb::arg("left_out"),
        nb::sig("def note_settings(owners: list, kinds: tuple[type, ...], left_out: frozenset[str])"
                " -> tuple[Settings, list]"),
        "The `Settings` among the attributes of the objects, but for callables of the kinds and "
        "names that are left out; and what has to be kept for as long as it is asked.");
}

}  // namespace kerascnn::bindings
