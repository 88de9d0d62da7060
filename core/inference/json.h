// JSON of files that are not trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace kerascnn::inference {

class Json;
struct JsonMember;
using JsonList = std::vector<Json>;
using JsonMap = std::vector<JsonMember>;  // in the order of the text; names are different

// A value. The functions that ask for a kind throw ValueError, which names what was found, where it
// is of another one.
class Json {
 public:
  Json() = default;
  template <typename T>
  explicit Json(T value) : value_(std::move(value)) {}

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_whole() const { return std::holds_alternative<int64_t>(value_); }
  bool is_real() const { return std::holds_alternative<double>(value_); }
  bool is_text() const { return std::holds_alternative<std::string>(value_); }
  bool is_list() const { return std::holds_alternative<JsonList>(value_); }
  bool is_map() const { return std::holds_alternative<JsonMap>(value_); }

  bool boolean() const;
  int64_t whole() const;
  double number() const;  // whole or not
  const std::string& text() const;
  const JsonList& list() const;
  const JsonMap& map() const;
  const Json* find(std::string_view name) const;  // of a map; null where there is no such member
  const Json& at(std::string_view name) const;    // throws ValueError where there is none

 private:
  const char* kind() const;
  template <typename T>
  const T& as(const char* expected) const;

  std::variant<std::monostate, bool, int64_t, double, std::string, JsonList, JsonMap> value_;
};

struct JsonMember {
  std::string name;
  Json value;
};

// Lists and maps in one another.
constexpr int kMaxJsonDepth = 64;
// Values of a text, so that memory is bounded: a value of two characters takes some forty bytes.
constexpr size_t kMaxJsonValues = 1 << 19;

// Throws ValueError, which says at which character, for what is no JSON: whole numbers that 64 bits
// do not hold, other numbers beyond those of a double, and repeated names are none here.
Json parse_json(std::string_view text);

}  // namespace kerascnn::inference
