#include "core/base/env.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/base/error.h"

namespace kerascnn {
namespace {

int64_t env_integer(const char* name, int64_t fallback, int64_t least, const char* expected) {
  const char* raw = std::getenv(name);
  if (raw == nullptr || *raw == '\0') return fallback;
  const std::string_view text = raw;
  int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < least) {
    throw ValueError(message("environment variable ", name, "=\"", text,
                             "\" is not understood; expected ", expected));
  }
  return value;
}

}  // namespace

bool env_flag(const char* name, bool fallback) {
  const char* raw = std::getenv(name);
  if (raw == nullptr || *raw == '\0') return fallback;
  const std::string_view text = raw;
  if (text == "1" || text == "true" || text == "on" || text == "yes") return true;
  if (text == "0" || text == "false" || text == "off" || text == "no") return false;
  throw ValueError(
      message("environment variable ", name, "=\"", text, "\" is not understood; expected 1 or 0"));
}

int64_t env_positive(const char* name, int64_t fallback) {
  return env_integer(name, fallback, 1, "a positive integer");
}

int64_t env_count(const char* name, int64_t fallback) {
  return env_integer(name, fallback, 0, "0 or a positive integer");
}

std::string env_choice(const char* name, std::initializer_list<std::string_view> choices) {
  const char* raw = std::getenv(name);
  if (raw == nullptr || *raw == '\0') return "";
  std::string known;
  for (std::string_view choice : choices) {
    if (choice == raw) return raw;
    known += (known.empty() ? "" : ", ") + std::string(choice);
  }
  throw ValueError(message("environment variable ", name, "=\"", raw,
                           "\" is not understood; expected one of: ", known));
}

}  // namespace kerascnn
