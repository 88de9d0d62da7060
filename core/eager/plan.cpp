#include "core/eager/plan.h"

#include <list>

#include "core/base/error.h"
#include "core/eager/gradient_recipe.h"

namespace kerascnn {
namespace {

size_t mixed(size_t hash, uint64_t bits) {
  hash = (hash ^ bits) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

size_t hash_of(const OpDef& op, const Attributes& attributes, Inputs inputs, Device device,
               bool allow_tf32) {
  size_t hash = mixed(reinterpret_cast<size_t>(&op), attributes.hash());
  hash = mixed(hash, static_cast<uint64_t>(device.index) * 4 +
                         (device.type == DeviceType::Cpu ? 0 : 2) + (allow_tf32 ? 1 : 0));
  for (const Tensor* input : inputs) {
    hash = mixed(hash, static_cast<uint64_t>(input->dtype()) * 64 + input->shape().size());
    for (const int64_t extent : input->shape()) hash = mixed(hash, static_cast<uint64_t>(extent));
  }
  return hash;
}

bool fits(const EagerPlan& plan, const OpDef& op, const Attributes& attributes, Inputs inputs,
          Device device, bool allow_tf32) {
  if (plan.op != &op || plan.device != device || plan.allow_tf32 != allow_tf32 ||
      plan.inputs.size() != inputs.size()) {
    return false;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (plan.inputs[i] != inputs[i]->spec()) return false;
  }
  return plan.attributes.same_as(attributes);
}

// The plans used last. Bounded, because shapes may change with every call.
class PlanCache {
 public:
  template <typename Matches>
  EagerPlanPtr find(size_t hash, const Matches& matches) {
    const std::lock_guard lock(mutex_);
    for (auto [at, end] = index_.equal_range(hash); at != end; ++at) {
      if (!matches(*at->second->plan)) continue;
      order_.splice(order_.begin(), order_, at->second);
      return at->second->plan;
    }
    return nullptr;
  }

  // Takes the place of the one that was not used for longest.
  void add(size_t hash, EagerPlanPtr plan) {
    std::list<Held> leaving;  // destroyed last, outside of the lock
    const std::lock_guard lock(mutex_);
    order_.push_front({hash, std::move(plan)});
    index_.emplace(hash, order_.begin());
    if (order_.size() <= kCapacity) return;
    const auto last = std::prev(order_.end());
    for (auto [at, end] = index_.equal_range(last->hash); at != end; ++at) {
      if (at->second != last) continue;
      index_.erase(at);
      break;
    }
    leaving.splice(leaving.begin(), order_, last);
  }

 private:
  struct Held {
    size_t hash;
    EagerPlanPtr plan;
  };
  static constexpr size_t kCapacity = 1024;

  std::mutex mutex_;
  std::list<Held> order_;  // latest first
  std::unordered_multimap<size_t, std::list<Held>::iterator> index_;
};

// Never destroyed: kernels hold handles of libraries that may be unloaded before static objects
// are.
PlanCache& plan_cache() {
  static PlanCache& cache = *new PlanCache;
  return cache;
}

EagerPlanPtr make_plan(const OpDef& op, const Attributes& attributes, Inputs inputs, Device device,
                       bool allow_tf32) {
  auto plan = std::make_shared<EagerPlan>();
  plan->op = &op;
  plan->attributes = attributes;
  plan->device = device;
  plan->allow_tf32 = allow_tf32;
  plan->backend = &backend(device);
  for (const Tensor* input : inputs) {
    plan->inputs.push_back(input->spec());
    plan->work_bytes += input->bytes();
  }
  const std::vector<TensorSpec> outputs = infer_outputs(op, attributes, plan->inputs);
  int64_t output_bytes = 0;
  for (const TensorSpec& spec : outputs) {
    const int64_t bytes = num_bytes(spec);
    plan->outputs.push_back({spec, contiguous_strides(spec.shape), bytes});
    output_bytes += bytes;
  }
  plan->work_bytes += output_bytes;
  if (!op.is_view && output_bytes > 0) {
    plan->kernel =
        plan_kernel(*plan->backend, PlanRequest{op, attributes, plan->inputs, outputs, allow_tf32});
  }
  return plan;
}

Device common_device(std::string_view op, Inputs inputs) {
  if (inputs.empty()) return {};
  const Device device = inputs[0]->device();
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i]->device() != device) {
      throw DeviceError(message(op, ": all inputs must be on one device, but input 0 is on ",
                                device_name(device), " and input ", i, " on ",
                                device_name(inputs[i]->device()), "; move one of them with .to(\"",
                                device_name(device), "\")"));
    }
  }
  return device;
}

// Keeps a few pointers on the stack and larger numbers of them on the heap.
template <typename Pointer>
class Pointers {
 public:
  explicit Pointers(size_t count) : size_(count) {
    if (count > kFew) many_.resize(count);
  }
  Pointer* data() { return size_ > kFew ? many_.data() : few_; }
  std::span<Pointer const> all() { return {data(), size_}; }

 private:
  static constexpr size_t kFew = 8;
  size_t size_;
  Pointer few_[kFew];
  std::vector<Pointer> many_;
};

// The call where the thread is now.
CallInfoPtr call_here(EagerPlan& plan) {
  const Scope scope = EagerScope::get();
  for (const CallInfoPtr& call : plan.calls) {
    if (call->scope == scope) return call;
  }
  std::vector<TensorSpec> outputs;
  for (const OutputLayout& output : plan.outputs) outputs.push_back(output.spec);
  CallInfo info = make_call_info(*plan.op, plan.attributes, plan.inputs, outputs);
  info.label = scope.empty() ? info.op : message(info.op, " (", scope.path, ")");
  info.scope = scope;
  info.kernel = plan.kernel->description();
  info.memory_bytes += plan.kernel->workspace_bytes();
  info.device = plan.device;
  return plan.calls.emplace_back(std::make_shared<const CallInfo>(std::move(info)));
}

}  // namespace

EagerPlanPtr find_plan(const OpDef& op, const Attributes& attributes, Inputs inputs,
                       bool allow_tf32) {
  const Device device = common_device(op.name, inputs);
  // Kept, it would keep its bodies, which nothing but this call may need.
  if (op.has_bodies) return make_plan(op, attributes, inputs, device, allow_tf32);
  const size_t hash = hash_of(op, attributes, inputs, device, allow_tf32);
  EagerPlanPtr plan = plan_cache().find(hash, [&](const EagerPlan& known) {
    return fits(known, op, attributes, inputs, device, allow_tf32);
  });
  if (plan == nullptr) {
    plan = make_plan(op, attributes, inputs, device, allow_tf32);
    plan_cache().add(hash, plan);
  }
  return plan;
}

void run_plan(EagerPlan& plan, Inputs inputs, std::span<Tensor> outputs) {
  if (plan.op->is_view) {
    outputs[0] = inputs[0]->contiguous().view(plan.outputs[0].spec.shape);
    return;
  }
  Pointers<void*> output_data(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const OutputLayout& layout = plan.outputs[i];
    outputs[i] = Tensor(allocate_storage(layout.bytes, plan.device), layout.spec, layout.strides);
    output_data.data()[i] = outputs[i].data();
  }
  if (plan.kernel == nullptr) return;
  Pointers<const void*> input_data(inputs.size());
  std::vector<Tensor> packed;
  for (size_t i = 0; i < inputs.size(); ++i) {
    // A tensor that does not begin at a multiple of 16 bytes is copied too, because kernels load
    // vectors. Programs treat their inputs in the same way.
    if (!inputs[i]->is_packed()) packed.push_back(inputs[i]->contiguous());
    input_data.data()[i] = inputs[i]->is_packed() ? inputs[i]->data() : packed.back().data();
  }
  const std::lock_guard lock(plan.running);
  // Freed on return although the work may only be enqueued: the next owner's work comes after it.
  const int64_t workspace_bytes = plan.kernel->workspace_bytes();
  const StoragePtr workspace =
      workspace_bytes > 0 ? allocate_storage(workspace_bytes, plan.device) : nullptr;
  const KernelArgs args{input_data.all(), output_data.all(),
                        workspace != nullptr ? workspace->data() : nullptr, plan.backend->stream()};
  if (is_profiling()) [[unlikely]] {
    const CurrentCall current(call_here(plan));
    plan.backend->launch(*plan.kernel, args);
  } else {
    plan.backend->launch(*plan.kernel, args);
  }
}

std::shared_ptr<const GradientRecipe> EagerPlan::recipe(GradientMask mask) {
  const std::lock_guard lock(recipes_mutex_);
  for (const auto& [known, recipe] : recipes_) {
    if (known == mask) return recipe;
  }
  recipes_.emplace_back(mask, std::make_shared<GradientRecipe>(*this, mask));
  return recipes_.back().second;
}

}  // namespace kerascnn
