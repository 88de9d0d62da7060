// Element types on the GPU: storage types, the types computed in, and host-side dispatch from a
// DType.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <string_view>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/ops/element_functions.h"

namespace kerascnn::cuda {

// The type a kernel computes in: float for the 16-bit types, otherwise the type itself.
template <typename T>
struct Compute {
  using type = T;
};
template <>
struct Compute<__half> {
  using type = float;
};
template <>
struct Compute<__nv_bfloat16> {
  using type = float;
};
template <typename T>
using compute_t = typename Compute<T>::type;

template <typename T>
__device__ __forceinline__ compute_t<T> load(T value) {
  return value;
}
template <>
__device__ __forceinline__ float load(__half value) {
  return __half2float(value);
}
template <>
__device__ __forceinline__ float load(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

template <typename T>
__device__ __forceinline__ T store(compute_t<T> value) {
  return value;
}
template <>
__device__ __forceinline__ __half store<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ __forceinline__ __nv_bfloat16 store<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// N elements that move in one access; pointers must be aligned to their total size.
template <typename T, int N>
struct alignas(sizeof(T) * N) Vector {
  T values[N];
};

template <typename T>
struct Type {
  using type = T;
};

[[noreturn]] inline void unsupported_dtype(std::string_view op, DType dtype) {
  throw TypeError(message(op, ": dtype ", dtype_name(dtype),
                          " is not supported on CUDA; cast to a supported dtype first"));
}

// Calls function(Type<T>()) with the storage type of `dtype`.
template <typename Function>
decltype(auto) dispatch_floating(std::string_view op, DType dtype, Function&& function) {
  switch (dtype) {
    case DType::Float16:
      return function(Type<__half>());
    case DType::BFloat16:
      return function(Type<__nv_bfloat16>());
    case DType::Float32:
      return function(Type<float>());
    case DType::Float64:
      return function(Type<double>());
    default:
      unsupported_dtype(op, dtype);
  }
}

template <typename Function>
decltype(auto) dispatch_number(std::string_view op, DType dtype, Function&& function) {
  switch (dtype) {
    case DType::UInt8:
      return function(Type<uint8_t>());
    case DType::Int8:
      return function(Type<int8_t>());
    case DType::Int16:
      return function(Type<int16_t>());
    case DType::Int32:
      return function(Type<int32_t>());
    case DType::Int64:
      return function(Type<int64_t>());
    default:
      return dispatch_floating(op, dtype, function);
  }
}

template <typename Function>
decltype(auto) dispatch_index(std::string_view op, DType dtype, Function&& function) {
  switch (dtype) {
    case DType::UInt8:
      return function(Type<uint8_t>());
    case DType::Int8:
      return function(Type<int8_t>());
    case DType::Int16:
      return function(Type<int16_t>());
    case DType::Int32:
      return function(Type<int32_t>());
    case DType::Int64:
      return function(Type<int64_t>());
    default:
      unsupported_dtype(op, dtype);
  }
}

// For ops that only move elements: calls it with the unsigned type of the element's size.
template <typename Function>
decltype(auto) dispatch_size(DType dtype, Function&& function) {
  switch (itemsize(dtype)) {
    case 1:
      return function(Type<uint8_t>());
    case 2:
      return function(Type<uint16_t>());
    case 4:
      return function(Type<uint32_t>());
    default:
      return function(Type<uint64_t>());
  }
}

}  // namespace kerascnn::cuda
