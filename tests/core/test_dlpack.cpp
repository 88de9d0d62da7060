// DLPack structures are imported and exported as a library in C would do it.
#include <cstring>
#include <numeric>

#include "check.h"
#include "core/tensor/dlpack.h"
#include "core/tensor/give_back.h"

using namespace kerascnn;

namespace {

// This stands for another library's array of floats.
struct Foreign {
  std::vector<float> values = std::vector<float>(13);
  std::vector<int64_t> shape = {3, 4};
  int released = 0;
  DLTensor view;

  Foreign() {
    std::iota(values.begin(), values.end(), 0.0f);
    view = {values.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape.data(), nullptr, 0};
  }
  Tensor take() {
    return tensor_from_dlpack(view, false, [this] { ++released; });
  }
};

std::vector<float> values_of(const Tensor& tensor) {
  std::vector<float> values(tensor.size());
  tensor.copy_to_host(values.data());
  return values;
}

}  // namespace

TEST(imported_memory_is_shared_and_given_back_once) {
  Foreign foreign;
  {
    const Tensor tensor = foreign.take();
    const Tensor view = tensor.view({12});
    CHECK_EQUAL(tensor.data(), static_cast<void*>(foreign.values.data()));
    CHECK(tensor.shape() == Shape({3, 4}) && tensor.is_contiguous());
    CHECK_EQUAL(foreign.released, 0);
  }
  CHECK_EQUAL(foreign.released, 1);
}

TEST(imported_strides_and_offsets_are_followed) {
  Foreign foreign;
  std::vector<int64_t> strides = {1, 3};
  foreign.view.strides = strides.data();
  CHECK(values_of(foreign.take()) == std::vector<float>({0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11}));
  foreign.view.strides = nullptr;
  foreign.view.byte_offset = sizeof(float);
  CHECK_EQUAL(values_of(foreign.take())[0], 1.0f);
  std::vector<int64_t> backwards = {-4, -1};
  foreign.view.strides = backwards.data();
  foreign.view.byte_offset = 11 * sizeof(float);
  CHECK_EQUAL(values_of(foreign.take())[0], 11.0f);
  CHECK_EQUAL(values_of(foreign.take())[11], 0.0f);
  CHECK_EQUAL(foreign.released, 4);
}

TEST(unaligned_elements_are_copied) {
  alignas(8) char bytes[13 * sizeof(float) + 1];
  Foreign foreign;
  std::memcpy(bytes + 1, foreign.values.data(), 13 * sizeof(float));
  foreign.view.data = bytes;
  foreign.view.byte_offset = 1;
  const Tensor tensor = foreign.take();
  CHECK_EQUAL(foreign.released, 1);
  CHECK(values_of(tensor) == std::vector<float>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
}

TEST(refused_imports_stay_with_the_producer) {
  Foreign foreign;
  foreign.view.dtype = {kDLComplex, 64, 1};
  CHECK_THROWS(TypeError, "complex64", foreign.take());
  foreign.view.dtype = {kDLFloat, 32, 4};
  CHECK_THROWS(TypeError, "float32x4", foreign.take());
  foreign.view.dtype = {kDLUInt, 16, 1};
  CHECK_THROWS(TypeError, "uint16", foreign.take());
  foreign.view.dtype = {kDLFloat, 32, 1};
  foreign.view.device = {10, 0};
  CHECK_THROWS(BufferError, "device type 10", foreign.take());
  CHECK_EQUAL(foreign.released, 0);
  CHECK_THROWS(BufferError, "2.0", check_dlpack_version({2, 0}));
}

TEST(scalars_and_empty_arrays_are_imported) {
  Foreign foreign;
  foreign.view.ndim = 0;
  foreign.view.shape = nullptr;
  CHECK(foreign.take().shape() == Shape());
  foreign.view.ndim = 2;
  foreign.shape = {0, 4};
  foreign.view.shape = foreign.shape.data();
  foreign.view.data = nullptr;
  CHECK(foreign.take().contiguous().shape() == Shape({0, 4}));
}

TEST(exports_keep_the_storage_alive) {
  Foreign foreign;
  DLManagedTensorVersioned* managed = make_dlpack_versioned(prepare_dlpack(foreign.take(), {}));
  CHECK_EQUAL(foreign.released, 0);
  CHECK_EQUAL(managed->version.major, 1u);
  CHECK_EQUAL(managed->flags, 0u);
  CHECK_EQUAL(managed->dl_tensor.data, static_cast<void*>(foreign.values.data()));
  CHECK_EQUAL(managed->dl_tensor.strides[0], 4);
  managed->deleter(managed);
  CHECK_EQUAL(foreign.released, 1);
}

TEST(exports_carry_every_dtype) {
  const auto code_of = [](DType dtype) {
    DLManagedTensor* managed =
        make_dlpack(prepare_dlpack(Tensor::zeros({dtype, {2}}, Device{}), {}));
    const DLDataType type = managed->dl_tensor.dtype;
    managed->deleter(managed);
    return std::pair<int, int>(type.code, type.bits);
  };
  CHECK(code_of(DType::Bool) == std::pair(6, 8));
  CHECK(code_of(DType::UInt8) == std::pair(1, 8));
  CHECK(code_of(DType::Int64) == std::pair(0, 64));
  CHECK(code_of(DType::Float16) == std::pair(2, 16));
  CHECK(code_of(DType::BFloat16) == std::pair(4, 16));
  CHECK(code_of(DType::Float64) == std::pair(2, 64));
}

TEST(read_only_memory_says_so) {
  Foreign foreign;
  const Tensor tensor = tensor_from_dlpack(foreign.view, true, {});
  CHECK(tensor.read_only());
  CHECK_THROWS(BufferError, "read-only", make_dlpack(prepare_dlpack(tensor, {})));
  DLManagedTensorVersioned* managed = make_dlpack_versioned(prepare_dlpack(tensor, {}));
  CHECK_EQUAL(managed->flags, kDLPackReadOnly);
  managed->deleter(managed);
  managed =
      make_dlpack_versioned(prepare_dlpack(tensor, {.stream = {}, .device = {}, .copy = true}));
  CHECK_EQUAL(managed->flags, kDLPackCopied);
  CHECK(managed->dl_tensor.data != tensor.data());
  managed->deleter(managed);
}

TEST(requests_that_cannot_be_met_are_refused) {
  const Tensor tensor = Tensor::zeros({DType::Float32, {2}}, Device{});
  CHECK_THROWS(BufferError, "(2, 0)",
               prepare_dlpack(tensor, {.stream = {}, .device = DLDevice{kDLCUDA, 0}, .copy = {}}));
  CHECK_THROWS(ValueError, "no streams",
               prepare_dlpack(tensor, {.stream = 2, .device = {}, .copy = {}}));
  CHECK_EQUAL(prepare_dlpack(tensor, {.stream = -1, .device = {}, .copy = false}).tensor.data(),
              tensor.data());
}

TEST(arrays_that_cannot_be_are_refused) {
  Foreign foreign;
  foreign.view.data = nullptr;
  CHECK_THROWS(BufferError, "that can't be", foreign.take());
  foreign.shape[1] = 0;
  CHECK_EQUAL(foreign.take().size(), 0);
  foreign.shape[1] = -1;
  CHECK_THROWS(BufferError, "that can't be", foreign.take());
  foreign.view.shape = nullptr;
  CHECK_THROWS(BufferError, "that can't be", foreign.take());
  CHECK_EQUAL(foreign.released, 1);
}

TEST(copies_can_be_forbidden_and_asked_for) {
  alignas(8) char bytes[13 * sizeof(float) + 1] = {};
  Foreign foreign;
  const Tensor shared = adopt(foreign.take(), std::nullopt, false);
  CHECK_EQUAL(shared.data(), static_cast<void*>(foreign.values.data()));
  CHECK(adopt(shared, Device{}, true).data() != shared.data());
  foreign.view.data = bytes + 1;
  CHECK_THROWS(BufferError, "can't be used without a copy",
               tensor_from_dlpack(foreign.view, false, {}, /*may_copy=*/false));
}

TEST(it_is_known_who_may_write) {
  const Tensor own = Tensor::zeros({DType::Float32, {2}}, Device{});
  CHECK(!own.storage()->is_exposed());
  DLManagedTensor* managed = make_dlpack(prepare_dlpack(own, {}));
  CHECK(own.storage()->is_exposed());
  managed->deleter(managed);
  CHECK(!own.storage()->is_exposed());

  Foreign foreign;
  CHECK(foreign.take().storage()->is_exposed());
  const Tensor read_only = tensor_from_dlpack(foreign.view, true, {});
  CHECK(!read_only.storage()->is_exposed());
  DLManagedTensorVersioned* versioned = make_dlpack_versioned(prepare_dlpack(read_only, {}));
  CHECK(!read_only.storage()->is_exposed());
  versioned->deleter(versioned);
}

TEST(what_a_tape_needs_is_handed_over_as_a_copy) {
  const Tensor tensor = Tensor::zeros({DType::Float32, {2}}, Device{});
  const StorageUse needed(tensor.storage(), StorageUse::Kind::Needs);
  DLPackExport exported = prepare_dlpack(tensor, {});
  CHECK(exported.copied && !exported.read_only && exported.tensor.data() != tensor.data());
  exported = prepare_dlpack(tensor, {{}, {}, false});
  CHECK(!exported.copied && exported.read_only && exported.tensor.data() == tensor.data());
  CHECK_THROWS(BufferError, "a tape needs this tensor", make_dlpack(exported));
  DLManagedTensorVersioned* managed = make_dlpack_versioned(exported);
  CHECK_EQUAL(managed->flags, kDLPackReadOnly);
  managed->deleter(managed);
}

TEST(memory_goes_back_once_the_work_on_it_is_done) {
  int released = 0;
  give_back_after_work(Device{}, 8, [&] { ++released; });
  give_back_after_work(Device{}, int64_t{1} << 40, [&] { ++released; });
  give_back_finished();
  CHECK_EQUAL(released, 2);  // a CPU has finished its work when a call returns
}
