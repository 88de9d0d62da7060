// The loops of element_loops.h, compiled once for each instruction set (see simd.h, which has to
// come first: it names the set that element_functions.h is compiled for).
#pragma once

// clang-format off
#include "core/backend/cpu/simd.h"
// clang-format on

#include "core/backend/cpu/element_loops.h"
#include "core/ops/element_functions.h"

namespace kerascnn::cpu::KERASCNN_SIMD {

namespace {

constexpr bool has_element_loop(ElementOp op) {
  switch (op) {
    case ElementOp::power:  // calls the library for each element
      return false;
    default:
      return element_kind(op) == ElementKind::Number || element_kind(op) == ElementKind::Floating;
  }
}

template <ElementOp op>
KERASCNN_INLINE void run_each(const float* a, const float* b, float* out, int64_t count, float p0,
                              float p1) {
  constexpr bool is_unary = element_num_operands(op) == 1;
  // The result may share the memory of an operand, but only the same element, which ivdep promises.
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    out[i] = element_apply<op, float>(a[i], is_unary ? 0.0f : b[i], 0.0f, p0, p1);
  }
}

void run_softplus(const float* a, float* out, int64_t count) {
  constexpr int64_t kBlock = 256;
  float tails[kBlock];
  for (; count > 0; a += kBlock, out += kBlock, count -= kBlock) {
    const int64_t some = count < kBlock ? count : kBlock;
    for (int64_t i = 0; i < some; ++i) tails[i] = element::softplus_tail(a[i]);
#pragma GCC ivdep
    for (int64_t i = 0; i < some; ++i) out[i] = element::softplus_of_tail(a[i], tails[i]);
  }
}

// Ops that compute most elements by arithmetic, and ask the library for those that are far from the
// others: `is_far` tells whether an element is one of them, `apply` is the op where it is none.
template <ElementOp op>
struct NearElements {
  static constexpr bool exists = false;
};

#define KERASCNN_NEAR_ANGLE(name)                                                             \
  template <>                                                                                 \
  struct NearElements<ElementOp::name> {                                                      \
    static constexpr bool exists = true;                                                      \
    static bool is_far(float a, float) { return host_math::fabs(a) > host_math::kMostAngle; } \
    static float apply(float a, float) { return host_math::near_##name(a); }                  \
  };
KERASCNN_NEAR_ANGLE(sin)
KERASCNN_NEAR_ANGLE(cos)
KERASCNN_NEAR_ANGLE(tan)
#undef KERASCNN_NEAR_ANGLE

template <>
struct NearElements<ElementOp::mod> {
  static constexpr bool exists = true;
  static bool is_far(float a, float b) { return !host_math::is_near(a, b); }
  static float apply(float a, float b) {
    return element::mod_of_rest(host_math::near_remainder(a, b), b);
  }
};

template <>
struct NearElements<ElementOp::floor_divide> {
  static constexpr bool exists = true;
  static bool is_far(float a, float b) { return !host_math::is_near(a, b); }
  static float apply(float a, float b) {
    return element::floor_divide_of_rest(a, host_math::near_remainder(a, b), b);
  }
};

template <ElementOp op>
void run_near(const float* a, const float* b, float* out, int64_t count) {
  using Near = NearElements<op>;
  constexpr bool is_unary = element_num_operands(op) == 1;
  constexpr int64_t kBlock = 64;  // few elements wait for a far one
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = count - begin < kBlock ? count : begin + kBlock;
    int32_t far = 0;
    for (int64_t i = begin; i < end; ++i) far |= Near::is_far(a[i], is_unary ? 0.0f : b[i]);
    if (far != 0) {
      for (int64_t i = begin; i < end; ++i) {
        out[i] = element_apply<op, float>(a[i], is_unary ? 0.0f : b[i]);
      }
      continue;
    }
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) out[i] = Near::apply(a[i], is_unary ? 0.0f : b[i]);
  }
}

template <ElementOp op>
void run_loop(const float* a, const float* b, float* out, int64_t count, float p0, float p1) {
  if constexpr (op == ElementOp::gelu || op == ElementOp::gelu_grad) {
    // This computes one of its two formulas rather than both for each element.
    if (p0 != 0.0f) return run_each<op>(a, b, out, count, 1.0f, p1);
    p0 = 0.0f;
  }
  if constexpr (op == ElementOp::softplus) return run_softplus(a, out, count);
  if constexpr (NearElements<op>::exists) return run_near<op>(a, b, out, count);
  run_each<op>(a, b, out, count, p0, p1);
}

template <ElementOp op>
void run_condition(const float* a, const float* b, int64_t* out, int64_t count) {
  constexpr bool is_unary = element_num_operands(op) == 1;
  for (int64_t i = 0; i < count; ++i) {
    out[i] = element_apply<op, float>(a[i], is_unary ? 0.0f : b[i]);
  }
}

void run_where(const int64_t* condition, const float* a, const float* b, float* out,
               int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) out[i] = host_math::select(condition[i] != 0, a[i], b[i]);
}

template <ElementOp op, bool kFirst>
void run_rows(const float* matrix, const float* numbers, float* out, int64_t rows,
              int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    const float number = numbers[r];
    const float* const from = matrix + r * columns;
    float* const to = out + r * columns;
#pragma GCC ivdep
    for (int64_t i = 0; i < columns; ++i) {
      to[i] = element_apply<op, float>(kFirst ? number : from[i], kFirst ? from[i] : number);
    }
  }
}

template <ElementOp op, bool kFirst>
constexpr RowLoop make_row_loop() {
  if constexpr (op == ElementOp::add || op == ElementOp::subtract || op == ElementOp::multiply ||
                op == ElementOp::divide) {
    return run_rows<op, kFirst>;
  } else {
    return nullptr;
  }
}

template <ElementOp op>
constexpr ConditionLoop make_condition_loop() {
  if constexpr (element_result_is_bool(op)) {
    return run_condition<op>;
  } else {
    return nullptr;
  }
}

template <ElementOp op>
constexpr ElementLoop make_element_loop() {
  if constexpr (has_element_loop(op)) {
    return run_loop<op>;
  } else {
    return nullptr;
  }
}

}  // namespace

#define KERASCNN_ELEMENT(name, operands, parameters, kind) make_element_loop<ElementOp::name>(),
#define KERASCNN_CONDITION(name, operands, parameters, kind) make_condition_loop<ElementOp::name>(),
#define KERASCNN_ROWS(name, operands, parameters, kind) make_row_loop<ElementOp::name, false>(),
#define KERASCNN_ROWS_FIRST(name, operands, parameters, kind) \
  make_row_loop<ElementOp::name, true>(),
const ElementLoops kElementLoops = {
    .of = {KERASCNN_ELEMENT_OP_LIST(KERASCNN_ELEMENT)},
    .with_rows = {KERASCNN_ELEMENT_OP_LIST(KERASCNN_ROWS)},
    .with_rows_first = {KERASCNN_ELEMENT_OP_LIST(KERASCNN_ROWS_FIRST)},
    .conditions = {KERASCNN_ELEMENT_OP_LIST(KERASCNN_CONDITION)},
    .where = run_where,
};
#undef KERASCNN_ROWS_FIRST
#undef KERASCNN_ROWS
#undef KERASCNN_CONDITION
#undef KERASCNN_ELEMENT

}  // namespace kerascnn::cpu::KERASCNN_SIMD
