// The attributes of an op call: a small ordered map from name to value, fixed when the call is
// planned.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/shape.h"

namespace kerascnn {

// Graphs that an op runs, such as a loop's body. Equal where they are the same
// objects.
struct Body;
using BodyPtr = std::shared_ptr<Body>;
using Bodies = std::vector<BodyPtr>;

using Attribute = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>,
                               std::vector<double>, Bodies>;

class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string, Attribute>> entries);

  void set(std::string name, Attribute value);  // replaces an entry of that name
  bool has(std::string_view name) const;

  // Each throws ValueError naming the attribute where it is missing or of another type. An integer
  // is accepted where a double is asked for, a DType is written as its name.
  bool get_bool(std::string_view name) const;
  int64_t get_int(std::string_view name) const;
  double get_double(std::string_view name) const;
  const std::string& get_string(std::string_view name) const;
  const std::vector<int64_t>& get_ints(std::string_view name) const;
  DType get_dtype(std::string_view name) const;
  // The list must have `count` entries, or any number from 1 on where `count` is 0; none of them
  // may be null.
  const Bodies& get_bodies(std::string_view name, size_t count = 0) const;

  const std::vector<std::pair<std::string, Attribute>>& entries() const { return entries_; }

  // Equal attributes, and only those, give equal keys; used by plan caches and common-subexpression
  // search.
  std::string key() const;
  // The same question without strings: numbers count as equal where their bits are, as in key().
  bool same_as(const Attributes& other) const;
  size_t hash() const;

  bool operator==(const Attributes&) const = default;

 private:
  const Attribute* find(std::string_view name) const;
  std::vector<std::pair<std::string, Attribute>> entries_;  // sorted by name
};

}  // namespace kerascnn
