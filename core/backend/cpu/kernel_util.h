// What every CPU kernel file uses: kernels made of functions, dispatch on dtypes, typed access to
// buffers.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "core/backend/backend.h"
#include "core/base/storage_types.h"

namespace kerascnn::cpu {

template <typename Run>
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(std::string description, int64_t workspace, Run run)
      : description_(std::move(description)), workspace_(workspace), run_(std::move(run)) {}

  void run(const KernelArgs& args) override { run_(args); }
  int64_t workspace_bytes() const override { return workspace_; }
  std::string description() const override { return description_; }

 private:
  std::string description_;
  int64_t workspace_;
  Run run_;
};

// `run(const KernelArgs&)` must not allocate: whatever it needs is captured or in the workspace.
template <typename Run>
std::unique_ptr<Kernel> make_kernel(std::string description, Run run, int64_t workspace = 0) {
  return std::make_unique<FunctionKernel<Run>>(std::move(description), workspace, std::move(run));
}

// The 16-bit types, which are computed in float.
template <typename T>
constexpr bool is_narrow_float = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

template <typename T>
constexpr bool is_floating_storage = std::is_floating_point_v<T> || is_narrow_float<T>;

// The type in which elements of storage type T are computed.
template <typename T>
using compute_t = std::conditional_t<is_narrow_float<T>, float, T>;

constexpr bool is_narrow(DType dtype) {
  return dtype == DType::Float16 || dtype == DType::BFloat16;
}

template <typename Function>
auto with_floating(DType dtype, Function&& function) {
  return with_type<Half, BFloat16, float, double>(dtype, function);
}

[[noreturn]] void throw_unsupported_dtype(const PlanRequest& request, DType dtype);

// with_type(), but throws TypeError that names the op where the dtype is none of these.
template <typename... T, typename Function>
auto dispatch(const PlanRequest& request, DType dtype, Function&& function) {
  if (((dtype != dtype_of<T>()) && ...)) throw_unsupported_dtype(request, dtype);
  return with_type<T...>(dtype, function);
}

template <typename Function>
auto dispatch_floating(const PlanRequest& request, DType dtype, Function&& function) {
  return dispatch<Half, BFloat16, float, double>(request, dtype, function);
}

template <typename Function>
auto dispatch_integer(const PlanRequest& request, DType dtype, Function&& function) {
  return dispatch<uint8_t, int8_t, int16_t, int32_t, int64_t>(request, dtype, function);
}

template <typename Function>
auto dispatch_number(const PlanRequest& request, DType dtype, Function&& function) {
  return is_floating(dtype) ? dispatch_floating(request, dtype, function)
                            : dispatch_integer(request, dtype, function);
}

template <typename Function>
auto dispatch_any(const PlanRequest& request, DType dtype, Function&& function) {
  return dtype == DType::Bool ? function(Type<bool>()) : dispatch_number(request, dtype, function);
}

// Element i of an array of integers. Kernels that read one for each row take this, because one for
// each dtype of the integers would be many times the code.
using IntegerReader = int64_t (*)(const void* values, int64_t i);
IntegerReader integer_reader(const PlanRequest& request, DType dtype);

// For kernels that only move elements: calls function(Type<uintN_t>()) of the element's size.
template <typename Function>
auto dispatch_size(DType dtype, Function&& function) {
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

template <typename T>
const T* input(const KernelArgs& args, size_t index) {
  return static_cast<const T*>(args.inputs[index]);
}

template <typename T>
T* output(const KernelArgs& args, size_t index) {
  return static_cast<T*>(args.outputs[index]);
}

// Null where the call has no such output, or nobody reads it.
template <typename T>
T* optional_output(const KernelArgs& args, size_t index) {
  return index < args.outputs.size() ? output<T>(args, index) : nullptr;
}

inline int64_t size_of(const TensorSpec& spec) { return num_elements(spec.shape); }

// Bytes of a number.
constexpr int64_t kFloat = sizeof(float);

// Workspaces are cut into pieces of this alignment.
constexpr int64_t kAlignment = 64;
inline int64_t align_up(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace kerascnn::cpu
