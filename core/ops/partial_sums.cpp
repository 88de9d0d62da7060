#include "core/ops/partial_sums.h"

namespace kerascnn {
namespace {

constexpr std::string_view kCopies = "copies";

}  // namespace

int64_t num_copies(std::string_view op, const Attributes& attributes) {
  if (!attributes.has(kCopies)) return 0;
  const int64_t copies = attributes.get_int(kCopies);
  if (copies < 1) throw ValueError(message(op, ": copies must be positive, received ", copies));
  return copies;
}

std::vector<TensorSpec> stack_sums(std::string_view op, const Attributes& attributes,
                                   std::vector<TensorSpec> sums) {
  const int64_t copies = num_copies(op, attributes);
  if (copies == 0) return sums;
  for (TensorSpec& sum : sums) sum.shape.insert(sum.shape.begin(), copies);
  return sums;
}

Attributes without_copies(const Attributes& attributes) {
  Attributes rest;
  for (const auto& [name, value] : attributes.entries()) {
    if (name != kCopies) rest.set(name, value);
  }
  return rest;
}

}  // namespace kerascnn
