// The functions of analysis on the host. Those of float32 are arithmetic without branches, calls
// and fused multiply-adds: compilers turn loops over them into vector code for whatever instruction
// set they compile for, and every one gives the same bits. None errs by more than 2.5 units in the
// last place, erfc by 6.5: tests/core/test_host_math.cpp. Those of float64 are the library's.
// Functions of angles are in host_angles.h.
//
// The polynomials are minimax fits made for these files, their coefficients rounded to their type
// one after another, the lowest first.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace kerascnn {

#ifdef KERASCNN_SIMD
inline namespace KERASCNN_SIMD {
#endif

namespace host_math {

// A function of the standard library that the compiler has an instruction for is called by its
// builtin name: the library's own overloads are inline functions, which a file compiled for newer
// instructions must not leave to the linker.
inline float sqrt(float x) { return __builtin_sqrtf(x); }
inline float floor(float x) { return __builtin_floorf(x); }
inline float ceil(float x) { return __builtin_ceilf(x); }
inline float rint(float x) { return __builtin_rintf(x); }

// a + b (r + c (r + ...)): the coefficients from the lowest power on.
template <int count, typename T>
inline T polynomial(const T (&coefficients)[count], T x) {
  T sum = coefficients[count - 1];
  for (int i = count - 2; i >= 0; --i) sum = sum * x + coefficients[i];
  return sum;
}

inline float fabs(float x) {
  return __builtin_bit_cast(float, __builtin_bit_cast(int32_t, x) & 0x7fffffff);
}

inline float with_sign_of(float x, float sign) {
  return __builtin_bit_cast(
      float, __builtin_bit_cast(int32_t, x) | (__builtin_bit_cast(int32_t, sign) & ~0x7fffffff));
}

// It uses masks: compilers may turn `?:` into jumps, which keep a loop from being vectorized and
// cost far more than computing both choices. For numbers of any type.
template <typename T>
inline T select(bool condition, T yes, T no) {
  using Bits =
      std::conditional_t<sizeof(T) == 8, uint64_t,
                         std::conditional_t<sizeof(T) == 4, uint32_t,
                                            std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;
  const Bits mask = static_cast<Bits>(-static_cast<Bits>(condition));
  return __builtin_bit_cast(T, static_cast<Bits>((__builtin_bit_cast(Bits, yes) & mask) |
                                                 (__builtin_bit_cast(Bits, no) & ~mask)));
}

constexpr float kInfinity = __builtin_inff();
constexpr float kNan = __builtin_nanf("");

// x = n ln(2) + r with an integer n and |r| <= ln(2) / 2.
struct ReducedExponent {
  int32_t n;
  float r;
};

// Products of n and the upper part of ln(2), which has 9 bits, are exact.
constexpr float kLn2Upper = 0x1.63p-1f;
constexpr float kLn2Lower = -0x1.bd0106p-13f;

inline ReducedExponent reduce_exponent(float x) {
  // At 1.5 * 2^23 the unit in the last place is 1: adding it rounds, and the low bits are n.
  constexpr float kRounding = 0x1.8p23f;
  const float shifted = x * 0x1.715476p0f + kRounding;
  const float n = shifted - kRounding;
  return {__builtin_bit_cast(int32_t, shifted) - __builtin_bit_cast(int32_t, kRounding),
          (x - n * kLn2Upper) - n * kLn2Lower};
}

// exp(r) - 1 for |r| <= ln(2) / 2 and a bit more. Relative error of the fit: 4.5e-10.
inline float small_expm1(float r) {
  constexpr float kFit[] = {0.5f,           0.166666657f,   0.0416664928f,
                            0.00833354332f, 0.00139323866f, 0.000197644273f};
  return r + r * r * polynomial(kFit, r);
}

inline float power_of_2(int32_t n) { return __builtin_bit_cast(float, (n + 127) << 23); }

// exp(high + low), for a `low` far smaller than `high`. high in [-105, 90] or NaN.
inline float exp_of_sum(float high, float low) {
  const ReducedExponent reduced = reduce_exponent(high);
  // It multiplies in two steps: 2^n itself may be infinite or subnormal where the result is not.
  const int32_t half = reduced.n >> 1;
  return (1.0f + small_expm1(reduced.r + low)) * power_of_2(half) * power_of_2(reduced.n - half);
}

// NaN stays NaN in both, as comparisons with it are false.
inline float at_least(float x, float low) { return select(x < low, low, x); }
inline float at_most(float x, float high) { return select(x > high, high, x); }

inline float exp(float x) { return exp_of_sum(at_most(at_least(x, -105.0f), 90.0f), 0.0f); }

inline float expm1(float x) {
  const ReducedExponent reduced = reduce_exponent(at_most(at_least(x, -20.0f), 88.8f));
  // A half of 2^n, as 2^128 is infinite.
  const float half = power_of_2(reduced.n - 1);
  const float value = 2.0f * (half * small_expm1(reduced.r) + (half - 0.5f));
  return select(x == 0.0f, x, value);
}

inline float log(float x) {
  const bool is_subnormal = x < 0x1p-126f;
  const uint32_t bits = __builtin_bit_cast(uint32_t, select(is_subnormal, x * 0x1p23f, x));
  // x = 2^k (1 + f) with 1 + f in [2/3, 4/3).
  const int32_t k = static_cast<int32_t>(bits - __builtin_bit_cast(uint32_t, 0x1.555556p-1f)) >> 23;
  const float f = __builtin_bit_cast(float, bits - (static_cast<uint32_t>(k) << 23)) - 1.0f;
  const float exponent = static_cast<float>(k) - select(is_subnormal, 23.0f, 0.0f);
  // (log(1 + f) - f + f^2 / 2) / f^3. Relative error of the fit: 4.7e-9.
  constexpr float kFit[] = {0.333332151f, -0.249998048f, 0.200104445f, -0.166801795f,
                            0.140053406f, -0.121883817f, 0.139867067f, -0.128742635f};
  const float square = f * f;
  const float rest = square * f * polynomial(kFit, f) - 0.5f * square;
  const float value = (rest + exponent * kLn2Lower) + f + exponent * kLn2Upper;
  const float special = select(x == 0.0f, -kInfinity, select(x > 0.0f, x, kNan));
  return select((x > 0.0f) & (x < kInfinity), value, special);
}

inline float log1p(float x) {
  const float sum = 1.0f + x;
  // What the sum rounded off.
  const float lost = select(x > 1.0f, 1.0f - (sum - x), x - (sum - 1.0f));
  const float correction = select((sum > 0.0f) & (sum < kInfinity), lost / sum, 0.0f);
  return select(x == 0.0f, x, log(sum) + correction);
}

inline float tanh(float x) {
  const float e = expm1(2.0f * at_most(fabs(x), 10.0f));
  return with_sign_of(e / (e + 2.0f), x);
}

// exp(size) / 2 for 0 <= size, without overflow where that has none.
inline float half_exp(float size) {
  const ReducedExponent reduced = reduce_exponent(at_most(size, 90.0f));
  const int32_t half = reduced.n >> 1;
  return (1.0f + small_expm1(reduced.r)) * power_of_2(half) * power_of_2(reduced.n - half - 1);
}

inline float sinh(float x) {
  // sinh(x) / x - 1 as x^2 times a polynomial in x^2 up to 1. Relative error of the fit: 3e-10.
  constexpr float kFit[] = {0.166666672f, 0.00833331048f, 0.000198428941f, 2.7822291e-06f};
  const float size = fabs(x);
  const float square = size * size;
  const float half = half_exp(size);
  const float value =
      select(size < 1.0f, size + size * square * polynomial(kFit, square), half - 0.25f / half);
  return with_sign_of(value, x);
}

inline float cosh(float x) {
  const float half = half_exp(fabs(x));
  return half + 0.25f / half;
}

constexpr float kLn2 = 0x1.62e43p-1f;
constexpr float kAlmostOnlyDouble = 0x1p20f;  // from here on x + sqrt(x^2 +- 1) is as good as 2 x

inline float arcsinh(float x) {
  const float size = fabs(x);
  const bool is_large = size > kAlmostOnlyDouble;
  const float square = size * size;
  const float sum = size + square / (1.0f + sqrt(square + 1.0f));
  const float value = log1p(select(is_large, size, sum)) + select(is_large, kLn2, 0.0f);
  return with_sign_of(value, x);
}

inline float arccosh(float x) {
  const bool is_large = x > kAlmostOnlyDouble;
  const float beyond = x - 1.0f;
  const float sum = beyond + sqrt(beyond * (beyond + 2.0f));
  const float value = log1p(select(is_large, x, sum)) + select(is_large, kLn2, 0.0f);
  return select(x < 1.0f, kNan, value);
}

inline float arctanh(float x) {
  const float size = fabs(x);
  return with_sign_of(0.5f * log1p(2.0f * size / (1.0f - size)), x);
}

// For x >= 0 or NaN: exp(-x^2) t P(t), t = 1 / (1 + 0.4 x).
inline float upper_erfc(float x) {
  const float clamped = at_most(x, 10.1f);  // erfc(10.06) rounds to 0
  // x^2 as a sum whose first part, the square of the upper 12 bits of x, is exact.
  const float upper = __builtin_bit_cast(float, __builtin_bit_cast(int32_t, clamped) & ~0xfff);
  const float lower = (clamped - upper) * (clamped + upper);
  // Relative error of the fit: 2e-8.
  constexpr float kFit[] = {0.493812472f, 0.806079268f,  0.900303543f,   0.607519746f,
                            0.110501505f, -0.172966599f, -0.0884389505f, 0.0700776279f,
                            0.037970718f, -0.0345909595f};
  const float t = 1.0f / (1.0f + 0.4f * clamped);
  return exp_of_sum(-(upper * upper), -lower) * (t * polynomial(kFit, t - 0.6f));
}

// erf(x) for 0 <= x <= 1.
inline float lower_erf(float x) {
  // erf(x) / x - 1 as a polynomial in x^2. Error of the fit: 1.3e-9.
  constexpr float kFit[] = {0.128379166f,   -0.376126289f,    0.112836182f,   -0.026855126f,
                            0.00519073382f, -0.000803076138f, 7.92036808e-05f};
  return x + x * polynomial(kFit, x * x);
}

inline float erf(float x) {
  const float size = fabs(x);
  const float value = select(size <= 1.0f, lower_erf(size), 1.0f - upper_erfc(size));
  return with_sign_of(value, x);
}

inline float erfc(float x) {
  const float size = fabs(x);
  const float value = select(size <= 0.5f, 1.0f - lower_erf(size), upper_erfc(size));
  return select(x < 0.0f, 2.0f - value, value);
}

// Where this holds, near_remainder() is fmod(). It does not hold for a divisor of 0 or a numerator
// that is infinite, but for NaN it may.
inline bool is_near(float a, float b) { return !(fabs(a) >= 0x1p27f * fabs(b)); }

// What the division of a by b leaves over, with the sign of a. The quotient has up to 27 bits, its
// product with b up to 51, so that all but the division itself is exact, which may round to a
// neighbouring integer: the rest is then below 0.
inline float near_remainder(float a, float b) {
  constexpr double kRounding = 0x1p52;  // where the unit in the last place is 1
  const double size = static_cast<double>(fabs(a)), divisor = static_cast<double>(fabs(b));
  const double step = select(divisor > 0x1p200, 0x1p200, divisor);  // infinity times 0 is NaN
  const double quotient = (size / step + kRounding) - kRounding;
  const double rest = size - quotient * step;
  const auto whole = static_cast<float>(select(rest < 0.0, rest + step, rest));
  return with_sign_of(whole, a);
}

inline float fmod(float a, float b) {
  return is_near(a, b) ? near_remainder(a, b) : __builtin_fmodf(a, b);
}
inline double fmod(double a, double b) { return std::fmod(a, b); }

#define KERASCNN_OF_DOUBLE(name) \
  inline double name(double x) { return std::name(x); }
KERASCNN_OF_DOUBLE(sqrt)
KERASCNN_OF_DOUBLE(floor)
KERASCNN_OF_DOUBLE(ceil)
KERASCNN_OF_DOUBLE(rint)
KERASCNN_OF_DOUBLE(fabs)
KERASCNN_OF_DOUBLE(exp)
KERASCNN_OF_DOUBLE(expm1)
KERASCNN_OF_DOUBLE(log)
KERASCNN_OF_DOUBLE(log1p)
KERASCNN_OF_DOUBLE(tanh)
KERASCNN_OF_DOUBLE(sinh)
KERASCNN_OF_DOUBLE(cosh)
KERASCNN_OF_DOUBLE(erf)
KERASCNN_OF_DOUBLE(erfc)
#undef KERASCNN_OF_DOUBLE
inline double arcsinh(double x) { return std::asinh(x); }
inline double arccosh(double x) { return std::acosh(x); }
inline double arctanh(double x) { return std::atanh(x); }

}  // namespace host_math

#ifdef KERASCNN_SIMD
}
#endif

}  // namespace kerascnn
