// The functions of float32 on the host, the loops that are compiled for several instruction sets,
// and the conversions of the 16-bit types.
#include "core/ops/host_math.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "check.h"
#include "core/ops/element_functions.h"
#include "host_math_testing.h"

namespace kerascnn {
namespace {

using cpu::ElementLoop;
using cpu::ElementLoops;
using cpu::FloatKernels;
using testing::all_compiled;
using testing::Compiled;
using testing::is_same;
using testing::units;

// The step through all bit patterns of float32 meets both signs, subnormals, infinities and NaN.
constexpr uint64_t kStride = 9973;

template <typename Function>
void for_each_float(const Function& function) {
  for (uint64_t bits = 0; bits < (1ull << 32); bits += kStride) {
    function(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (const float x : {0.0f, -0.0f, 1.0f, -1.0f, HUGE_VALF, -HUGE_VALF, 88.72284f, -103.97208f,
                        std::numeric_limits<float>::max(), std::numeric_limits<float>::min(),
                        std::numeric_limits<float>::denorm_min()}) {
    function(x);
  }
}

using OfFloat = float (*)(float);
using OfDouble = double (*)(double);

void check_function(const char* name, OfFloat own, OfDouble library, double bound) {
  double worst = 0;
  float at = 0;
  for_each_float([&](float x) {
    const float value = own(x);
    const double expected = library(x);
    const float rounded = static_cast<float>(expected);
    if (std::isnan(expected) || std::isinf(rounded) || std::isinf(value)) {
      // The largest finite float and infinity count as neighbours too.
      const bool is_right = std::isnan(expected) ? std::isnan(value) : value == rounded;
      if (!is_right) testing::fail(__FILE__, __LINE__, name, "(", x, ") is ", value);
      return;
    }
    if (rounded == 0 && std::signbit(value) != std::signbit(rounded)) {
      testing::fail(__FILE__, __LINE__, name, "(", x, ") is ", value, " with the wrong sign");
    }
    const double error = units(value, expected);
    if (!(error <= worst)) {
      worst = error;
      at = x;
    }
  });
  if (!(worst <= bound)) {
    testing::fail(__FILE__, __LINE__, name, "(", at, ") is off by ", worst, " units");
  }
}

// host_math.h and host_angles.h promise these bounds. The step through the floats meets angles of
// all sizes, also those for which the functions ask the library.
TEST(functions_of_float32_are_the_librarys) {
  check_function("exp", host_math::exp, std::exp, 1.0);
  check_function("expm1", host_math::expm1, std::expm1, 1.5);
  check_function("log", host_math::log, std::log, 1.0);
  check_function("log1p", host_math::log1p, std::log1p, 1.5);
  check_function("tanh", host_math::tanh, std::tanh, 2.5);
  check_function("sin", host_math::sin, std::sin, 0.51);
  check_function("cos", host_math::cos, std::cos, 0.51);
  check_function("tan", host_math::tan, std::tan, 2.0);
  check_function("arcsin", host_math::arcsin, std::asin, 1.2);
  check_function("arccos", host_math::arccos, std::acos, 1.2);
  check_function("arctan", host_math::arctan, std::atan, 1.5);
  check_function("sinh", host_math::sinh, std::sinh, 2.0);
  check_function("cosh", host_math::cosh, std::cosh, 1.5);
  check_function("arcsinh", host_math::arcsinh, std::asinh, 2.5);
  check_function("arccosh", host_math::arccosh, std::acosh, 2.5);
  check_function("arctanh", host_math::arctanh, std::atanh, 2.5);
  check_function("erf", host_math::erf, std::erf, 1.5);
  check_function("erfc", host_math::erfc, std::erfc, 6.5);
  check_function("sqrt", host_math::sqrt, std::sqrt, 0.5);
  check_function("floor", host_math::floor, std::floor, 0.0);
  check_function("ceil", host_math::ceil, std::ceil, 0.0);
  check_function("rint", host_math::rint, std::rint, 0.0);
  check_function("fabs", host_math::fabs, std::fabs, 0.0);
}

std::vector<float> some_floats(int64_t count, int64_t seed) {
  constexpr float kSpecial[] = {0.0f, -0.0f, 1.0f, -1.0f, HUGE_VALF, -HUGE_VALF, NAN, 1e-40f, 6.0f};
  std::vector<float> values(static_cast<size_t>(count));
  uint32_t state = static_cast<uint32_t>(seed) * 2654435761u + 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = (state >> 8) % 11 == 0 ? kSpecial[(state >> 16) % 9]
                                   : static_cast<float>(static_cast<int32_t>(state)) * 0x1p-28f;
  }
  return values;
}

TEST(loops_give_the_bits_of_single_elements) {
  constexpr float kParameters[][2] = {{0.0f, 0.0f}, {0.3f, 0.0f}, {-0.5f, 2.0f}};
  for (int number = 0; number < kNumElementOps; ++number) {
    const auto op = static_cast<ElementOp>(number);
    for (const Compiled& compiled : all_compiled()) {
      const ElementLoop loop = compiled.loops->of[number];
      CHECK_EQUAL(loop == nullptr, cpu::plain::kElementLoops.of[number] == nullptr);
      if (loop == nullptr) continue;
      for (const int64_t count : {0, 1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 255, 256, 257, 1000}) {
        const std::vector<float> a = some_floats(count, count), b = some_floats(count, count + 1);
        for (const auto& p : kParameters) {
          std::vector<float> out(a.size()), over_a = a, over_b = b;
          loop(a.data(), b.data(), out.data(), count, p[0], p[1]);
          loop(over_a.data(), b.data(), over_a.data(), count, p[0], p[1]);
          if (element_num_operands(op) == 2) {
            loop(a.data(), over_b.data(), over_b.data(), count, p[0], p[1]);
          } else {
            over_b = out;
          }
          for (size_t i = 0; i < a.size(); ++i) {
            const float expected = element_apply<float>(op, a[i], b[i], 0.0f, p[0], p[1]);
            if (!is_same(out[i], expected) || !is_same(over_a[i], out[i]) ||
                !is_same(over_b[i], out[i])) {
              testing::fail(__FILE__, __LINE__, element_op_name(op), " ", compiled.name, " of ",
                            a[i], ", ", b[i], " is ", out[i], " and in place ", over_a[i], ", ",
                            over_b[i], ", not ", expected);
            }
          }
        }
      }
    }
  }
}

TEST(conditions_and_choices_are_those_of_single_elements) {
  for (const int64_t count : {0, 1, 7, 16, 17, 256, 1000}) {
    const std::vector<float> a = some_floats(count, count), b = some_floats(count, count + 1);
    std::vector<int64_t> truth(a.size());
    std::vector<float> out(a.size());
    for (const Compiled& compiled : all_compiled()) {
      for (int number = 0; number < kNumElementOps; ++number) {
        const auto op = static_cast<ElementOp>(number);
        const cpu::ConditionLoop loop = compiled.loops->conditions[number];
        CHECK_EQUAL(loop != nullptr, element_result_is_bool(op));
        if (loop == nullptr) continue;
        loop(a.data(), b.data(), truth.data(), count);
        compiled.loops->where(truth.data(), a.data(), b.data(), out.data(), count);
        for (size_t i = 0; i < a.size(); ++i) {
          const float expected = element_apply<float>(op, a[i], b[i], 0.0f, 0.0f, 0.0f);
          CHECK_EQUAL(static_cast<float>(truth[i]), expected);
          CHECK(is_same(out[i], expected != 0 ? a[i] : b[i]));
        }
      }
    }
  }
}

TEST(conversions_of_16_bit_types_are_those_of_single_elements) {
  std::vector<Half> halves(65536);
  std::vector<BFloat16> bfloats(65536);
  for (size_t i = 0; i < halves.size(); ++i) {
    halves[i].bits = bfloats[i].bits = static_cast<uint16_t>(i);
  }
  std::vector<float> floats;
  for_each_float([&](float x) { floats.push_back(x); });
  // These lie halfway between two float16 numbers; 65520 is the first that rounds to infinity.
  for (const float x :
       {1.00048828125f, 1.00146484375f, 65519.996f, 65520.0f, 0x1p-25f, 0x1.8p-24f}) {
    floats.push_back(x);
    floats.push_back(-x);
  }
  for (const Compiled& compiled : all_compiled()) {
    std::vector<float> wide(halves.size());
    compiled.kernels->widen_half(halves.data(), wide.data(), 65536);
    for (size_t i = 0; i < wide.size(); ++i) CHECK(is_same(wide[i], static_cast<float>(halves[i])));
    compiled.kernels->widen_bfloat16(bfloats.data(), wide.data(), 65536);
    for (size_t i = 0; i < wide.size(); ++i) {
      CHECK(is_same(wide[i], static_cast<float>(bfloats[i])));
    }
    const auto count = static_cast<int64_t>(floats.size());
    std::vector<Half> narrow(floats.size());
    std::vector<BFloat16> narrow_bfloats(floats.size());
    compiled.kernels->narrow_half(floats.data(), narrow.data(), count);
    compiled.kernels->narrow_bfloat16(floats.data(), narrow_bfloats.data(), count);
    for (size_t i = 0; i < floats.size(); ++i) {
      CHECK(is_same(static_cast<float>(narrow[i]), static_cast<float>(Half(floats[i]))));
      CHECK(
          is_same(static_cast<float>(narrow_bfloats[i]), static_cast<float>(BFloat16(floats[i]))));
    }
    for (int64_t some = 0; some < 40; ++some) {  // nothing is written past the last element
      std::vector<Half> part(41, Half(7.0f));
      compiled.kernels->narrow_half(floats.data() + 1000, part.data(), some);
      for (int64_t i = 0; i < 41; ++i) {
        const Half expected = i < some ? narrow[static_cast<size_t>(1000 + i)] : Half(7.0f);
        CHECK_EQUAL(part[static_cast<size_t>(i)].bits, expected.bits);
      }
    }
  }
}

TEST(reductions_give_the_same_bits_on_every_instruction_set) {
  for (const int64_t count : {0, 1, 5, 16, 17, 100, 255, 256, 257, 1000}) {
    std::vector<float> x = some_floats(count, count);
    for (float& value : x) value = std::isfinite(value) ? value : 0.25f;
    std::vector<float> terms(x.size()), first_terms;
    double expected_sum = 0;
    double expected_exps = 0;
    float largest = -HUGE_VALF;
    float smallest = HUGE_VALF;
    for (const float value : x) {
      expected_sum += value;
      expected_exps += std::exp(static_cast<double>(value) - 8);
      largest = std::max(largest, value);
      smallest = std::min(smallest, value);
    }
    const FloatKernels& plain = cpu::plain::kFloatKernels;
    const float exps = plain.sum_exp(x.data(), 8.0f, nullptr, count);
    // Up to 1000 numbers are summed in order, and each sum is rounded to float32.
    CHECK(std::fabs(exps - expected_exps) <= 1e-5 * expected_exps);
    CHECK(std::fabs(plain.sum(x.data(), count) - expected_sum) <= 1e-11);
    for (const Compiled& compiled : all_compiled()) {
      const FloatKernels& kernels = *compiled.kernels;
      CHECK_EQUAL(kernels.sum(x.data(), count), plain.sum(x.data(), count));
      CHECK_EQUAL(kernels.maximum(x.data(), count), largest);
      CHECK_EQUAL(kernels.minimum(x.data(), count), smallest);
      CHECK_EQUAL(kernels.sum_exp(x.data(), 8.0f, terms.data(), count), exps);
      std::vector<float> in_place = x;
      CHECK_EQUAL(kernels.sum_exp(in_place.data(), 8.0f, in_place.data(), count), exps);
      CHECK(in_place == terms);
      if (first_terms.empty()) first_terms = terms;
      CHECK(first_terms == terms);
      for (size_t i = 0; i < x.size(); ++i) {  // one NaN makes the result NaN, wherever it stands
        std::vector<float> with_nan = x;
        with_nan[i] = NAN;
        CHECK(std::isnan(kernels.maximum(with_nan.data(), count)));
        CHECK(std::isnan(kernels.minimum(with_nan.data(), count)));
      }
    }
  }
}

}  // namespace
}  // namespace kerascnn
