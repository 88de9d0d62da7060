// Blocks of elements in registers, which regions on a CPU are computed with: what an instruction of
// an element program does to a block, and how blocks come from tensors and go to them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/ops/element_program.h"

namespace kerascnn::cpu {

// A register's type: float for the 16-bit types and float32, double, int64 for integers and bool.
enum class RegisterKind : uint8_t { Float, Double, Integer };

inline RegisterKind register_kind(DType dtype) {
  if (dtype == DType::Float64) return RegisterKind::Double;
  return is_floating(dtype) ? RegisterKind::Float : RegisterKind::Integer;
}

template <typename Function>
void with_kind(DType dtype, const Function& function) {
  if (register_kind(dtype) == RegisterKind::Integer) return function(Type<int64_t>());
  with_type<double, float>(dtype, function);
}

template <typename T>
using register_of_t = std::conditional_t<is_floating_storage<T>, compute_t<T>, int64_t>;

// A result rounded or wrapped to `dtype` at once, as element_program.h asks.
template <typename Register, typename Value>
Register to_register(DType dtype, Value value) {
  const ElementValue made = make_element<HostRounding>(dtype, value);
  if constexpr (std::is_same_v<Register, float>) return made.f;
  if constexpr (std::is_same_v<Register, double>) return made.d;
  if constexpr (std::is_same_v<Register, int64_t>) return made.i;
}

// Integers may be loaded as floats, without a register of 64-bit integers in between.
template <typename T, typename Register>
void load_block(const T* from, int64_t step, int64_t count, Register* to) {
  const auto convert = [](T value) {
    return static_cast<Register>(static_cast<compute_t<T>>(value));
  };
  if (step == 0) {
    std::fill(to, to + count, convert(*from));
  } else if (step == 1) {
    if constexpr (is_narrow_float<T>) {
      widen(from, to, count);
    } else {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) to[i] = convert(from[i]);
    }
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = convert(from[i * step]);
  }
}

// Stores values in registers as elements of a tensor.
template <typename T>
void store_block(const register_of_t<T>* from, T* to, int64_t count) {
  if constexpr (is_narrow_float<T>) {
    narrow(from, to, count);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(from[i]);
  }
}

// Stores floats as integers, without a register of 64-bit integers in between. Those that 32 bits
// hold are converted by vectors.
template <typename T>
void store_integers(const float* from, T* to, int64_t count) {
  constexpr float kMost = 1 << 30;
  int32_t is_outside = 0;  // NaN is too
  for (int64_t i = 0; i < count; ++i) is_outside |= !(from[i] >= -kMost && from[i] <= kMost);
  if (is_outside == 0) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(static_cast<int32_t>(from[i]));
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(element::cast<int64_t>(from[i]));
  }
}

// One instruction on `count` elements; its operands are registers of the kind of its operands'
// dtype, `where`'s condition is one of integers. The result may have the memory of an operand of
// the same kind.
void run_element_block(const ElementInstruction& instruction, const void* const* operands, void* to,
                       int64_t count);

}  // namespace kerascnn::cpu
