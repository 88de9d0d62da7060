#include "core/backend/message_packing.h"

#include <algorithm>
#include <map>

#include "core/base/ceil_div.h"

namespace kerascnn {
namespace {

constexpr int64_t kVectorBytes = 16;

}  // namespace

MessagePacking pack_small_tensors(const std::vector<int64_t>& sizes,
                                  const std::vector<int64_t>& groups, int64_t item_bytes) {
  MessagePacking packing;
  std::map<int64_t, std::vector<size_t>> small;  // by group
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t bytes = sizes[i] * item_bytes;
    if (bytes > kSmallTensorBytes) packing.alone.push_back(i);
    if (bytes > 0 && bytes <= kSmallTensorBytes) small[groups[i]].push_back(i);
  }
  const int64_t vector = std::max<int64_t>(kVectorBytes / item_bytes, 1);
  for (const auto& [group, tensors] : small) {
    if (tensors.size() == 1) {
      packing.alone.push_back(tensors[0]);
      continue;
    }
    const int64_t begin = ceil_div(packing.size, vector) * vector;
    packing.size = begin;
    for (const size_t tensor : tensors) {
      packing.packed.push_back({tensor, packing.size});
      packing.size += sizes[tensor];
    }
    packing.messages.push_back({group, begin, packing.size - begin});
  }
  std::ranges::sort(packing.alone);
  return packing;
}

}  // namespace kerascnn
