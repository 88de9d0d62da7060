#include "core/inference/json.h"

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "core/base/error.h"

namespace kerascnn::inference {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Json parse() {
    Json result = value(0);
    skip_space();
    if (place_ != text_.size()) fail("something behind its end");
    return result;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw ValueError(message("JSON: ", what, " at character ", place_));
  }

  char peek() const { return place_ < text_.size() ? text_[place_] : '\0'; }

  void skip_space() {
    while (place_ < text_.size() &&
           std::string_view(" \t\n\r").find(text_[place_]) != std::string_view::npos) {
      ++place_;
    }
  }

  bool take(char c) {
    skip_space();
    if (place_ == text_.size() || text_[place_] != c) return false;
    ++place_;
    return true;
  }

  bool take_word(std::string_view word) {
    if (!text_.substr(place_).starts_with(word)) return false;
    place_ += word.size();
    return true;
  }

  Json value(int depth) {
    if (depth > kMaxJsonDepth) fail(message("more than ", kMaxJsonDepth, " levels"));
    if (++num_values_ > kMaxJsonValues) fail(message("more than ", kMaxJsonValues, " values"));
    skip_space();
    switch (peek()) {
      case '{':
        return map(depth);
      case '[':
        return list(depth);
      case '"':
        return Json(string());
      case 't':
        if (take_word("true")) return Json(true);
        break;
      case 'f':
        if (take_word("false")) return Json(false);
        break;
      case 'n':
        if (take_word("null")) return Json();
        break;
      default:
        if (peek() == '-' || is_digit(peek())) return number();
    }
    fail("no value");
  }

  Json list(int depth) {
    ++place_;
    JsonList result;
    if (take(']')) return Json(std::move(result));
    do {
      result.push_back(value(depth + 1));
    } while (take(','));
    if (!take(']')) fail("no end of a list");
    return Json(std::move(result));
  }

  Json map(int depth) {
    ++place_;
    JsonMap result;
    if (take('}')) return Json(std::move(result));
    do {
      skip_space();
      if (peek() != '"') fail("no name of a member");
      std::string name = string();
      if (!take(':')) fail("no colon behind a name");
      result.push_back({std::move(name), value(depth + 1)});
    } while (take(','));
    if (!take('}')) fail("no end of a map");
    std::unordered_set<std::string_view> names;
    for (const JsonMember& member : result) {
      if (!names.insert(member.name).second) fail("a name that a map has twice");
    }
    return Json(std::move(result));
  }

  Json number() {
    const size_t first = place_;
    if (peek() == '-') ++place_;
    const size_t digits = place_;
    while (is_digit(peek())) ++place_;
    if (place_ == digits || (text_[digits] == '0' && place_ > digits + 1)) fail("no number");
    bool is_whole = true;
    if (peek() == '.') {
      is_whole = false;
      ++place_;
      if (!is_digit(peek())) fail("no number");
      while (is_digit(peek())) ++place_;
    }
    if (peek() == 'e' || peek() == 'E') {
      is_whole = false;
      ++place_;
      if (peek() == '-' || peek() == '+') ++place_;
      if (!is_digit(peek())) fail("no number");
      while (is_digit(peek())) ++place_;
    }
    const char* const begin = text_.data() + first;
    return is_whole ? Json(converted<int64_t>(begin)) : Json(converted<double>(begin));
  }

  template <typename T>
  T converted(const char* begin) const {
    T result = 0;
    if (std::from_chars(begin, text_.data() + place_, result).ec != std::errc()) {
      fail("a number that is too large or too small");
    }
    return result;
  }

  std::string string() {
    ++place_;
    std::string result;
    while (true) {
      const size_t end = std::min(text_.find_first_of("\"\\", place_), text_.size());
      const std::string_view plain = text_.substr(place_, end - place_);
      const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20; };
      if (std::any_of(plain.begin(), plain.end(), is_control)) fail("a control character");
      result += plain;
      place_ = end;
      if (end == text_.size()) fail("no end of a text");
      ++place_;
      if (text_[end] == '"') return result;
      result += escaped();
    }
  }

  std::string escaped() {
    constexpr std::string_view kLetters = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    const char letter = peek();
    ++place_;
    if (letter == 'u') return utf8(code_point());
    const size_t at = kLetters.find(letter);
    if (at == std::string_view::npos) fail("an unknown escape");
    return std::string(1, kMeant[at]);
  }

  uint32_t four_digits() {
    uint32_t unit = 0;
    const std::string_view digits = text_.substr(std::min(place_, text_.size()), 4);
    const char* const end = digits.data() + digits.size();
    const auto parsed = std::from_chars(digits.data(), end, unit, 16);
    if (digits.size() != 4 || parsed.ptr != end || parsed.ec != std::errc()) {
      fail("no code of a character");
    }
    place_ += 4;
    return unit;
  }

  uint32_t code_point() {
    const uint32_t high = four_digits();
    if (high < 0xD800 || high > 0xDFFF) return high;
    if (high > 0xDBFF || !take_word("\\u")) fail("half of a pair of codes");
    const uint32_t low = four_digits();
    if (low < 0xDC00 || low > 0xDFFF) fail("half of a pair of codes");
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  static std::string utf8(uint32_t code) {
    const auto byte = [](uint32_t bits) { return static_cast<char>(bits); };
    const auto next = [&](int shift) { return byte(0x80 | (code >> shift & 0x3F)); };
    if (code < 0x80) return {byte(code)};
    if (code < 0x800) return {byte(0xC0 | code >> 6), next(0)};
    if (code < 0x10000) return {byte(0xE0 | code >> 12), next(6), next(0)};
    return {byte(0xF0 | code >> 18), next(12), next(6), next(0)};
  }

  std::string_view text_;
  size_t place_ = 0;
  size_t num_values_ = 0;
};

}  // namespace

const char* Json::kind() const {
  constexpr const char* kKinds[] = {"nothing", "true or false", "a whole number", "a number",
                                    "a text",  "a list",        "a map"};
  return kKinds[value_.index()];
}

template <typename T>
const T& Json::as(const char* expected) const {
  if (const T* found = std::get_if<T>(&value_)) return *found;
  throw ValueError(message("expected ", expected, ", found ", kind()));
}

bool Json::boolean() const { return as<bool>("true or false"); }
int64_t Json::whole() const { return as<int64_t>("a whole number"); }
double Json::number() const {
  return is_whole() ? static_cast<double>(whole()) : as<double>("a number");
}
const std::string& Json::text() const { return as<std::string>("a text"); }
const JsonList& Json::list() const { return as<JsonList>("a list"); }
const JsonMap& Json::map() const { return as<JsonMap>("a map"); }

const Json* Json::find(std::string_view name) const {
  for (const JsonMember& member : map()) {
    if (member.name == name) return &member.value;
  }
  return nullptr;
}

const Json& Json::at(std::string_view name) const {
  const Json* found = find(name);
  if (found == nullptr) throw ValueError(message("there is no \"", name, "\""));
  return *found;
}

Json parse_json(std::string_view text) { return Parser(text).parse(); }

}  // namespace kerascnn::inference
