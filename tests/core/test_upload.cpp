// Copies that run beside a device's work. On the CPU they are done at once; the tests check which
// rows go where.
#include "core/tensor/upload.h"

#include <vector>

#include "check.h"
#include "core/base/error.h"

namespace kerascnn {
namespace {

Tensor rows(const std::vector<int32_t>& values) {
  return Tensor::from_host(values.data(),
                           {DType::Int32, {static_cast<int64_t>(values.size()) / 2, 2}}, {});
}

std::vector<int32_t> values_of(const Tensor& tensor) {
  std::vector<int32_t> values(tensor.size());
  tensor.copy_to_host(values.data());
  return values;
}

TEST(an_upload_copies_the_rows_that_it_is_told_and_no_others) {
  const Tensor source = rows({1, 2, 3, 4, 5, 6, 7, 8});
  const Tensor target = rows({0, 0, 0, 0, 0, 0, 0, 0});
  Upload upload{Device{}};
  CHECK(upload.sent());  // no copy is under way
  upload.send({target}, {source}, 1, 2);
  upload.wait();
  CHECK(upload.sent());
  CHECK((values_of(target) == std::vector<int32_t>{0, 0, 3, 4, 5, 6, 0, 0}));
  upload.mark_used();
  upload.send({target}, {source}, 0, 0);
  upload.send({target}, {source}, 3, 1);
  upload.wait();
  CHECK((values_of(target) == std::vector<int32_t>{0, 0, 3, 4, 5, 6, 7, 8}));
}

TEST(an_upload_keeps_the_memory_of_its_copies) {
  Upload upload{Device{}};
  Tensor target = rows({0, 0});
  std::weak_ptr<Storage> memory;
  {
    const Tensor source(empty_for_upload({DType::Int32, {1, 2}}, {}));
    memory = source.storage();
    upload.send({target}, {source}, 0, 1);
  }
  CHECK(!memory.expired());
  const Tensor other = rows({8, 9});
  upload.send({target}, {other}, 0, 1);  // no copy from the first array is under way any more
  CHECK(memory.expired());
  CHECK((values_of(target) == std::vector<int32_t>{8, 9}));
}

TEST(an_upload_refuses_what_does_not_fit) {
  Upload upload{Device{}};
  const Tensor target = rows({1, 2, 3, 4});
  CHECK_THROWS(ValueError, "upload: 1 targets for 0 sources", upload.send({target}, {}, 0, 1));
  CHECK_THROWS(ValueError, "upload: rows 1 to 3 of int32 (2, 2) don't exist",
               upload.send({target}, {rows({1, 2, 3, 4})}, 1, 2));
  CHECK_THROWS(ValueError, "upload: rows -1", upload.send({target}, {target.copy()}, -1, 1));
  CHECK_THROWS(ValueError, "the same dtypes and shapes",
               upload.send({target}, {rows({1, 2})}, 0, 1));
}

TEST(a_piece_of_memory_is_seen_as_another_dtype) {
  const Tensor memory = Tensor::zeros({DType::UInt8, {64}}, {});
  const Tensor piece = memory.piece({DType::Int32, {2, 3}}, 16);
  CHECK(piece.storage() == memory.storage());
  CHECK(static_cast<char*>(piece.data()) - static_cast<char*>(memory.data()) == 16);
  static_cast<int32_t*>(piece.data())[5] = -1;
  CHECK(memory.piece({DType::UInt8, {1}}, 16 + 23).spec().dtype == DType::UInt8);
  CHECK(static_cast<uint8_t*>(memory.data())[16 + 23] == 255);
  piece.fill_zero();
  CHECK((values_of(piece) == std::vector<int32_t>(6, 0)));
  CHECK_THROWS(ValueError, "piece: int32 (2, 3) from byte 44", memory.piece(piece.spec(), 44));
  CHECK_THROWS(ValueError, "piece:", memory.piece(piece.spec(), 2));
  CHECK_THROWS(ValueError, "piece:", memory.piece(piece.spec(), -4));
}

}  // namespace
}  // namespace kerascnn
