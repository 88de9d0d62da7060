#include "core/base/attributes.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "core/base/error.h"

namespace kerascnn {
namespace {

template <typename T>
const T& require(const Attribute* attribute, std::string_view name, const char* kind) {
  if (attribute == nullptr) throw ValueError(message("attribute \"", name, "\" is missing"));
  const T* value = std::get_if<T>(attribute);
  if (value == nullptr) throw ValueError(message("attribute \"", name, "\" must be ", kind));
  return *value;
}

struct KeyWriter {
  std::string& out;

  void operator()(bool value) const { out += value ? "b1" : "b0"; }
  void operator()(int64_t value) const { out += "i" + std::to_string(value); }
  // The bit pattern, so that 0.1 and 0.1000001 differ and NaN equals itself.
  void operator()(double value) const {
    out += "d" + std::to_string(std::bit_cast<uint64_t>(value));
  }
  void operator()(const std::string& value) const {
    out += "s" + std::to_string(value.size()) + ":" + value;
  }
  void operator()(const BodyPtr& body) const {
    out += "g" + std::to_string(reinterpret_cast<uintptr_t>(body.get()));
  }
  template <typename T>
  void operator()(const std::vector<T>& values) const {
    out += "[";
    for (const T& value : values) (*this)(value);
    out += "]";
  }
};

struct SameBits {
  const Attribute& other;

  static bool same(double a, double b) {
    return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
  }
  bool operator()(double value) const { return same(value, std::get<double>(other)); }
  bool operator()(const std::vector<double>& values) const {
    const auto& others = std::get<std::vector<double>>(other);
    return std::equal(values.begin(), values.end(), others.begin(), others.end(), same);
  }
  template <typename T>
  bool operator()(const T& value) const {
    return value == std::get<T>(other);
  }
};

struct Hasher {
  size_t& hash;

  void add(uint64_t bits) const {
    hash = (hash ^ bits) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 32;
  }
  void operator()(bool value) const { add(value); }
  void operator()(int64_t value) const { add(static_cast<uint64_t>(value)); }
  void operator()(double value) const { add(std::bit_cast<uint64_t>(value)); }
  void operator()(const std::string& value) const { add(std::hash<std::string>()(value)); }
  void operator()(const BodyPtr& body) const { add(reinterpret_cast<uintptr_t>(body.get())); }
  template <typename T>
  void operator()(const std::vector<T>& values) const {
    add(values.size());
    for (const T& value : values) (*this)(value);
  }
};

}  // namespace

Attributes::Attributes(std::initializer_list<std::pair<std::string, Attribute>> entries) {
  for (const auto& [name, value] : entries) set(name, value);
}

void Attributes::set(std::string name, Attribute value) {
  auto at = std::lower_bound(entries_.begin(), entries_.end(), name,
                             [](const auto& entry, const auto& key) { return entry.first < key; });
  if (at != entries_.end() && at->first == name) {
    at->second = std::move(value);
  } else {
    entries_.emplace(at, std::move(name), std::move(value));
  }
}

const Attribute* Attributes::find(std::string_view name) const {
  for (const auto& [key, value] : entries_) {
    if (key == name) return &value;
  }
  return nullptr;
}

bool Attributes::has(std::string_view name) const { return find(name) != nullptr; }

bool Attributes::get_bool(std::string_view name) const {
  return require<bool>(find(name), name, "a bool");
}

int64_t Attributes::get_int(std::string_view name) const {
  return require<int64_t>(find(name), name, "an integer");
}

double Attributes::get_double(std::string_view name) const {
  const Attribute* attribute = find(name);
  if (attribute != nullptr) {
    if (const int64_t* integer = std::get_if<int64_t>(attribute)) {
      return static_cast<double>(*integer);
    }
  }
  return require<double>(attribute, name, "a number");
}

const std::string& Attributes::get_string(std::string_view name) const {
  return require<std::string>(find(name), name, "a string");
}

const std::vector<int64_t>& Attributes::get_ints(std::string_view name) const {
  return require<std::vector<int64_t>>(find(name), name, "a list of integers");
}

DType Attributes::get_dtype(std::string_view name) const {
  return dtype_from_name(get_string(name));
}

const Bodies& Attributes::get_bodies(std::string_view name, size_t count) const {
  const Bodies& bodies = require<Bodies>(find(name), name, "a list of bodies");
  const bool fits = count == 0 ? !bodies.empty() : bodies.size() == count;
  if (!fits || std::find(bodies.begin(), bodies.end(), nullptr) != bodies.end()) {
    throw ValueError(message("attribute \"", name, "\" must have ",
                             count == 0 ? std::string("a body") : std::to_string(count) + " bodies",
                             " or more, none of them None; received ", bodies.size()));
  }
  return bodies;
}

std::string Attributes::key() const {
  std::string key;
  for (const auto& [name, value] : entries_) {
    key += name + "=";
    std::visit(KeyWriter{key}, value);
    key += ";";
  }
  return key;
}

bool Attributes::same_as(const Attributes& other) const {
  return std::equal(entries_.begin(), entries_.end(), other.entries_.begin(), other.entries_.end(),
                    [](const auto& a, const auto& b) {
                      return a.first == b.first && a.second.index() == b.second.index() &&
                             std::visit(SameBits{b.second}, a.second);
                    });
}

size_t Attributes::hash() const {
  size_t hash = entries_.size();
  for (const auto& [name, value] : entries_) std::visit(Hasher{hash}, value);
  return hash;
}

}  // namespace kerascnn
