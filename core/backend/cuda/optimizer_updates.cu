// SGD and Adam over all parameters in one launch: a table of pointers goes along as the kernel's
// argument, and blocks are dealt out to stretches of the tensors. More than kMaxTensors tensors
// take several launches.
#include "core/backend/cuda/device/begin.cuh"
#include "core/ops/optimizer_updates.h"

#include <cmath>

#include "core/backend/cuda/device/copy.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"

namespace kerascnn::cuda {
namespace {

constexpr int kUpdateThreads = 128;
constexpr int kWidth = 4;  // elements that a thread updates at once
constexpr int64_t kStretch = kUpdateThreads * kWidth;
// The table stays under 4 KiB, the limit for kernel arguments that every driver has.
constexpr int kMaxTensors = 48;

// The buffers of kSlots kinds for each tensor: the parameter and its slots, read from `old`,
// written to `updated`.
template <int kSlots>
struct UpdateTable {
  const void* gradient[kMaxTensors];
  const void* old[kSlots][kMaxTensors];
  void* updated[kSlots][kMaxTensors];
  int64_t size[kMaxTensors];
  // The number of the tensor's first stretch among all stretches; one more at the end.
  int first_stretch[kMaxTensors + 1];
  int count;
  bool vectorized;
};
static_assert(sizeof(UpdateTable<3>) < 3968);

// kWidth elements of one tensor, as many as there are from `at` on.
template <typename T>
__device__ __forceinline__ void load_elements(const void* data, int64_t at, int64_t size,
                                              bool vectorized, compute_t<T> (&values)[kWidth]) {
  const T* from = static_cast<const T*>(data) + at;
  if (vectorized && at + kWidth <= size) {
    const auto vector = *reinterpret_cast<const Vector<T, kWidth>*>(from);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] = load(vector.values[k]);
    return;
  }
#pragma unroll
  for (int k = 0; k < kWidth; ++k) values[k] = at + k < size ? load(from[k]) : compute_t<T>(0);
}

template <typename T>
__device__ __forceinline__ void store_elements(void* data, int64_t at, int64_t size,
                                               bool vectorized,
                                               const compute_t<T> (&values)[kWidth]) {
  T* to = static_cast<T*>(data) + at;
  if (vectorized && at + kWidth <= size) {
    Vector<T, kWidth> vector;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) vector.values[k] = store<T>(values[k]);
    *reinterpret_cast<Vector<T, kWidth>*>(to) = vector;
    return;
  }
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    if (at + k < size) to[k] = store<T>(values[k]);
  }
}

// Each rule changes one element: values[0] is the parameter, the others its slots. prepare() gives
// what all elements share and depends on device memory.
template <typename C>
struct Sgd {
  static constexpr int kSlots = 1;
  struct Shared {
    C rate;
  };
  const float* learning_rate;

  __device__ __forceinline__ Shared prepare() const { return {static_cast<C>(*learning_rate)}; }
  __device__ __forceinline__ void operator()(const Shared& shared, C gradient,
                                             C (&values)[1]) const {
    values[0] -= shared.rate * gradient;
  }
};

template <typename C>
struct SgdMomentum {
  static constexpr int kSlots = 2;
  struct Shared {
    C rate;
  };
  const float* learning_rate;
  C momentum;
  bool nesterov;

  __device__ __forceinline__ Shared prepare() const { return {static_cast<C>(*learning_rate)}; }
  __device__ __forceinline__ void operator()(const Shared& shared, C gradient,
                                             C (&values)[2]) const {
    const C step = shared.rate * gradient;
    const C velocity = momentum * values[1] - step;
    values[0] += nesterov ? momentum * velocity - step : velocity;
    values[1] = velocity;
  }
};

template <typename C>
struct Adam {
  static constexpr int kSlots = 3;
  struct Shared {
    C alpha;
  };
  const float* learning_rate;
  const int64_t* iterations;
  C log_beta_1, log_beta_2;  // natural logarithms
  C rest_1, rest_2;          // 1 - beta
  C epsilon;

  // 1 - beta^t as -expm1(t log beta): the difference itself would lose most digits in the first
  // steps.
  __device__ __forceinline__ Shared prepare() const {
    const C t = static_cast<C>(*iterations + 1);
    const C correction_1 = -element::expm1(t * log_beta_1);
    const C correction_2 = -element::expm1(t * log_beta_2);
    return {static_cast<C>(*learning_rate) * element::sqrt(correction_2) / correction_1};
  }
  __device__ __forceinline__ void operator()(const Shared& shared, C gradient,
                                             C (&values)[3]) const {
    values[1] += (gradient - values[1]) * rest_1;
    values[2] += (gradient * gradient - values[2]) * rest_2;
    values[0] -= values[1] * shared.alpha / (element::sqrt(values[2]) + epsilon);
  }
};

// The tensor that a stretch belongs to: the last one that begins at or before it. Tensors without
// elements have no stretches and are passed over.
template <int kSlots>
__device__ __forceinline__ int find_tensor(const UpdateTable<kSlots>& table, int stretch) {
  int low = 0, high = table.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.first_stretch[middle] <= stretch) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

template <typename T, typename Rule>
__global__ void __launch_bounds__(kUpdateThreads)
    update_tensors(const __grid_constant__ UpdateTable<Rule::kSlots> table,
                   const __grid_constant__ Rule rule) {
  begin_kernel();
  using C = compute_t<T>;
  constexpr int kSlots = Rule::kSlots;
  const int stretches = table.first_stretch[table.count];
  const auto shared = rule.prepare();
  for (int stretch = blockIdx.x; stretch < stretches; stretch += gridDim.x) {
    const int tensor = find_tensor(table, stretch);
    const int64_t size = table.size[tensor];
    const int64_t at =
        (stretch - table.first_stretch[tensor]) * kStretch + threadIdx.x * int64_t{kWidth};
    if (at >= size) continue;
    C gradients[kWidth];
    C values[kSlots][kWidth];
    load_elements<T>(table.gradient[tensor], at, size, table.vectorized, gradients);
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      load_elements<T>(table.old[slot][tensor], at, size, table.vectorized, values[slot]);
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      C element[kSlots];
#pragma unroll
      for (int slot = 0; slot < kSlots; ++slot) element[slot] = values[slot][k];
      rule(shared, gradients[k], element);
#pragma unroll
      for (int slot = 0; slot < kSlots; ++slot) values[slot][k] = element[slot];
    }
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      store_elements<T>(table.updated[slot][tensor], at, size, table.vectorized, values[slot]);
    }
  }
}

// Where the buffers of tensor i are; the same numbering for both optimizers.
struct UpdateLayout {
  size_t count = 0;
  size_t parameter = 0;      // input of the first parameter
  size_t gradient = 0;       // input of the first gradient
  size_t slots[2] = {0, 0};  // inputs of the first slots
  std::vector<int64_t> sizes;

  size_t old_input(int slot, size_t i) const {
    return (slot == 0 ? parameter : slots[slot - 1]) + i;
  }
  size_t new_output(int slot, size_t i) const { return static_cast<size_t>(slot) * count + i; }
};

template <typename T, int kSlots>
UpdateTable<kSlots> fill_table(const KernelArgs& args, const UpdateLayout& layout, size_t first) {
  constexpr int64_t kBytes = sizeof(T) * kWidth;
  UpdateTable<kSlots> table{};
  table.count = static_cast<int>(std::min<size_t>(kMaxTensors, layout.count - first));
  table.vectorized = true;
  int64_t stretches = 0;
  for (int i = 0; i < table.count; ++i) {
    const size_t tensor = first + static_cast<size_t>(i);
    table.gradient[i] = args.inputs[layout.gradient + tensor];
    table.vectorized = table.vectorized && is_aligned(table.gradient[i], kBytes);
    for (int slot = 0; slot < kSlots; ++slot) {
      table.old[slot][i] = args.inputs[layout.old_input(slot, tensor)];
      table.updated[slot][i] = args.outputs[layout.new_output(slot, tensor)];
      table.vectorized = table.vectorized && is_aligned(table.old[slot][i], kBytes) &&
                         is_aligned(table.updated[slot][i], kBytes);
    }
    table.size[i] = layout.sizes[tensor];
    table.first_stretch[i] = static_cast<int>(stretches);
    stretches += ceil_div(layout.sizes[tensor], kStretch);
  }
  table.first_stretch[table.count] = static_cast<int>(stretches);
  return table;
}

// make_rule(args) gives the rule with its device pointers.
template <typename T, typename MakeRule>
std::unique_ptr<Kernel> make_update(std::string description, const UpdateLayout& layout,
                                    const MakeRule& make_rule) {
  return make_early_kernel(std::move(description), [layout, make_rule](const KernelArgs& args) {
    const auto rule = make_rule(args);
    using Rule = std::remove_const_t<decltype(rule)>;
    for (size_t first = 0; first < layout.count; first += kMaxTensors) {
      const UpdateTable<Rule::kSlots> table = fill_table<T, Rule::kSlots>(args, layout, first);
      const int stretches = table.first_stretch[table.count];
      if (stretches == 0) continue;
      update_tensors<T, Rule>
          <<<grid_for(stretches, 1), kUpdateThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
              table, rule);
      check_launch("optimizer update");
    }
  });
}

// Throws where a tensor has more stretches than an int can number, which is a terabyte of
// parameters.
std::vector<int64_t> parameter_sizes(const PlanRequest& request, size_t first, size_t count) {
  std::vector<int64_t> sizes;
  int64_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    sizes.push_back(num_elements(request.inputs[first + i].shape));
    total += ceil_div(sizes.back(), kStretch);
  }
  if (total > INT32_MAX) {
    throw ValueError(message(request.op.name,
                             ": the parameters have more elements than one update ", "can take (",
                             INT32_MAX * kStretch, ")"));
  }
  return sizes;
}

}  // namespace

std::unique_ptr<Kernel> plan_sgd_update(const PlanRequest& request) {
  const double momentum = request.attributes.get_double("momentum");
  const bool nesterov = request.attributes.get_bool("nesterov");
  const SgdLayout sgd{static_cast<size_t>(request.attributes.get_int("count")), momentum > 0.0};
  UpdateLayout layout;
  layout.count = sgd.count;
  layout.parameter = sgd.parameter(0);
  layout.gradient = sgd.gradient(0);
  layout.slots[0] = sgd.momentum(0);
  layout.sizes = parameter_sizes(request, layout.parameter, layout.count);
  const DType dtype = request.inputs[layout.parameter].dtype;
  return dispatch_floating("sgd_update", dtype, [&]<typename T>(Type<T>) {
    using C = compute_t<T>;
    if (!sgd.has_momentum) {
      return make_update<T>("kerascnn sgd_update", layout, [](const KernelArgs& args) {
        return Sgd<C>{input<float>(args, SgdLayout::learning_rate())};
      });
    }
    return make_update<T>("kerascnn sgd_update", layout,
                          [momentum = static_cast<C>(momentum), nesterov](const KernelArgs& args) {
                            return SgdMomentum<C>{input<float>(args, SgdLayout::learning_rate()),
                                                  momentum, nesterov};
                          });
  });
}

std::unique_ptr<Kernel> plan_adam_update(const PlanRequest& request) {
  const double beta_1 = request.attributes.get_double("beta_1");
  const double beta_2 = request.attributes.get_double("beta_2");
  const double epsilon = request.attributes.get_double("epsilon");
  const AdamLayout adam{static_cast<size_t>(request.attributes.get_int("count"))};
  UpdateLayout layout;
  layout.count = adam.count;
  layout.parameter = adam.parameter(0);
  layout.gradient = adam.gradient(0);
  layout.slots[0] = adam.first_moment(0);
  layout.slots[1] = adam.second_moment(0);
  layout.sizes = parameter_sizes(request, layout.parameter, layout.count);
  const DType dtype = request.inputs[layout.parameter].dtype;
  return dispatch_floating("adam_update", dtype, [&]<typename T>(Type<T>) {
    using C = compute_t<T>;
    Adam<C> rule{};
    rule.log_beta_1 = static_cast<C>(std::log(beta_1));
    rule.log_beta_2 = static_cast<C>(std::log(beta_2));
    rule.rest_1 = static_cast<C>(1.0 - beta_1);
    rule.rest_2 = static_cast<C>(1.0 - beta_2);
    rule.epsilon = static_cast<C>(epsilon);
    return make_update<T>("kerascnn adam_update", layout, [rule](const KernelArgs& args) {
      Adam<C> result = rule;
      result.learning_rate = input<float>(args, AdamLayout::learning_rate());
      result.iterations = input<int64_t>(args, AdamLayout::iterations());
      return result;
    });
  });
}

}  // namespace kerascnn::cuda
