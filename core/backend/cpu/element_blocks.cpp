#include "core/backend/cpu/element_blocks.h"

#include "core/backend/cpu/element_loops.h"

namespace kerascnn::cpu {

namespace {

template <typename T>
void round_block(float* values, int64_t count) {
  constexpr int64_t kBlock = 256;
  T narrow_values[kBlock];
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t some = std::min(kBlock, count - at);
    narrow(values + at, narrow_values, some);
    widen(narrow_values, values + at, some);
  }
}

// Rounds registers to a dtype of 16 bits; others hold what they should.
void round_to(DType dtype, float* values, int64_t count) {
  if (dtype == DType::Float16) round_block<Half>(values, count);
  if (dtype == DType::BFloat16) round_block<BFloat16>(values, count);
}

// The result may share the memory of an operand; the same element only, which ivdep promises.
template <ElementOp op, typename T, typename Result>
void apply_block(const ElementInstruction& instruction, const void* const* operands, Result* to,
                 int64_t count) {
  const T* a = static_cast<const T*>(operands[0]);
  const T* b = static_cast<const T*>(operands[1]);
  const T p0 = element::cast<T>(instruction.parameters[0]);
  const T p1 = element::cast<T>(instruction.parameters[1]);
  const DType dtype = instruction.result_dtype;
  constexpr bool is_unary = element_num_operands(op) == 1;
  if constexpr (std::is_same_v<T, float> && std::is_same_v<T, Result>) {
    if (const ElementLoop loop = element_loop(op); loop != nullptr) {
      loop(a, is_unary ? nullptr : b, to, count, p0, p1);
      return round_to(dtype, to, count);
    }
  }
  if constexpr (op == ElementOp::cast && std::is_same_v<T, int64_t>) {
    // Nothing to wrap or to round but what the conversion rounds: a loop for vectors.
    const bool is_exact = dtype == DType::Float32 || dtype == DType::Float64;
    if (instruction.operand_dtype == DType::Bool ||
        (is_exact && !std::is_same_v<Result, int64_t>)) {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<Result>(a[i]);
      return;
    }
  }
  if constexpr (std::is_same_v<T, float> && std::is_same_v<Result, int64_t> &&
                element_result_is_bool(op)) {
    return element_loops().conditions[static_cast<int>(op)](a, b, to, count);
  }
  if (std::is_same_v<T, Result> && is_floating(dtype)) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      to[i] = static_cast<Result>(element_apply<op, T>(a[i], is_unary ? T() : b[i], T(), p0, p1));
    }
    if constexpr (std::is_same_v<Result, float>) round_to(dtype, to, count);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      to[i] = to_register<Result>(dtype,
                                  element_apply<op, T>(a[i], is_unary ? T() : b[i], T(), p0, p1));
    }
  }
}

template <typename T>
void where_block(const void* const* operands, T* to, int64_t count) {
  const auto* condition = static_cast<const int64_t*>(operands[0]);
  const T* a = static_cast<const T*>(operands[1]);
  const T* b = static_cast<const T*>(operands[2]);
  if constexpr (std::is_same_v<T, float>) {
    return element_loops().where(condition, a, b, to, count);
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) to[i] = host_math::select(condition[i] != 0, a[i], b[i]);
}

}  // namespace

void run_element_block(const ElementInstruction& instruction, const void* const* operands, void* to,
                       int64_t count) {
  if (instruction.op == ElementOp::where) {
    return with_kind(instruction.result_dtype, [&]<typename T>(Type<T>) {
      where_block(operands, static_cast<T*>(to), count);
    });
  }
  with_kind(instruction.operand_dtype, [&]<typename T>(Type<T>) {
    dispatch_element_op(instruction.op, [&](auto constant) {
      constexpr ElementOp op = decltype(constant)::op;
      if constexpr (op == ElementOp::cast || element_result_is_bool(op)) {
        with_kind(instruction.result_dtype, [&]<typename R>(Type<R>) {
          apply_block<op, T, R>(instruction, operands, static_cast<R*>(to), count);
        });
      } else if constexpr (op != ElementOp::where) {
        apply_block<op, T, T>(instruction, operands, static_cast<T*>(to), count);
      }
    });
  });
}

}  // namespace kerascnn::cpu
