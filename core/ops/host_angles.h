// Functions of angles and their inverses on the host, in the way of host_math.h. Those of float32
// err by no more than 2 units in the last place, sin and cos by 0.51:
// tests/core/test_host_math.cpp.
//
// Angles are reduced in float64, of which their functions need so few digits more than float32 has
// that short polynomials do. Where an angle is too large for that, sin, cos and tan ask the library
// (of float64: rounded to float32 its results are the same everywhere). Loops that are to become
// vectors call near_sin, near_cos and near_tan where no angle is, and sin, cos and tan elsewhere.
#pragma once

#include "core/ops/host_math.h"

namespace kerascnn {

#ifdef KERASCNN_SIMD
inline namespace KERASCNN_SIMD {
#endif

namespace host_math {

// The largest angle that reduce_angle() takes.
constexpr float kMostAngle = 0x1p20f;
constexpr double kHalfPi = 1.57079632679489661923;

// x = n pi / 2 + r with an integer n, of which `quarter` has the lowest bits, and |r| <= 0.88.
struct ReducedAngle {
  int32_t quarter;
  double r;
};

inline ReducedAngle reduce_angle(float x) {
  // n has up to 20 bits, which the product and the sum in float32 get wrong by up to 0.06; the
  // product with the upper part of pi / 2, of 33 bits, is exact, as is the first difference.
  constexpr double kUpper = 0x1.921fb544p0;
  constexpr double kLower = 0x1.0b4611a626331p-34;
  constexpr float kRounding = 0x1.8p23f;
  const float shifted = x * 0x1.45f306p-1f + kRounding;
  const double n = static_cast<double>(shifted - kRounding);
  return {__builtin_bit_cast(int32_t, shifted), (static_cast<double>(x) - n * kUpper) - n * kLower};
}

// A polynomial of four coefficients, from the lowest on. Its halves don't wait for one another.
inline double cubic(const double (&c)[4], double x) {
  return (c[0] + c[1] * x) + (x * x) * (c[2] + c[3] * x);
}

// The sine and the cosine of an angle of up to 0.88. Relative errors of the fits: 1.5e-11, 2.1e-10.
inline float small_sin(double r) {
  constexpr double kFit[] = {-0x1.5555554005902p-3, 0x1.1111005642658p-7, -0x1.a009ab965f7e1p-13,
                             0x1.6b92c21ffe443p-19};
  const double square = r * r;
  return static_cast<float>(r + (r * square) * cubic(kFit, square));
}

inline float small_cos(double r) {
  constexpr double kFit[] = {-0x1.ffffff7a00ac8p-2, 0x1.55552354b8433p-5, -0x1.6bff36034e980p-10,
                             0x1.974573ead3a5fp-16};
  const double square = r * r;
  return static_cast<float>(1.0 + square * cubic(kFit, square));
}

inline float flip_sign(float x, int32_t bits) {
  return __builtin_bit_cast(float, __builtin_bit_cast(int32_t, x) ^ (bits & ~0x7fffffff));
}

inline float near_sin(float x) {
  // The sign is put on at the end, so that -0 stays what it is.
  const ReducedAngle angle = reduce_angle(fabs(x));
  const float value = select((angle.quarter & 1) != 0, small_cos(angle.r), small_sin(angle.r));
  return flip_sign(value, (angle.quarter << 30) ^ __builtin_bit_cast(int32_t, x));
}

inline float near_cos(float x) {
  const ReducedAngle angle = reduce_angle(x);
  const float value = select((angle.quarter & 1) != 0, small_sin(angle.r), small_cos(angle.r));
  return flip_sign(value, (angle.quarter + 1) << 30);
}

inline float near_tan(float x) {
  const ReducedAngle angle = reduce_angle(fabs(x));
  const float sine = small_sin(angle.r), cosine = small_cos(angle.r);
  const bool is_odd = (angle.quarter & 1) != 0;
  const float value = select(is_odd, cosine, sine) / select(is_odd, sine, cosine);
  return flip_sign(value, (angle.quarter << 31) ^ __builtin_bit_cast(int32_t, x));
}

inline float sin(float x) {
  return fabs(x) > kMostAngle ? static_cast<float>(__builtin_sin(static_cast<double>(x)))
                              : near_sin(x);
}
inline float cos(float x) {
  return fabs(x) > kMostAngle ? static_cast<float>(__builtin_cos(static_cast<double>(x)))
                              : near_cos(x);
}
inline float tan(float x) {
  return fabs(x) > kMostAngle ? static_cast<float>(__builtin_tan(static_cast<double>(x)))
                              : near_tan(x);
}

// The angle, in [0, pi], of the point (+-x, y), x and y >= 0 or NaN, which lies on the left where
// `is_left`.
inline float angle_of(float x, float y, bool is_left) {
  const bool is_steep = y > x;
  const float large = select(is_steep, y, x), small = select(is_steep, x, y);
  // From an angle of a half on the point is turned back by an eighth of a turn. Nearer to the axis
  // the digits of a small result would be lost in that.
  const bool is_between = small + small > 0x1.18p0f * large;  // twice, for the smallest numbers
  const float down = select(is_between, small - large, small);
  const float across = select(is_between, small + large, large);
  const float slope = down / select(across == 0.0f, 1.0f, across);
  // (arctan(s) / s - 1) / s^2 as a polynomial in s^2. Relative error of the fit: 8e-10.
  constexpr float kFit[] = {-0.333333164f, 0.199988768f,   -0.142605916f,
                            0.108480044f,  -0.0764501244f, 0.0341499522f};
  const float square = slope * slope;
  float angle = slope + slope * square * polynomial(kFit, square);
  // The rest is a number of eighths of a turn; of pi / 4 the upper part has 22 bits, so that its
  // multiples up to 4 are exact.
  int32_t eighths = select(is_between, int32_t{1}, int32_t{0});
  eighths = select(is_steep, 2 - eighths, eighths);
  angle = select(is_steep, -angle, angle);
  eighths = select(is_left, 4 - eighths, eighths);
  angle = select(is_left, -angle, angle);
  const float count = static_cast<float>(eighths);
  return count * 0x1.921fb4p-1f + (angle + count * 0x1.4442d2p-25f);
}

inline float arctan(float x) { return with_sign_of(angle_of(1.0f, fabs(x), false), x); }

inline float arctan2(float y, float x) {
  const float height = fabs(y), width = fabs(x);
  // Infinity is as far as infinity; others are made smaller where their sum might overflow.
  const bool are_infinite = (height == kInfinity) & (width == kInfinity);
  const float scale = select((height > 0x1p126f) | (width > 0x1p126f), 0.25f, 1.0f);
  const float angle =
      angle_of(select(are_infinite, 1.0f, width * scale),
               select(are_infinite, 1.0f, height * scale), __builtin_bit_cast(int32_t, x) < 0);
  return with_sign_of(angle, y);
}

// (arcsin(sqrt(z)) / sqrt(z) - 1) / z for 0 <= z <= 1/4. Relative error of the fit: 2.9e-10.
inline float arcsin_fit(float z) {
  constexpr float kFit[] = {0.166666597f,  0.0750052109f, 0.0445136353f,
                            0.0318360552f, 0.0143291904f, 0.0376731195f};
  return polynomial(kFit, z);
}

// Beyond 1/2 both are twice the arcsine of sqrt((1 - |x|) / 2) away from an axis. The last sums are
// of float64.
inline float arcsin(float x) {
  const float size = fabs(x);
  const bool is_large = size > 0.5f;
  const float square = select(is_large, 0.5f * (1.0f - size), size * size);
  const float root = select(is_large, sqrt(square), size);
  const float factor = select(is_large, -2.0f, 1.0f), start = select(is_large, 1.0f, 0.0f);
  const double angle =
      static_cast<double>(root) + static_cast<double>(root * square * arcsin_fit(square));
  return with_sign_of(static_cast<float>(static_cast<double>(start) * kHalfPi +
                                         static_cast<double>(factor) * angle),
                      x);
}

inline float arccos(float x) {
  const float size = fabs(x);
  const bool is_large = size > 0.5f;
  const float square = select(is_large, 0.5f * (1.0f - size), size * size);
  const float root = select(is_large, sqrt(square), x);
  const double angle =
      static_cast<double>(root) + static_cast<double>(root * square * arcsin_fit(square));
  const float factor = select(is_large, select(x < 0.0f, -2.0f, 2.0f), -1.0f);
  const float start = select(is_large, select(x < 0.0f, 2.0f, 0.0f), 1.0f);
  return static_cast<float>(static_cast<double>(start) * kHalfPi +
                            static_cast<double>(factor) * angle);
}

inline double sin(double x) { return std::sin(x); }
inline double cos(double x) { return std::cos(x); }
inline double tan(double x) { return std::tan(x); }
inline double arcsin(double x) { return std::asin(x); }
inline double arccos(double x) { return std::acos(x); }
inline double arctan(double x) { return std::atan(x); }
inline double arctan2(double y, double x) { return std::atan2(y, x); }

}  // namespace host_math

#ifdef KERASCNN_SIMD
}
#endif

}  // namespace kerascnn
