// The one definition of every op that works on one element at a time. CPU kernels, CUDA kernels and
// fused groups all call these templates, so that an op gives the same number wherever it runs.
//
// T is the compute type: float for float16, bfloat16 and float32, double for float64, and the type
// itself for integers and bool. Kernels convert on load and on store. Integers wrap around. NaN
// propagates through maximum, minimum, clip and the relu family. Functions of analysis (exp, tanh,
// ...) are defined for float and double only; shape rules reject other dtypes before a kernel is
// planned.
//
// On the host the functions of analysis are those of host_math.h, which compilers vectorize. Files
// that are compiled once for each instruction set define KERASCNN_SIMD and get functions of their
// own.
//
// The header includes nothing under NVRTC, so it can be part of sources compiled at run time.
#pragma once

#include "core/base/host_device.h"
#include "core/ops/element_ops.h"

#ifndef __CUDACC_RTC__
#include <cmath>
#include <cstdint>

#include "core/ops/host_angles.h"
#include "core/ops/host_math.h"
#endif

namespace kerascnn {

#ifdef KERASCNN_SIMD
inline namespace KERASCNN_SIMD {
#endif

namespace element {

template <typename T>
constexpr bool is_float = false;
template <>
inline constexpr bool is_float<float> = true;
template <>
inline constexpr bool is_float<double> = true;

template <bool takes_first, typename First, typename Second>
struct Choice {
  using type = First;
};
template <typename First, typename Second>
struct Choice<false, First, Second> {
  using type = Second;
};

// The type in which integers are added and multiplied, so that overflow wraps instead of being
// undefined.
template <typename T>
using arithmetic_t = typename Choice<is_float<T>, T, unsigned long long>::type;

#ifdef __CUDACC_RTC__
#define KERASCNN_STD ::
#else
#define KERASCNN_STD std::
#endif

#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)
#define KERASCNN_MATH KERASCNN_STD
#define KERASCNN_ARC(name) KERASCNN_STD a##name
#else
#define KERASCNN_MATH host_math::
#define KERASCNN_ARC(name) host_math::arc##name
#endif

template <typename T>
KERASCNN_HOST_DEVICE T add(T a, T b) {
  using A = arithmetic_t<T>;
  return static_cast<T>(static_cast<A>(a) + static_cast<A>(b));
}

template <typename T>
KERASCNN_HOST_DEVICE T subtract(T a, T b) {
  using A = arithmetic_t<T>;
  return static_cast<T>(static_cast<A>(a) - static_cast<A>(b));
}

template <typename T>
KERASCNN_HOST_DEVICE T multiply(T a, T b) {
  using A = arithmetic_t<T>;
  return static_cast<T>(static_cast<A>(a) * static_cast<A>(b));
}

template <typename T>
KERASCNN_HOST_DEVICE T divide(T a, T b) {
  if constexpr (is_float<T>) {
    return a / b;
  } else {
    return T(0);
  }
}

// For integers, by squaring; a negative exponent gives the exact quotient, truncated (0 but for
// bases 1 and -1).
template <typename T>
KERASCNN_HOST_DEVICE T power(T a, T b) {
  if constexpr (is_float<T>) {
    return KERASCNN_STD pow(a, b);
  } else {
    if (b < T(0)) return a == T(1) ? T(1) : (a == static_cast<T>(-1) ? (b % 2 ? a : T(1)) : T(0));
    unsigned long long result = 1, factor = static_cast<unsigned long long>(a);
    for (auto n = static_cast<unsigned long long>(b); n != 0; n >>= 1) {
      if (n & 1) result *= factor;
      factor *= factor;
    }
    return static_cast<T>(result);
  }
}

// Two choices one after another: compilers vectorize these, but not a condition of two parts.
template <typename T>
KERASCNN_HOST_DEVICE T maximum(T a, T b) {
  const T larger = a >= b ? a : b;
  return a != a ? a : larger;
}

template <typename T>
KERASCNN_HOST_DEVICE T minimum(T a, T b) {
  const T smaller = a <= b ? a : b;
  return a != a ? a : smaller;
}

#define KERASCNN_RELATION(name, expression)  \
  template <typename T>                      \
  KERASCNN_HOST_DEVICE bool name(T a, T b) { \
    return expression;                       \
  }
KERASCNN_RELATION(equal, a == b)
KERASCNN_RELATION(not_equal, a != b)
KERASCNN_RELATION(less, a < b)
KERASCNN_RELATION(less_equal, a <= b)
KERASCNN_RELATION(greater, a > b)
KERASCNN_RELATION(greater_equal, a >= b)
KERASCNN_RELATION(logical_and, a != T(0) && b != T(0))
KERASCNN_RELATION(logical_or, a != T(0) || b != T(0))
#undef KERASCNN_RELATION

template <typename T>
KERASCNN_HOST_DEVICE bool logical_not(T a) {
  return a == T(0);
}

template <typename Condition, typename T>
KERASCNN_HOST_DEVICE T where(Condition condition, T a, T b) {
  return condition != Condition(0) ? a : b;
}

template <typename T>
KERASCNN_HOST_DEVICE T negative(T a) {
  if constexpr (is_float<T>) {
    return -a;
  } else {
    return subtract(T(0), a);
  }
}

template <typename T>
KERASCNN_HOST_DEVICE T absolute(T a) {
  if constexpr (is_float<T>) {
    return KERASCNN_MATH fabs(a);
  } else {
    return a < T(0) ? negative(a) : a;
  }
}

template <typename T>
KERASCNN_HOST_DEVICE T sign(T a) {
  return a > T(0) ? T(1) : (a < T(0) ? static_cast<T>(-1) : a);
}

template <typename T>
KERASCNN_HOST_DEVICE T reciprocal(T a) {
  return divide(T(1), a);
}

template <typename T>
KERASCNN_HOST_DEVICE T square(T a) {
  return multiply(a, a);
}

template <typename T>
KERASCNN_HOST_DEVICE T floor(T a) {
  if constexpr (is_float<T>) {
    return KERASCNN_MATH floor(a);
  } else {
    return a;
  }
}

// One function of analysis; T is float or double wherever a kernel is planned.
#define KERASCNN_ANALYTIC(name, expression) \
  template <typename T>                     \
  KERASCNN_HOST_DEVICE T name(T a) {        \
    if constexpr (is_float<T>) {            \
      return expression;                    \
    } else {                                \
      return T(0);                          \
    }                                       \
  }
KERASCNN_ANALYTIC(sqrt, KERASCNN_MATH sqrt(a))
KERASCNN_ANALYTIC(rsqrt, T(1) / sqrt(a))
KERASCNN_ANALYTIC(exp, KERASCNN_MATH exp(a))
KERASCNN_ANALYTIC(log, KERASCNN_MATH log(a))
KERASCNN_ANALYTIC(log1p, KERASCNN_MATH log1p(a))
KERASCNN_ANALYTIC(expm1, KERASCNN_MATH expm1(a))
KERASCNN_ANALYTIC(tanh, KERASCNN_MATH tanh(a))
KERASCNN_ANALYTIC(erf, KERASCNN_MATH erf(a))
KERASCNN_ANALYTIC(erfc, KERASCNN_MATH erfc(a))
KERASCNN_ANALYTIC(sin, KERASCNN_MATH sin(a))
KERASCNN_ANALYTIC(cos, KERASCNN_MATH cos(a))
KERASCNN_ANALYTIC(tan, KERASCNN_MATH tan(a))
KERASCNN_ANALYTIC(arcsin, KERASCNN_ARC(sin)(a))
KERASCNN_ANALYTIC(arccos, KERASCNN_ARC(cos)(a))
KERASCNN_ANALYTIC(arctan, KERASCNN_ARC(tan)(a))
KERASCNN_ANALYTIC(sinh, KERASCNN_MATH sinh(a))
KERASCNN_ANALYTIC(cosh, KERASCNN_MATH cosh(a))
KERASCNN_ANALYTIC(arcsinh, KERASCNN_ARC(sinh)(a))
KERASCNN_ANALYTIC(arccosh, KERASCNN_ARC(cosh)(a))
KERASCNN_ANALYTIC(arctanh, KERASCNN_ARC(tanh)(a))
KERASCNN_ANALYTIC(ceil, KERASCNN_MATH ceil(a))
KERASCNN_ANALYTIC(round, KERASCNN_MATH rint(a))  // halves to the even neighbour
#undef KERASCNN_ANALYTIC

// The inverse of erf. Source of the first approximation: M. Giles, "Approximating the erfinv
// function", GPU Computing Gems, 2011; its last digits in double come from Newton's method. w is
// -log(1 - a^2).
template <typename T>
KERASCNN_HOST_DEVICE T central_erfinv(T w) {
  constexpr float factors[] = {3.43273939e-07f, -3.5233877e-06f, -4.39150654e-06f, 0.00021858087f,
                               -0.00125372503f, -0.00417768164f, 0.246640727f,     1.50140941f};
  T y = T(2.81022636e-08f);
  for (float factor : factors) y = T(factor) + y * (w - T(2.5));
  return y;
}

template <typename T>
KERASCNN_HOST_DEVICE T outer_erfinv(T w) {
  constexpr float factors[] = {0.000100950558f, 0.00134934322f, -0.00367342844f, 0.00573950773f,
                               -0.0076224613f,  0.00943887047f, 1.00167406f,     2.83297682f};
  T y = T(-0.000200214257f);
  for (float factor : factors) y = T(factor) + y * (KERASCNN_MATH sqrt(w) - T(3));
  return y;
}

template <typename T>
KERASCNN_HOST_DEVICE T erfinv(T a) {
  if constexpr (is_float<T> && sizeof(T) == sizeof(float)) {
    // w is below 16, but for 1 itself. Both approximations are computed, for vectors.
    const T distance = T(1) - absolute(a);
    const T w = -log(distance * (T(1) + absolute(a)));
    const T central = central_erfinv(w), outer = outer_erfinv(w);
    const T y = (w < T(5) ? central : outer) * absolute(a);
    const T size = distance == T(0) ? w : y;
    return a < T(0) ? -size : (a >= T(0) ? size : a);
  } else if constexpr (is_float<T>) {
    const T distance = T(1) - absolute(a);
    if (distance == T(0)) return -a * log(T(0));
    const T w = -log(distance * (T(1) + absolute(a)));
    T y = T(0);
    if (w < T(5)) {
      y = central_erfinv(w);
    } else if (w < T(16)) {
      y = outer_erfinv(w);
    } else {
      // erfc(y) is close to exp(-y^2) / (y sqrt(pi)) here.
      y = KERASCNN_STD sqrt(w + T(0.69314718) - T(0.5) * log(T(3.14159265) * w)) / absolute(a);
    }
    y = y * absolute(a);
    for (int step = 0; step < 4; ++step) {
      const T error = y > T(0.5) ? erfc(y) - distance : absolute(a) - erf(y);
      y += error * T(0.88622692545275801365) * exp(y * y);  // sqrt(pi) / 2
    }
    return a < T(0) ? -y : (a >= T(0) ? y : a);
  } else {
    return T(0);
  }
}

template <typename T>
KERASCNN_HOST_DEVICE T arctan2(T a, T b) {
  if constexpr (is_float<T>) {
    return KERASCNN_ARC(tan2)(a, b);
  } else {
    return T(0);
  }
}

// Whether a quotient of this rest, which has the sign of the numerator, is above that rounded down.
// It has no jumps, for vectors.
template <typename T>
KERASCNN_HOST_DEVICE bool is_above_quotient(T rest, T b) {
  return (rest != T(0)) & ((rest < T(0)) != (b < T(0)));
}

template <typename T>
KERASCNN_HOST_DEVICE T mod_of_rest(T rest, T b) {
  const T other = rest + b;
  return is_above_quotient(rest, b) ? other : rest;
}

// b is not 0. a minus the rest is a multiple of b: what the division rounds off is less than a
// half.
template <typename T>
KERASCNN_HOST_DEVICE T floor_divide_of_rest(T a, T rest, T b) {
  return KERASCNN_MATH rint((a - rest) / b) - (is_above_quotient(rest, b) ? T(1) : T(0));
}

// What a division leaves over, with the sign of b. Integers: 0 where b is 0.
template <typename T>
KERASCNN_HOST_DEVICE T mod(T a, T b) {
  if constexpr (is_float<T>) {
    return mod_of_rest(KERASCNN_MATH fmod(a, b), b);
  } else {
    if (b == T(0) || b == static_cast<T>(-1)) return T(0);  // lowest % -1 overflows
    const T rest = static_cast<T>(a % b);
    return rest != T(0) && (rest < T(0)) != (b < T(0)) ? add(rest, b) : rest;
  }
}

// The quotient rounded down. Integers: 0 where b is 0.
template <typename T>
KERASCNN_HOST_DEVICE T floor_divide(T a, T b) {
  if constexpr (is_float<T>) {
    return b == T(0) ? a / b : floor_divide_of_rest(a, KERASCNN_MATH fmod(a, b), b);
  } else {
    if (b == T(0)) return T(0);
    if (b == static_cast<T>(-1)) return negative(a);
    return static_cast<T>(a / b - (is_above_quotient(static_cast<T>(a % b), b) ? 1 : 0));
  }
}

#define KERASCNN_OF_INTEGERS(name, expression) \
  template <typename T>                        \
  KERASCNN_HOST_DEVICE T name(T a, T b) {      \
    if constexpr (is_float<T>) {               \
      return T(0);                             \
    } else {                                   \
      return static_cast<T>(expression);       \
    }                                          \
  }
KERASCNN_OF_INTEGERS(bitwise_and, a& b)
KERASCNN_OF_INTEGERS(bitwise_or, a | b)
KERASCNN_OF_INTEGERS(bitwise_xor, a ^ b)
// Shifting by the type's width or more moves all bits out, which the bare shift leaves undefined.
KERASCNN_OF_INTEGERS(left_shift,
                     b<T(0) || b> T(63) ? 0ull : static_cast<unsigned long long>(a) << b)
KERASCNN_OF_INTEGERS(right_shift, static_cast<long long>(a) >> (b < T(0) || b > T(63) ? T(63) : b))
#undef KERASCNN_OF_INTEGERS

template <typename T>
KERASCNN_HOST_DEVICE T clip(T a, T low, T high) {
  return a < low ? low : (a > high ? high : a);
}

template <typename T>
KERASCNN_HOST_DEVICE bool isfinite(T a) {
  if constexpr (is_float<T>) {
    return a - a == T(0);
  } else {
    return true;
  }
}

// Number to bool is x != 0. Floating to integer truncates towards zero and saturates at the limits
// of the 64-bit integers; NaN gives 0: the bare conversion is undefined there, and devices differ.
template <typename To, typename From>
KERASCNN_HOST_DEVICE To cast(From a) {
  if constexpr (is_float<From> && !is_float<To>) {
    if constexpr (static_cast<To>(2) == static_cast<To>(1)) {
      return a != From(0);
    } else {
      if (!(a > From(-9223372036854775808.0))) {
        return a != a ? To(0) : static_cast<To>(-9223372036854775807LL - 1);
      }
      if (a >= From(9223372036854775808.0)) return static_cast<To>(9223372036854775807LL);
      return static_cast<To>(static_cast<long long>(a));
    }
  } else {
    return static_cast<To>(a);  // to bool: x != 0
  }
}

template <typename T>
KERASCNN_HOST_DEVICE T relu(T a) {
  return a <= T(0) ? T(0) : a;
}

template <typename T>
KERASCNN_HOST_DEVICE T leaky_relu(T a, T negative_slope) {
  return a > T(0) ? a : multiply(negative_slope, a);
}

template <typename T>
KERASCNN_HOST_DEVICE T clipped_relu(T a, T max_value) {
  return a <= T(0) ? T(0) : (a >= max_value ? max_value : a);
}

template <typename T>
KERASCNN_HOST_DEVICE T elu(T a, T alpha) {
  return a > T(0) ? a : multiply(alpha, expm1(a));
}

// a / b for 1 <= b, rounded less exactly on a GPU (2 units in the last place), where an exact
// division takes as long as all else in the functions that use it. The instruction takes subnormal
// numbers for zero; b is none, so the three instructions with which __fdividef scales them are
// spared.
template <typename T>
KERASCNN_HOST_DEVICE T quotient(T a, T b) {
#ifdef __CUDA_ARCH__
  if constexpr (is_float<T> && sizeof(T) == sizeof(float)) {
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(b));
    return a * reciprocal;
  }
#endif
  return divide(a, b);
}

// exp of a negative number only, so that nothing overflows.
template <typename T>
KERASCNN_HOST_DEVICE T sigmoid(T a) {
  const T e = exp(negative(absolute(a)));
  return quotient(a >= T(0) ? T(1) : (a < T(0) ? e : a), add(T(1), e));
}

template <typename T>
KERASCNN_HOST_DEVICE T silu(T a) {
  return multiply(a, sigmoid(a));
}

// The function has two parts, for loops that compilers vectorize one by one only.
template <typename T>
KERASCNN_HOST_DEVICE T softplus_tail(T a) {
  return exp(negative(absolute(a)));
}

template <typename T>
KERASCNN_HOST_DEVICE T softplus_of_tail(T a, T tail) {
  return add(maximum(a, T(0)), log1p(tail));
}

template <typename T>
KERASCNN_HOST_DEVICE T softplus(T a) {
  return softplus_of_tail(a, softplus_tail(a));
}

constexpr double kSqrtHalf = 0.70710678118654752440;          // sqrt(1/2)
constexpr double kInverseSqrtTwoPi = 0.39894228040143267794;  // 1/sqrt(2 pi)
constexpr double kSqrtTwoOverPi = 0.79788456080286535588;     // sqrt(2/pi)
constexpr double kGeluCubic = 0.044715;

// exp(-x^2 / 2). The normal distribution and its density are computed from the same one. On a GPU a
// float32 is raised as 2^(-(s x)^2), s = sqrt(log2(e) / 2), without exp's exact reduction of its
// argument: the rounding of that square, at most 2.2e-7 of it, is the error (2e-6 at |x| = 4, 1e-5
// at 10), and below 1.2e-38 the result is 0. gelu has a third fewer instructions so.
template <typename T>
KERASCNN_HOST_DEVICE T bell(T x) {
#ifdef __CUDA_ARCH__
  if constexpr (is_float<T> && sizeof(T) == sizeof(float)) {
    const float root = 0.8493218f * x;
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(-root * root));
    return power;
  }
#endif
  return exp(T(-0.5) * x * x);
}

// The probability that a normal variable is below x, of float32 to 7e-7 of it for |x| < 4, beside
// the error of bell. Its tail is bell(x) times a function that varies slowly: here a minimax
// polynomial of 1 / (1 + 0.3 |x|), made for this file, whose coefficients were rounded one after
// another.
template <typename T>
KERASCNN_HOST_DEVICE T normal_probability(T x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    const T t = quotient(T(1), T(1) + T(0.3) * absolute(x));
    T ratio = T(0.03552312031388283);
    ratio = ratio * t + T(-0.15657155215740204);
    ratio = ratio * t + T(0.20526635646820068);
    ratio = ratio * t + T(-0.052684485912323);
    ratio = ratio * t + T(0.12803411483764648);
    ratio = ratio * t + T(0.10007289797067642);
    ratio = ratio * t + T(0.1207285150885582);
    ratio = ratio * t + T(0.11963095515966415);
    const T tail = bell(x) * (ratio * t);
    return x < T(0) ? tail : T(1) - tail;
  } else {
    return T(0.5) * erfc(-x * T(kSqrtHalf));
  }
}

// With approximate != 0 this is the tanh formula of Hendrycks and Gimpel (arXiv:1606.08415),
// otherwise the exact one. Both are x times a probability, which is computed to full relative
// precision where it is small; 1 + erf and 1 + tanh would cancel there.
template <typename T>
KERASCNN_HOST_DEVICE T gelu(T a, T approximate) {
  if constexpr (is_float<T>) {
    if (approximate != T(0)) {
      return a * sigmoid(T(2 * kSqrtTwoOverPi) * (a + T(kGeluCubic) * a * a * a));
    }
    return a * normal_probability(a);
  } else {
    return T(0);
  }
}

// Gradients: g is the gradient of the result, y the activation's result, x its argument.
template <typename T>
KERASCNN_HOST_DEVICE T relu_grad(T g, T y) {
  return y > T(0) ? g : T(0);
}

template <typename T>
KERASCNN_HOST_DEVICE T leaky_relu_grad(T g, T y, T negative_slope) {
  return y > T(0) ? g : multiply(negative_slope, g);
}

template <typename T>
KERASCNN_HOST_DEVICE T clipped_relu_grad(T g, T y, T max_value) {
  return y > T(0) && y < max_value ? g : T(0);
}

template <typename T>
KERASCNN_HOST_DEVICE T elu_grad(T g, T y, T alpha) {
  return y > T(0) ? g : multiply(g, add(y, alpha));
}

template <typename T>
KERASCNN_HOST_DEVICE T sigmoid_grad(T g, T y) {
  return multiply(g, multiply(y, subtract(T(1), y)));
}

template <typename T>
KERASCNN_HOST_DEVICE T tanh_grad(T g, T y) {
  return multiply(g, subtract(T(1), multiply(y, y)));
}

template <typename T>
KERASCNN_HOST_DEVICE T silu_grad(T g, T x) {
  const T s = sigmoid(x);
  return multiply(g, multiply(s, add(T(1), multiply(x, subtract(T(1), s)))));
}

template <typename T>
KERASCNN_HOST_DEVICE T softplus_grad(T g, T x) {
  return multiply(g, sigmoid(x));
}

template <typename T>
KERASCNN_HOST_DEVICE T gelu_grad(T g, T x, T approximate) {
  if constexpr (is_float<T>) {
    if (approximate != T(0)) {
      const T s = sigmoid(T(2 * kSqrtTwoOverPi) * (x + T(kGeluCubic) * x * x * x));
      const T slope = T(2 * kSqrtTwoOverPi) * (T(1) + T(3 * kGeluCubic) * x * x);
      return g * s * (T(1) + x * (T(1) - s) * slope);
    }
    return g * (normal_probability(x) + x * T(kInverseSqrtTwoPi) * bell(x));
  } else {
    return T(0);
  }
}

#undef KERASCNN_ARC
#undef KERASCNN_MATH
#undef KERASCNN_STD

}  // namespace element

// What an element op gives: bool for comparisons, logic and isfinite, else the compute type.
template <ElementOp op, typename T>
using element_result_t = typename element::Choice<element_result_is_bool(op), bool, T>::type;

// Applies one op, known at compile time. Operands and parameters that the op does not have are
// ignored. `where` tests a against 0 and chooses b or c. cast is the identity here: see
// element::cast.
template <ElementOp op, typename T>
KERASCNN_HOST_DEVICE element_result_t<op, T> element_apply(T a, T b = T(), T c = T(), T p0 = T(),
                                                           T p1 = T()) {
  if constexpr (op == ElementOp::cast) {
    return a;
  }
  // The number of operands and of parameters says how an op is called.
#define KERASCNN_CALL_1_0(name) element::name(a)
#define KERASCNN_CALL_1_1(name) element::name(a, p0)
#define KERASCNN_CALL_1_2(name) element::name(a, p0, p1)
#define KERASCNN_CALL_2_0(name) element::name(a, b)
#define KERASCNN_CALL_2_1(name) element::name(a, b, p0)
#define KERASCNN_CALL_3_0(name) element::name(a, b, c)
#define KERASCNN_CASE(name, operands, parameters, kind)   \
  else if constexpr (op == ElementOp::name) {             \
    return KERASCNN_CALL_##operands##_##parameters(name); \
  }
  KERASCNN_ELEMENT_OP_LIST(KERASCNN_CASE)
#undef KERASCNN_CASE
#undef KERASCNN_CALL_1_0
#undef KERASCNN_CALL_1_1
#undef KERASCNN_CALL_1_2
#undef KERASCNN_CALL_2_0
#undef KERASCNN_CALL_2_1
#undef KERASCNN_CALL_3_0
}

// The same with the op known at run time; a bool result is 0 or 1 in T.
template <typename T>
KERASCNN_HOST_DEVICE T element_apply(ElementOp op, T a, T b, T c, T p0, T p1) {
  switch (op) {
#define KERASCNN_CASE(name, operands, parameters, kind) \
  case ElementOp::name:                                 \
    return static_cast<T>(element_apply<ElementOp::name, T>(a, b, c, p0, p1));
    KERASCNN_ELEMENT_OP_LIST(KERASCNN_CASE)
#undef KERASCNN_CASE
    default:
      return T();
  }
}

#ifdef KERASCNN_SIMD
}
#endif

}  // namespace kerascnn
