// Reads environment variables. docs/environment.md lists all of them, and what they mean; a test
// compares its list with the code (tests/packaging/test_pages_of_the_core.py).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace kerascnn {

// True for "1", "true", "on", "yes"; false for "0", "false", "off", "no"; `fallback` where unset or
// empty. Throws ValueError for anything else.
bool env_flag(const char* name, bool fallback);

// A positive integer, or `fallback` where unset or empty. Throws ValueError for anything else.
int64_t env_positive(const char* name, int64_t fallback);

// The same, and 0 is allowed.
int64_t env_count(const char* name, int64_t fallback);

// One of `choices`, or "" where unset or empty. Throws ValueError for anything else.
std::string env_choice(const char* name, std::initializer_list<std::string_view> choices);

}  // namespace kerascnn
