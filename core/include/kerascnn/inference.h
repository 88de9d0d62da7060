// Predictions of a saved model, without Python. docs/cpp.md describes it.
//
// In Python, once:
//
//   model.export("model.safetensors", include_graph=True)
//
// In C++:
//
//   const auto model = kerascnn::Model::load("model.safetensors", "cpu");
//   const std::vector<uint8_t> images = ...;  // 100 images of 28 x 28 x 1
//   const auto outputs = model.predict({{images, {100, 28, 28, 1}}});
//   const float* probabilities = outputs[0].data<float>();  // shape (100, 10)
//
// What goes wrong is a kerascnn::Error with a message for people (kerascnn/error.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kerascnn/dtype.h"
#include "kerascnn/error.h"

namespace kerascnn {

// The size of an axis that is not the same in each call, such as that of samples.
constexpr int64_t kOpenSize = -1;

// What an input or output of a model is.
struct ArraySpec {
  std::string name;
  DType dtype = DType::Float32;
  std::vector<int64_t> shape;  // with kOpenSize where an axis is open
};

// The dtype of elements of a C++ type. There is none for float16 and bfloat16: their elements are
// given and taken as `void*`.
template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, bool>) {
    return DType::Bool;
  } else if constexpr (std::is_same_v<T, float>) {
    return DType::Float32;
  } else if constexpr (std::is_same_v<T, double>) {
    return DType::Float64;
  } else {
    static_assert(std::is_integral_v<T> && !(std::is_unsigned_v<T> && sizeof(T) > 1),
                  "elements are bool, uint8_t, int8_t to int64_t, float or double");
    if constexpr (std::is_unsigned_v<T>) return DType::UInt8;
    if constexpr (sizeof(T) == 1) return DType::Int8;
    if constexpr (sizeof(T) == 2) return DType::Int16;
    return sizeof(T) == 4 ? DType::Int32 : DType::Int64;
  }
}

// The caller's memory on the host as an array: contiguous, in row-major order. It is
// not copied, so it has to live, and stay as it is, until the call that takes it returns.
class ArrayView {
 public:
  ArrayView(const void* data, DType dtype, std::vector<int64_t> shape)
      : data_(data), dtype_(dtype), shape_(std::move(shape)) {}
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  ArrayView(const T* data, std::vector<int64_t> shape)
      : ArrayView(static_cast<const void*>(data), dtype_of<T>(), std::move(shape)) {}
  // Throws ValueError where the shape has another number of elements than `data`.
  template <typename T>
  ArrayView(const std::vector<T>& data, std::vector<int64_t> shape)
      : ArrayView(data.data(), std::move(shape)) {
    static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no array of bools");
    check_count(static_cast<int64_t>(data.size()));
  }

  const void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }

 private:
  void check_count(int64_t count) const;

  const void* data_;
  DType dtype_;
  std::vector<int64_t> shape_;
};

// An array with memory of its own on the host, contiguous, in row-major order.
class Array {
 public:
  Array() = default;
  // Zeros. Throws ValueError for a negative size, OutOfMemoryError.
  Array(DType dtype, std::vector<int64_t> shape);

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t size() const;  // how many elements
  size_t bytes() const { return memory_.size(); }

  void* data() { return memory_.data(); }
  const void* data() const { return memory_.data(); }
  // Throws TypeError where the elements are of another type.
  template <typename T>
  const T* data() const {
    check_dtype(dtype_of<T>());
    return static_cast<const T*>(data());
  }

  operator ArrayView() const { return {data(), dtype_, shape_}; }

 private:
  void check_dtype(DType wanted) const;

  DType dtype_ = DType::Float32;
  std::vector<int64_t> shape_ = {0};
  std::vector<std::byte> memory_;
};

// A model that was exported with `include_graph=True`, on one device. Copies are the same model.
//
// All functions may be called by several threads at a time. Calls of predict() of one model take
// turns, since its kernels share memory; models that were loaded apart predict side by side.
class Model {
 public:
  // `device` is "cpu", "gpu" or "gpu:1". Of a GPU, the CUDA backend is opened by the first call
  // that names one.
  //
  // The file is not trusted: nothing of it is run, and sizes are compared with it before memory is
  // taken. Throws Error where it can't be read, ValueError for another, a damaged or a newer file,
  // DeviceError, and OutOfMemoryError.
  static Model load(const std::string& path, const std::string& device = "cpu");

  const std::vector<ArraySpec>& inputs() const;
  const std::vector<ArraySpec>& outputs() const;
  std::string device() const;  // "cpu", "cuda:0"

  // One array for each output, in the order of outputs(), from one for each of inputs(). Samples
  // are computed in batches of up to `batch_size`; where the model's first axis is not open, or an
  // output has no row for each sample, all of the input is one batch.
  //
  // A program is compiled for each new set of sizes, and the last 16 are kept: the first batch of a
  // size takes longer than those that follow.
  //
  // Numbers of other dtypes are cast on the device: images may be uint8 where the model takes
  // float32. Throws ValueError and TypeError, which name the input, for what does not fit.
  std::vector<Array> predict(const std::vector<ArrayView>& inputs, int64_t batch_size = 32) const;

 private:
  struct Impl;
  explicit Model(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<Impl> impl_;
};

}  // namespace kerascnn
