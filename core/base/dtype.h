// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kerascnn {

enum class DType : uint8_t {
  Bool,
  UInt8,
  Int8,
  Int16,
  Int32,
  Int64,
  Float16,
  BFloat16,
  Float32,
  Float64,
};

size_t itemsize(DType dtype);
const char* dtype_name(DType dtype);           // "float32", "bool", ...
DType dtype_from_name(std::string_view name);  // throws TypeError listing what is supported

constexpr bool is_floating(DType dtype) { return dtype >= DType::Float16; }
constexpr bool is_integer(DType dtype) { return dtype > DType::Bool && dtype < DType::Float16; }

}  // namespace kerascnn
