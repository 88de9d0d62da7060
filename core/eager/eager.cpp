#include "core/eager/eager.h"

#include <atomic>
#include <bit>
#include <map>
#include <mutex>
#include <tuple>

#include "core/eager/recorder.h"

namespace kerascnn {
namespace {

std::atomic<bool> tf32_allowed{true};

std::vector<const Tensor*> pointers_to(const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> pointers;
  pointers.reserve(tensors.size());
  for (const Tensor& tensor : tensors) pointers.push_back(&tensor);
  return pointers;
}

}  // namespace

void execute(const EagerPlanPtr& plan, Inputs inputs, std::span<Tensor> outputs) {
  run_plan(*plan, inputs, outputs);
  if (is_recording()) record_call(plan, inputs, outputs);
}

std::vector<Tensor> apply(const OpDef& op, Inputs inputs, const Attributes& attributes) {
  const EagerPlanPtr plan = find_plan(op, attributes, inputs, eager_tf32());
  std::vector<Tensor> outputs(plan->outputs.size());
  execute(plan, inputs, outputs);
  return outputs;
}

std::vector<Tensor> apply(std::string_view op, const std::vector<Tensor>& inputs,
                          const Attributes& attributes) {
  return apply(find_op(op), pointers_to(inputs), attributes);
}

Tensor apply_one(const OpDef& op, Inputs inputs, const Attributes& attributes) {
  const EagerPlanPtr plan = find_plan(op, attributes, inputs, eager_tf32());
  if (plan->outputs.size() == 1) {
    Tensor output;
    execute(plan, inputs, {&output, 1});
    return output;
  }
  std::vector<Tensor> outputs(plan->outputs.size());
  execute(plan, inputs, outputs);
  return outputs.front();
}

Tensor scalar_tensor(DType dtype, double value, Device device) {
  // Copying a number to a GPU takes longer than the op that reads it, and loops use few numbers.
  using Key = std::tuple<DType, DeviceType, int, uint64_t>;
  constexpr size_t kMost = 512;
  // Never destroyed: memory of a device is not to be freed when the process ends.
  static std::mutex& mutex = *new std::mutex;
  static std::map<Key, Tensor>& known = *new std::map<Key, Tensor>;
  const Key key{dtype, device.type, device.index, std::bit_cast<uint64_t>(value)};
  const std::lock_guard lock(mutex);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  if (known.size() == kMost) known.clear();
  return known.emplace(key, Tensor::scalar(dtype, value, device)).first->second;
}

bool eager_tf32() { return tf32_allowed.load(std::memory_order_relaxed); }

void set_eager_tf32(bool allowed) { tf32_allowed.store(allowed, std::memory_order_relaxed); }

}  // namespace kerascnn
