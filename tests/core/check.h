// A small unit test harness for libkerascnn.
//
//   TEST(shape_of_scalar) { CHECK_EQUAL(Shape{}.size(), 1); }
//
// A failing check throws, so the rest of that test does not run; the other tests do.
#pragma once

#include <cmath>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace kerascnn::testing {

struct Test {
  std::string file;  // the stem of the source file, which main takes as a filter
  std::string name;
  std::function<void()> body;
};

std::vector<Test>& all_tests();

struct Registration {
  Registration(const char* file, const char* name, std::function<void()> body);
};

class CheckFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Parts>
[[noreturn]] void fail(const char* file, int line, const Parts&... parts) {
  std::ostringstream out;
  out << file << ':' << line << ": ";
  (out << ... << parts);
  throw CheckFailure(out.str());
}

template <typename Left, typename Right>
void check_equal(const Left& left, const Right& right, const char* text, const char* file,
                 int line) {
  if (left == right) return;
  if constexpr (requires(std::ostream& out) { out << left << right; }) {
    fail(file, line, text, ": ", left, " is not ", right);
  } else {
    fail(file, line, text, ": not equal");
  }
}

template <typename Expected, typename Body>
void check_throws(const Body& body, const std::string& part, const char* text, const char* file,
                  int line) {
  try {
    body();
  } catch (const Expected& error) {
    if (std::string(error.what()).find(part) != std::string::npos) return;
    fail(file, line, text, ": the message \"", error.what(), "\" lacks \"", part, '"');
  }
  fail(file, line, text, ": nothing was thrown");
}

}  // namespace kerascnn::testing

#define TEST(name)                                                                              \
  static void test_##name();                                                                    \
  static const ::kerascnn::testing::Registration register_##name(__FILE__, #name, test_##name); \
  static void test_##name()

#define CHECK(condition)                                                                      \
  do {                                                                                        \
    if (!(condition)) ::kerascnn::testing::fail(__FILE__, __LINE__, #condition, " is false"); \
  } while (false)

#define CHECK_EQUAL(left, right) \
  ::kerascnn::testing::check_equal((left), (right), #left " == " #right, __FILE__, __LINE__)

#define CHECK_NEAR(left, right, tolerance)                                                      \
  do {                                                                                          \
    const double left_value = (left), right_value = (right);                                    \
    if (!(std::abs(left_value - right_value) <= (tolerance)))                                   \
      ::kerascnn::testing::fail(__FILE__, __LINE__, #left, " is ", left_value, ", not within ", \
                                (tolerance), " of ", right_value);                              \
  } while (false)

// The statement has to throw Error (or a class derived from it) with `part` in its message.
#define CHECK_THROWS(Error, part, ...)                                                         \
  ::kerascnn::testing::check_throws<Error>([&] { __VA_ARGS__; }, part, #__VA_ARGS__, __FILE__, \
                                           __LINE__)
