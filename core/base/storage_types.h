// What C++ type elements of a dtype are stored as, and calls with that type.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/base/dtype.h"
#include "core/base/half.h"

namespace kerascnn {

template <typename T>
struct Type {
  using type = T;
};

// The dtype of elements of storage type T.
template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return DType::Bool;
  if constexpr (std::is_same_v<T, uint8_t>) return DType::UInt8;
  if constexpr (std::is_same_v<T, int8_t>) return DType::Int8;
  if constexpr (std::is_same_v<T, int16_t>) return DType::Int16;
  if constexpr (std::is_same_v<T, int32_t>) return DType::Int32;
  if constexpr (std::is_same_v<T, int64_t>) return DType::Int64;
  if constexpr (std::is_same_v<T, Half>) return DType::Float16;
  if constexpr (std::is_same_v<T, BFloat16>) return DType::BFloat16;
  if constexpr (std::is_same_v<T, float>) return DType::Float32;
  if constexpr (std::is_same_v<T, double>) return DType::Float64;
}

// Calls function(Type<T>()) with the one of these types that `dtype` is stored as.
template <typename First, typename... Rest, typename Function>
auto with_type(DType dtype, Function&& function) {
  if constexpr (sizeof...(Rest) > 0) {
    if (dtype != dtype_of<First>()) return with_type<Rest...>(dtype, function);
  }
  return function(Type<First>());
}

// This does the same with all types.
template <typename Function>
auto with_storage(DType dtype, Function&& function) {
  return with_type<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, Half, BFloat16, float, double>(
      dtype, function);
}

}  // namespace kerascnn
