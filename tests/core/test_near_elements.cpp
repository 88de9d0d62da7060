// Functions of two floats on the host, and ops that ask the library for elements that are far from
// the others: those are computed by loops and one by one, and bits must be the same.
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "check.h"
#include "core/ops/element_functions.h"
#include "host_math_testing.h"

namespace kerascnn {
namespace {

using testing::all_compiled;
using testing::Compiled;
using testing::is_same;
using Limits = std::numeric_limits<float>;

const float kSpecial[] = {
    0.0f,          -0.0f,      1.0f,        -1.0f,          0.3f,
    HUGE_VALF,     -HUGE_VALF, NAN,         Limits::max(),  Limits::lowest(),
    Limits::min(), 1e-40f,     -1e-40f,     0x1p20f,        -0x1.000002p20f,
    0x1p27f,       0x1.8p126f, -0x1.8p127f, -Limits::min(), 5.0f,
    1e30f,         -3e-30f,    1e9f,        7.5f,           Limits::denorm_min()};

class Bits {
 public:
  uint32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 32);
  }
  float any() { return std::bit_cast<float>(next()); }
  // Its exponent is near that of 1.
  float moderate() { return static_cast<float>(static_cast<int32_t>(next())) * 0x1p-28f; }

 private:
  uint64_t state_ = 42;
};

// Pairs of special numbers, of any bits, of numbers near one another and of multiples.
template <typename Function>
void for_each_pair(const Function& function) {
  for (const float a : kSpecial) {
    for (const float b : kSpecial) function(a, b);
  }
  Bits bits;
  for (int i = 0; i < 200000; ++i) {
    const float a = bits.any(), factor = bits.moderate();
    function(a, bits.any());
    function(bits.moderate(), factor);
    function(a, a * factor);
    function(a, a * (1 + factor * 0x1p-20f));
    const auto whole = static_cast<float>(bits.next() >> (i % 24));
    function(whole * a, a);
    function(std::nextafter(whole * a, 0.0f), a);
    function(factor * std::ldexp(1.0f, 20 + i % 9), bits.moderate());  // quotients about 2^27
  }
}

TEST(rests_are_the_librarys) {
  for_each_pair([](float a, float b) {
    const float found = host_math::fmod(a, b), wanted = std::fmod(a, b);
    if (!is_same(found, wanted)) {
      testing::fail(__FILE__, __LINE__, "fmod(", a, ", ", b, ") is ", found, ", not ", wanted);
    }
    // What mod and floor_divide were before they had vectors.
    const bool is_other = wanted != 0 && (wanted < 0) != (b < 0);
    CHECK(is_same(element::mod(a, b), is_other ? wanted + b : wanted));
    const float quotient = b == 0 ? a / b : std::rint((a - wanted) / b) - (is_other ? 1.0f : 0.0f);
    CHECK(is_same(element::floor_divide(a, b), quotient));
  });
}

TEST(angles_of_points_are_the_librarys) {
  double worst = 0;
  for_each_pair([&](float y, float x) {
    const float found = host_math::arctan2(y, x);
    const double wanted = std::atan2(static_cast<double>(y), static_cast<double>(x));
    CHECK_EQUAL(std::isnan(found), std::isnan(wanted));
    if (std::isnan(wanted)) return;
    CHECK_EQUAL(std::signbit(found), std::signbit(wanted));
    worst = std::max(worst, testing::units(found, wanted));
  });
  CHECK(worst <= 2.0);  // host_angles.h promises that
}

TEST(loops_compute_far_elements_among_near_ones) {
  constexpr ElementOp kOps[] = {ElementOp::sin, ElementOp::cos,          ElementOp::tan,
                                ElementOp::mod, ElementOp::floor_divide, ElementOp::arctan2};
  Bits bits;
  std::vector<float> near_a(300), near_b(300);
  for (float& value : near_a) value = bits.moderate();
  for (float& value : near_b) value = bits.moderate();
  for (const Compiled& compiled : all_compiled()) {
    for (const ElementOp op : kOps) {
      const cpu::ElementLoop loop = compiled.loops->of[static_cast<int>(op)];
      CHECK(loop != nullptr);
      // Every place in vectors and blocks has each special number once, and every start is met.
      for (size_t at = 0; at < 200; ++at) {
        for (const float special : kSpecial) {
          std::vector<float> a = near_a, b = near_b;
          a[at] = special;
          b[(at * 7 + 3) % 200] = special;
          const size_t start = at % 19;
          const auto count = static_cast<int64_t>(181 + at % 70);
          std::vector<float> out(a.size(), 7.0f);
          loop(a.data() + start, b.data() + start, out.data() + start, count, 0.0f, 0.0f);
          for (size_t i = 0; i < a.size(); ++i) {
            const bool is_written = i >= start && i < start + static_cast<size_t>(count);
            const float wanted =
                is_written ? element_apply<float>(op, a[i], b[i], 0.0f, 0.0f, 0.0f) : 7.0f;
            if (!is_same(out[i], wanted)) {
              testing::fail(__FILE__, __LINE__, element_op_name(op), " ", compiled.name, " of ",
                            a[i], ", ", b[i], " is ", out[i], ", not ", wanted);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kerascnn
