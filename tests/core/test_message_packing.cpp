// Which tensors of a message are brought together, for what sends each tensor by itself.
#include "check.h"
#include "core/backend/message_packing.h"

namespace kerascnn {
namespace {

std::vector<size_t> tensors_of(const MessagePacking& packing) {
  std::vector<size_t> tensors;
  for (const PackedPlace& packed : packing.packed) tensors.push_back(packed.tensor);
  return tensors;
}

TEST(small_tensors_of_each_group_are_brought_together) {
  const int64_t large = kSmallTensorBytes / 4 + 1;
  const std::vector<int64_t> sizes = {3, large, 5, 0, 2, large - 1, 7};
  const std::vector<int64_t> groups = {1, 1, 0, 0, 1, 2, 0};
  const MessagePacking packing = pack_small_tensors(sizes, groups, 4);
  // The small one of group 2 has no other that it could go with.
  CHECK(packing.alone == (std::vector<size_t>{1, 5}));
  CHECK(tensors_of(packing) == (std::vector<size_t>{2, 6, 0, 4}));
  CHECK_EQUAL(packing.messages.size(), 2u);
  CHECK_EQUAL(packing.messages[0].group, 0);
  CHECK_EQUAL(packing.messages[0].place, 0);
  CHECK_EQUAL(packing.messages[0].size, 12);
  CHECK_EQUAL(packing.messages[1].group, 1);
  CHECK_EQUAL(packing.messages[1].place, 12);
  CHECK_EQUAL(packing.messages[1].size, 5);
  CHECK_EQUAL(packing.size, 17);
  CHECK_EQUAL(packing.packed[1].place, 5);
  CHECK_EQUAL(packing.packed[3].place, 15);
}

TEST(packed_messages_begin_where_vectors_do) {
  const MessagePacking packing = pack_small_tensors({1, 1, 1, 1}, {0, 0, 1, 1}, 2);
  CHECK_EQUAL(packing.messages[1].place, 8);
  CHECK_EQUAL(packing.size, 10);
}

TEST(nothing_is_packed_of_single_or_empty_tensors) {
  const MessagePacking packing = pack_small_tensors({0, 9, 0}, {0, 0, 0}, 8);
  CHECK(packing.alone == (std::vector<size_t>{1}));
  CHECK(packing.packed.empty());
  CHECK_EQUAL(packing.size, 0);
}

}  // namespace
}  // namespace kerascnn
