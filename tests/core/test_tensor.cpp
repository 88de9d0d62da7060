// Tensors on the CPU: memory, views, strides, copies, ops that run at once, variables.
#include <numeric>

#include "check.h"
#include "core/backend/backend.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "core/eager/eager.h"
#include "core/tensor/tensor.h"
#include "core/tensor/variable.h"

using namespace kerascnn;

namespace {

Tensor counting(const Shape& shape) {
  std::vector<float> values(num_elements(shape));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::from_host(values.data(), {DType::Float32, shape}, Device{});
}

std::vector<float> values_of(const Tensor& tensor) {
  std::vector<float> values(tensor.size());
  tensor.copy_to_host(values.data());
  return values;
}

}  // namespace

TEST(copies_of_a_tensor_share_storage) {
  const Tensor a = counting({2, 3});
  const Tensor b = a;
  CHECK_EQUAL(a.data(), b.data());
  CHECK_EQUAL(a.storage().use_count(), 2);
  CHECK_EQUAL(reinterpret_cast<uintptr_t>(a.data()) % 256, 0u);
  CHECK_EQUAL(a.bytes(), 24);
}

TEST(storage_returns_to_the_allocator) {
  Allocator& allocator = backend(Device{}).allocator();
  const int64_t before = allocator.stats().allocated;
  {
    const Tensor a = Tensor::empty({DType::Float64, {1000}}, Device{});
    CHECK(allocator.stats().allocated > before);
  }
  CHECK_EQUAL(allocator.stats().allocated, before);
}

TEST(scalars_of_every_dtype) {
  CHECK_EQUAL(*static_cast<bool*>(Tensor::scalar(DType::Bool, 0.5, Device{}).data()), true);
  CHECK_EQUAL(*static_cast<int16_t*>(Tensor::scalar(DType::Int16, int64_t{-7}, Device{}).data()),
              -7);
  CHECK_EQUAL(*static_cast<uint16_t*>(Tensor::scalar(DType::BFloat16, 1.0, Device{}).data()),
              0x3f80);
  CHECK_EQUAL(*static_cast<uint16_t*>(Tensor::scalar(DType::Float16, 1, Device{}).data()), 0x3c00);
  CHECK_EQUAL(*static_cast<double*>(Tensor::scalar(DType::Float64, 0.1, Device{}).data()), 0.1);
  const int64_t exact = (int64_t{1} << 53) + 1;  // a double can't hold this number
  CHECK_EQUAL(*static_cast<int64_t*>(Tensor::scalar(DType::Int64, exact, Device{}).data()), exact);
}

TEST(views_share_memory_and_check_the_size) {
  const Tensor a = counting({2, 6});
  const Tensor b = a.view({3, -1});
  CHECK(b.shape() == Shape({3, 4}));
  CHECK_EQUAL(b.data(), a.data());
  CHECK(a.view({2, 6}).shape() == a.shape());
  CHECK_THROWS(ValueError, "(5, -1)", a.view({5, -1}));
  CHECK_THROWS(ValueError, "12 elements", a.view({13}));
  CHECK_THROWS(ValueError, "(-1, -1)", a.view({-1, -1}));
  CHECK_THROWS(ValueError, "(-2, -6)", a.view({-2, -6}));
  const Tensor empty = Tensor::empty({DType::Float32, {0, 3}}, Device{});
  CHECK(empty.view({3, 0}).shape() == Shape({3, 0}));
  CHECK_THROWS(ValueError, "(0, -1)", empty.view({0, -1}));  // every extent would fit
}

TEST(strided_tensors_become_contiguous) {
  const Tensor a = counting({2, 3});
  const Tensor transposed(a.storage(), {DType::Float32, {3, 2}}, {1, 3});
  CHECK(!transposed.is_contiguous());
  CHECK(values_of(transposed) == std::vector<float>({0, 3, 1, 4, 2, 5}));
  CHECK(transposed.contiguous().is_contiguous());
  CHECK_THROWS(ValueError, "contiguous()", transposed.view({6}));
  const Tensor reversed(a.storage(), {DType::Float32, {6}}, {-1}, 5 * sizeof(float));
  CHECK(values_of(reversed) == std::vector<float>({5, 4, 3, 2, 1, 0}));
  const Tensor repeated(a.storage(), {DType::Float32, {2, 3}}, {0, 1});
  CHECK(values_of(repeated) == std::vector<float>({0, 1, 2, 0, 1, 2}));
  const Tensor columns(a.storage(), {DType::Float32, {2, 2}}, {3, 1}, sizeof(float));
  CHECK(values_of(columns) == std::vector<float>({1, 2, 4, 5}));
}

TEST(axes_of_one_element_may_have_any_stride) {
  const Tensor a = counting({4});
  const Tensor odd(a.storage(), {DType::Float32, {1, 4, 1}}, {77, 1, -5});
  CHECK(odd.is_contiguous());
  CHECK(odd.contiguous().strides() == Shape({4, 1, 1}));
  CHECK_EQUAL(odd.contiguous().data(), a.data());
}

TEST(kernels_get_aligned_memory) {
  const Tensor a = counting({5});
  const Tensor shifted(a.storage(), {DType::Float32, {4}}, {1}, sizeof(float));
  CHECK(shifted.is_contiguous());
  CHECK_EQUAL(reinterpret_cast<uintptr_t>(shifted.contiguous().data()) % 16, 0u);
  CHECK(values_of(shifted.contiguous()) == std::vector<float>({1, 2, 3, 4}));
  CHECK(values_of(apply("negative", {shifted})[0]) == std::vector<float>({-1, -2, -3, -4}));
}

TEST(copy_from_checks_its_target) {
  const Tensor a = counting({2, 2});
  const Tensor b = Tensor::zeros({DType::Float32, {2, 2}}, Device{});
  CHECK(values_of(b) == std::vector<float>({0, 0, 0, 0}));
  b.copy_from(a);
  CHECK(values_of(b) == values_of(a));
  CHECK_THROWS(ValueError, "float32 (2, 2)", b.copy_from(counting({4})));
  const Tensor read_only(a.storage(), a.spec(), a.strides(), 0, true);
  CHECK_THROWS(ValueError, "read-only", read_only.copy_from(b));
  const Tensor strided(a.storage(), {DType::Float32, {2, 2}}, {1, 2});
  CHECK_THROWS(ValueError, "contiguous", strided.copy_from(b));
}

TEST(eager_ops_run_and_plan_once) {
  const Tensor a = counting({3});
  const int64_t launches = backend(Device{}).launch_stats().kernel_launches;
  CHECK(values_of(apply("add", {a, a})[0]) == std::vector<float>({0, 2, 4}));
  CHECK(values_of(apply("add", {a, a})[0]) == std::vector<float>({0, 2, 4}));
  CHECK_EQUAL(backend(Device{}).launch_stats().kernel_launches, launches + 2);
}

TEST(eager_ops_take_strided_and_empty_inputs) {
  const Tensor a = counting({2, 3});
  const Tensor transposed(a.storage(), {DType::Float32, {3, 2}}, {1, 3});
  CHECK(values_of(apply("negative", {transposed})[0]) ==
        std::vector<float>({0, -3, -1, -4, -2, -5}));
  const Tensor empty = Tensor::empty({DType::Float32, {0, 3}}, Device{});
  CHECK(apply("negative", {empty})[0].shape() == Shape({0, 3}));
}

TEST(view_ops_share_memory) {
  const Tensor a = counting({2, 3});
  const Tensor b = apply("reshape", {a}, {{"shape", std::vector<int64_t>{6}}})[0];
  CHECK_EQUAL(b.data(), a.data());
}

TEST(eager_errors_name_the_op) {
  const Tensor a = counting({2, 3});
  CHECK_THROWS(ValueError, "add: ", apply("add", {a, counting({2, 4})}));
  CHECK_THROWS(ValueError, "softmax: attribute \"axis\" is missing", apply("softmax", {a}));
  CHECK_THROWS(ValueError, "no_such_op", apply("no_such_op", {a}));
  CHECK_THROWS(ValueError, "add", apply("add", {}));
}

TEST(variables_are_assigned_in_place) {
  const Variable variable("kernel", counting({2, 2}));
  const void* memory = variable.value().data();
  variable.assign(Tensor::zeros({DType::Float32, {2, 2}}, Device{}));
  CHECK(values_of(variable.value()) == std::vector<float>({0, 0, 0, 0}));
  CHECK_EQUAL(variable.value().data(), memory);
  CHECK_THROWS(ValueError, "variable kernel", variable.assign(counting({4})));
}

TEST(missing_gpus_are_explained) {
  const std::vector<DeviceStatus> devices = list_devices();
  CHECK_EQUAL(device_name(devices[0].device), "cpu");
  CHECK(devices[0].usable && devices.size() > 1);
  CHECK(!devices[1].description.empty());
  CHECK_THROWS(DeviceError, "cuda:99", backend(Device{DeviceType::Cuda, 99}));
  if (!devices[1].usable) {
    CHECK_THROWS(DeviceError, devices[1].description, Tensor::empty({}, devices[1].device));
  }
}
