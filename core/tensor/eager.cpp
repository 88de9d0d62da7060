#include "core/tensor/eager.h"

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "core/backend/backend.h"
#include "core/base/error.h"
#include "core/ops/op.h"

namespace kerascnn {
namespace {

std::atomic<bool> tf32_allowed{true};

struct Plan {
  std::vector<TensorSpec> outputs;
  std::unique_ptr<Kernel> kernel;  // null where nothing has to run: views and empty outputs
  std::mutex running;              // a kernel may keep the buffers of a call in its own state
};
using PlanPtr = std::shared_ptr<Plan>;

// The plans used last. Bounded, because shapes may change with every call.
class PlanCache {
 public:
  PlanPtr find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    order_.splice(order_.begin(), order_, found->second);
    return found->second->second;
  }

  void insert(const std::string& key, PlanPtr plan) {
    const std::lock_guard lock(mutex_);
    if (index_.contains(key)) return;
    order_.emplace_front(key, std::move(plan));
    index_[key] = order_.begin();
    if (order_.size() > kCapacity) {
      index_.erase(order_.back().first);
      order_.pop_back();
    }
  }

 private:
  static constexpr size_t kCapacity = 1024;
  using Order = std::list<std::pair<std::string, PlanPtr>>;

  std::mutex mutex_;
  Order order_;  // latest first
  std::unordered_map<std::string, Order::iterator> index_;
};

// Never destroyed: kernels hold handles of libraries that may be unloaded before static objects
// are.
PlanCache& plan_cache() {
  static PlanCache& cache = *new PlanCache;
  return cache;
}

std::string plan_key(const OpDef& op, const Attributes& attributes, Specs inputs, Device device,
                     bool allow_tf32) {
  std::string key(op.name);
  key += '|';
  key += attributes.key();
  for (const TensorSpec& spec : inputs) {
    key += '|';
    key += static_cast<char>('a' + static_cast<int>(spec.dtype));
    for (const int64_t extent : spec.shape) {
      key += std::to_string(extent);
      key += ',';
    }
  }
  key += '|';
  key += device_name(device);
  if (allow_tf32) key += "|tf32";
  return key;
}

template <typename ErrorClass>
[[noreturn]] void rethrow_with_op(std::string_view op, const ErrorClass& error) {
  if (std::string_view(error.what()).starts_with(op)) throw error;
  throw ErrorClass(message(op, ": ", error.what()));
}

// Faults found below the op (a missing attribute, a dtype) don't know its name.
template <typename Function>
auto with_op_name(std::string_view op, Function function) {
  try {
    return function();
  } catch (const ValueError& error) {
    rethrow_with_op(op, error);
  } catch (const TypeError& error) {
    rethrow_with_op(op, error);
  }
}

bool all_empty(const std::vector<TensorSpec>& specs) {
  for (const TensorSpec& spec : specs) {
    if (num_elements(spec.shape) > 0) return false;
  }
  return true;
}

PlanPtr make_plan(const OpDef& op, const Attributes& attributes, Specs inputs, Device device,
                  bool allow_tf32) {
  auto plan = std::make_shared<Plan>();
  with_op_name(op.name, [&] {
    plan->outputs = infer_outputs(op, attributes, inputs);
    if (!op.is_view && !all_empty(plan->outputs)) {
      plan->kernel = plan_kernel(backend(device),
                                 PlanRequest{op, attributes, inputs, plan->outputs, allow_tf32});
    }
  });
  return plan;
}

Device common_device(std::string_view op, const std::vector<Tensor>& inputs) {
  if (inputs.empty()) return {};
  const Device device = inputs[0].device();
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].device() != device) {
      throw DeviceError(message(op, ": all inputs must be on one device, but input 0 is on ",
                                device_name(device), " and input ", i, " on ",
                                device_name(inputs[i].device()), "; move one of them with .to(\"",
                                device_name(device), "\")"));
    }
  }
  return device;
}

void run_plan(Plan& plan, Backend& backend, const std::vector<Tensor>& inputs,
              const std::vector<Tensor>& outputs) {
  std::vector<const void*> input_data;
  std::vector<void*> output_data;
  for (const Tensor& input : inputs) input_data.push_back(input.data());
  for (const Tensor& output : outputs) output_data.push_back(output.data());

  const std::lock_guard lock(plan.running);
  // Freed on return although the work may only be enqueued: the next owner's work comes after it.
  const StoragePtr workspace = allocate_storage(plan.kernel->workspace_bytes(), backend.device());
  backend.launch(*plan.kernel,
                 KernelArgs{input_data, output_data, workspace->data(), backend.stream()});
}

}  // namespace

std::vector<Tensor> apply(std::string_view op_name, const std::vector<Tensor>& inputs,
                          const Attributes& attributes) {
  const OpDef& op = find_op(op_name);
  const Device device = common_device(op.name, inputs);
  std::vector<TensorSpec> specs;
  specs.reserve(inputs.size());
  for (const Tensor& input : inputs) specs.push_back(input.spec());

  const bool allow_tf32 = eager_tf32();
  const std::string key = plan_key(op, attributes, specs, device, allow_tf32);
  PlanPtr plan = plan_cache().find(key);
  if (plan == nullptr) {
    plan = make_plan(op, attributes, specs, device, allow_tf32);
    plan_cache().insert(key, plan);
  }

  if (op.is_view) return {inputs[0].contiguous().view(plan->outputs[0].shape)};
  std::vector<Tensor> outputs;
  outputs.reserve(plan->outputs.size());
  for (const TensorSpec& spec : plan->outputs) outputs.push_back(Tensor::empty(spec, device));
  if (plan->kernel != nullptr) {
    std::vector<Tensor> packed;
    packed.reserve(inputs.size());
    // Also copies what does not begin at a multiple of 16 bytes: kernels load vectors from there.
    // Programs treat their inputs in the same way.
    for (const Tensor& input : inputs) packed.push_back(input.contiguous());
    run_plan(*plan, backend(device), packed, outputs);
  }
  return outputs;
}

bool eager_tf32() { return tf32_allowed.load(std::memory_order_relaxed); }

void set_eager_tf32(bool allowed) { tf32_allowed.store(allowed, std::memory_order_relaxed); }

}  // namespace kerascnn
