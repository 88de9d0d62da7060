// SGD and Adam over many parameters in one launch: a table of pointers is the kernel's argument,
// and each block takes some stretches of the tensors. More tensors than the largest table has take
// several launches.
//
// A gradient may be a stack of partial sums. Then threads above one another in a block add up
// different copies, so that all loads are under way at once, and the sums are added from the top to
// the bottom, which is always the same order.
#include "core/backend/cuda/device/begin.cuh"
#include "core/ops/optimizer_updates.h"

#include <bit>
#include <cmath>

#include "core/backend/cuda/device/tensor_table.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/movement/copy.cuh"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"

namespace kerascnn::cuda {
namespace {

constexpr int kUpdateThreads = 128;
constexpr int kWidth = 4;  // elements that a thread loads at once
constexpr int64_t kStretch = kUpdateThreads * kWidth;
// How many threads take the copies of a stack. Each of them should have at least one element of the
// sum to update, and a row of threads at least a whole sector of memory.
constexpr int kLeastRows = kWidth;
constexpr int kMostRows = 32;
constexpr int kAhead = 4;  // loads of a stack that a thread has under way together
constexpr int64_t kMostCopies = int64_t{1} << 30;
// The larger table stays under 4 KiB, the limit for kernel arguments that every driver has; a short
// table is faster to pass.
constexpr int kFewTensors = 8;
constexpr int kMostTensors = 48;

// A tensor's buffers of kSlots kinds, the parameter and its slots: read from `old`, written to
// `updated`.
template <int kSlots>
struct UpdateEntry {
  const void* gradient;
  const void* old[kSlots];
  void* updated[kSlots];
  int64_t size;
  int first_stretch;  // its number among all stretches
  int copies;         // of the gradient
  int8_t rows;        // of threads, for a stack, else 0; a power of two
  int8_t lane_bits;   // threads in a row, as a power of two
  DType gradient_dtype;
  bool vectorized;
};

template <int kSlots, int kTensors>
struct UpdateTable {
  UpdateEntry<kSlots> entries[kTensors];
  int count;
  int stretches;
};
static_assert(sizeof(UpdateTable<3, kMostTensors>) < 3968);

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

// The elements of a gradient that is no stack; one of 16 bits is widened.
template <typename T, int kSlots>
__device__ __forceinline__ void load_gradient(const UpdateEntry<kSlots>& entry, int64_t at,
                                              compute_t<T> (&values)[kWidth]) {
  if constexpr (std::is_same_v<T, float>) {
    if (entry.gradient_dtype == DType::Float16) {
      return load_elements<__half>(entry.gradient, at, entry.size, entry.vectorized, values);
    }
    if (entry.gradient_dtype == DType::BFloat16) {
      return load_elements<__nv_bfloat16>(entry.gradient, at, entry.size, entry.vectorized, values);
    }
  }
  load_elements<T>(entry.gradient, at, entry.size, entry.vectorized, values);
}

// Each rule changes one element: values[0] is the parameter, the others are its slots. read() gives
// what lies in device memory and all elements share; prepare() computes from that after the
// elements have been asked for, so that one does not wait for the other.
template <typename C>
struct Sgd {
  static constexpr int kSlots = 1;
  const float* learning_rate;

  __device__ __forceinline__ float read() const { return *learning_rate; }
  __device__ __forceinline__ C prepare(float rate) const { return static_cast<C>(rate); }
  __device__ __forceinline__ void operator()(C rate, C gradient, C (&values)[1]) const {
    values[0] -= rate * gradient;
  }
};

template <typename C>
struct SgdMomentum {
  static constexpr int kSlots = 2;
  const float* learning_rate;
  C momentum;
  bool nesterov;

  __device__ __forceinline__ float read() const { return *learning_rate; }
  __device__ __forceinline__ C prepare(float rate) const { return static_cast<C>(rate); }
  __device__ __forceinline__ void operator()(C rate, C gradient, C (&values)[2]) const {
    const C step = rate * gradient;
    const C velocity = momentum * values[1] - step;
    values[0] += nesterov ? momentum * velocity - step : velocity;
    values[1] = velocity;
  }
};

template <typename C>
struct Adam {
  static constexpr int kSlots = 3;
  struct Inputs {
    float rate;
    int64_t iterations;
  };
  const float* learning_rate;
  const int64_t* iterations;
  C log_beta_1, log_beta_2;  // natural logarithms
  C rest_1, rest_2;          // 1 - beta
  C epsilon;

  __device__ __forceinline__ Inputs read() const { return {*learning_rate, *iterations}; }
  // The step's factor. It takes 1 - beta^t as -expm1(t log beta), since the difference itself would
  // lose most digits in the first steps.
  __device__ __forceinline__ C prepare(const Inputs& inputs) const {
    const C t = static_cast<C>(inputs.iterations + 1);
    const C correction_1 = -element::expm1(t * log_beta_1);
    const C correction_2 = -element::expm1(t * log_beta_2);
    return static_cast<C>(inputs.rate) * element::sqrt(correction_2) / correction_1;
  }
  __device__ __forceinline__ void operator()(C alpha, C gradient, C (&values)[3]) const {
    values[1] += (gradient - values[1]) * rest_1;
    values[2] += (gradient * gradient - values[2]) * rest_2;
    values[0] -= values[1] * alpha / (element::sqrt(values[2]) + epsilon);
  }
};

// These loads may come before the wait; see begin_kernel().
constexpr uint32_t kRuleSettled = 1, kOldSettled = 2;

template <typename T, typename Rule>
__device__ __forceinline__ void update_plain(const UpdateEntry<Rule::kSlots>& entry, int stretch,
                                             const Rule& rule, uint32_t settled) {
  using C = compute_t<T>;
  constexpr int kSlots = Rule::kSlots;
  const int64_t at = stretch * kStretch + threadIdx.x * int64_t{kWidth};
  C gradients[kWidth];
  C values[kSlots][kWidth];
  decltype(rule.read()) inputs;
  begin_kernel(
      settled, [&] { inputs = rule.read(); },
      [&] {
#pragma unroll
        for (int slot = 0; slot < kSlots; ++slot) {
          load_elements<T>(entry.old[slot], at, entry.size, entry.vectorized, values[slot]);
        }
      });
  if (at >= entry.size) return;
  load_gradient<T>(entry, at, gradients);
  const auto shared = rule.prepare(inputs);
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
    store_elements<T>(entry.updated[slot], at, entry.size, entry.vectorized, values[slot]);
  }
}

// kWidth neighbouring elements of the copies first, first + rows, ...; beyond the last copy it
// gives what changes no sum.
template <typename T, int kSlots>
__device__ __forceinline__ void load_copies(const UpdateEntry<kSlots>& entry, int64_t at, int first,
                                            compute_t<T> (&parts)[kAhead][kWidth]) {
  using C = compute_t<T>;
  const int copies = entry.copies, rows = entry.rows;
  const int64_t size = entry.size;
  const T* stack = static_cast<const T*>(entry.gradient);
  const auto load_all = [&](auto is_whole) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int copy = first + a * rows;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) parts[a][k] = C(-0.0);
      if (copy >= copies) continue;
      load_elements<T>(stack + copy * size, at, is_whole ? at + kWidth : size, is_whole, parts[a]);
    }
  };
  if (entry.vectorized && at + kWidth <= size) {
    load_all(std::true_type());
  } else {
    load_all(std::false_type());
  }
}

template <typename C>
__device__ __forceinline__ void add_copies(const C (&parts)[kAhead][kWidth], C (&sums)[kWidth]) {
#pragma unroll
  for (int a = 0; a < kAhead; ++a) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sums[k] += parts[a][k];
  }
}

// The threads of a row sum neighbouring elements; then each of the first threads adds up one
// element's sums of all rows and updates it.
template <typename T, typename Rule>
__device__ __forceinline__ void update_from_stack(const UpdateEntry<Rule::kSlots>& entry,
                                                  int stretch, const Rule& rule, uint32_t settled) {
  using C = compute_t<T>;
  constexpr int kSlots = Rule::kSlots;
  __shared__ Vector<C, kWidth> row_sums[kUpdateThreads];
  const int row = threadIdx.x >> entry.lane_bits;
  const int lane = threadIdx.x & ((1 << entry.lane_bits) - 1);
  const int width = kWidth << entry.lane_bits;
  const int64_t first = int64_t{stretch} * width;
  const int64_t at = first + threadIdx.x;
  const bool has_element = threadIdx.x < width && at < entry.size;
  C element[kSlots] = {};
  decltype(rule.read()) inputs;
  begin_kernel(
      settled, [&] { inputs = rule.read(); },
      [&] {
#pragma unroll
        for (int slot = 0; slot < kSlots; ++slot) {
          if (has_element) element[slot] = load(static_cast<const T*>(entry.old[slot])[at]);
        }
      });
  const int64_t summed = first + lane * kWidth;
  C parts[kAhead][kWidth];
  load_copies<T>(entry, summed, row, parts);
  const auto shared = rule.prepare(inputs);  // while the copies are under way
  Vector<C, kWidth> sums;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) sums.values[k] = C(-0.0);
  add_copies(parts, sums.values);
  const int step = kAhead * entry.rows;
  for (int copy = row + step; copy < entry.copies; copy += step) {
    load_copies<T>(entry, summed, copy, parts);
    add_copies(parts, sums.values);
  }
  row_sums[threadIdx.x] = sums;
  __syncthreads();
  if (!has_element) return;
  const C* column = row_sums[0].values + threadIdx.x;
  C sum = column[0];
#pragma unroll 4
  for (int r = 1; r < entry.rows; ++r) sum += column[r * width];
  rule(shared, sum, element);
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot) {
    static_cast<T*>(entry.updated[slot])[at] = store<T>(element[slot]);
  }
}

// `settled`: kRuleSettled, kOldSettled or both.
template <typename T, typename Rule, typename Table>
__global__ void __launch_bounds__(kUpdateThreads)
    update_tensors(const __grid_constant__ Table table, const __grid_constant__ Rule rule,
                   uint32_t settled) {
  // Nothing writes a kernel's arguments, so reading them need not wait.
  const auto& entry = table.entries[find_tensor(table, blockIdx.x)];
  const int stretch = blockIdx.x - entry.first_stretch;
  if (entry.rows == 0) {
    update_plain<T>(entry, stretch, rule, settled);
  } else {
    update_from_stack<T>(entry, stretch, rule, settled);
  }
}

// Where the buffers of tensor i are. Both optimizers number them in the same way.
struct UpdateLayout {
  size_t count = 0;
  size_t parameter = 0;      // input of the first parameter
  size_t gradient = 0;       // input of the first gradient
  size_t slots[2] = {0, 0};  // inputs of the first slots
  std::vector<int64_t> sizes;
  std::vector<int> copies;  // of the gradients
  std::vector<DType> gradient_dtypes;

  size_t old_input(int slot, size_t i) const {
    return (slot == 0 ? parameter : slots[slot - 1]) + i;
  }
  size_t new_output(int slot, size_t i) const { return static_cast<size_t>(slot) * count + i; }
};

// With so many rows one turn of a thread's loads takes all copies, as far as the rows go; 0 for a
// plain gradient.
int rows_for(int copies) {
  if (copies == 1) return 0;
  int rows = kLeastRows;
  while (rows < kMostRows && rows * kAhead < copies) rows *= 2;
  return rows;
}

int64_t stretches_of(int64_t size, int copies) {
  return ceil_div(size, kStretch / std::max(1, rows_for(copies)));
}

template <typename T, int kSlots, int kTensors>
UpdateTable<kSlots, kTensors> fill_table(const KernelArgs& args, const UpdateLayout& layout,
                                         size_t first) {
  constexpr int64_t kBytes = sizeof(T) * kWidth;
  UpdateTable<kSlots, kTensors> table{};
  table.count = static_cast<int>(std::min<size_t>(kTensors, layout.count - first));
  int64_t stretches = 0;
  for (int i = 0; i < table.count; ++i) {
    const size_t tensor = first + static_cast<size_t>(i);
    UpdateEntry<kSlots>& entry = table.entries[i];
    entry.size = layout.sizes[tensor];
    entry.copies = layout.copies[tensor];
    entry.gradient_dtype = layout.gradient_dtypes[tensor];
    entry.rows = static_cast<int8_t>(rows_for(entry.copies));
    entry.lane_bits = static_cast<int8_t>(
        std::countr_zero(static_cast<unsigned>(kUpdateThreads / std::max<int>(1, entry.rows))));
    entry.first_stretch = static_cast<int>(stretches);
    stretches += stretches_of(entry.size, entry.copies);
    entry.gradient = args.inputs[layout.gradient + tensor];
    entry.vectorized =
        is_aligned(entry.gradient, kBytes) && (entry.copies == 1 || entry.size % kWidth == 0);
    for (int slot = 0; slot < kSlots; ++slot) {
      entry.old[slot] = args.inputs[layout.old_input(slot, tensor)];
      entry.updated[slot] = args.outputs[layout.new_output(slot, tensor)];
      entry.vectorized = entry.vectorized && is_aligned(entry.old[slot], kBytes) &&
                         is_aligned(entry.updated[slot], kBytes);
    }
  }
  table.stretches = static_cast<int>(stretches);
  return table;
}

uint32_t settled_parts(const KernelArgs& args, const UpdateLayout& layout, int slots) {
  const auto is_settled = [&](size_t first, size_t count) {
    bool all = true;
    for (size_t i = first; i < first + count; ++i) all = all && i < 32 && (args.settled >> i & 1);
    return all;
  };
  bool is_old_settled = true;
  for (int slot = 0; slot < slots; ++slot) {
    is_old_settled = is_old_settled && is_settled(layout.old_input(slot, 0), layout.count);
  }
  return (is_settled(0, layout.parameter) ? kRuleSettled : 0) | (is_old_settled ? kOldSettled : 0);
}

template <typename T, int kTensors, typename Rule>
void launch_update(const KernelArgs& args, const UpdateLayout& layout, const Rule& rule) {
  const uint32_t settled = settled_parts(args, layout, Rule::kSlots);
  for (size_t first = 0; first < layout.count; first += kTensors) {
    const auto table = fill_table<T, Rule::kSlots, kTensors>(args, layout, first);
    if (table.stretches == 0) continue;
    update_tensors<T>
        <<<table.stretches, kUpdateThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
            table, rule, settled);
    check_launch("optimizer update");
  }
}

// make_rule(args) gives the rule with its device pointers.
template <typename T, typename MakeRule>
std::unique_ptr<Kernel> make_update(std::string description, const UpdateLayout& layout,
                                    const MakeRule& make_rule) {
  return make_early_kernel(std::move(description), [layout, make_rule](const KernelArgs& args) {
    const auto rule = make_rule(args);
    if constexpr (std::is_same_v<T, float>) {
      if (layout.count <= kFewTensors) return launch_update<T, kFewTensors>(args, layout, rule);
    }
    launch_update<T, kMostTensors>(args, layout, rule);
  });
}

// Fills in the sizes. Throws where the tensors have more stretches than an int can number, which is
// a terabyte of parameters.
void measure(const PlanRequest& request, UpdateLayout& layout) {
  int64_t total = 0;
  for (size_t i = 0; i < layout.count; ++i) {
    const Shape& shape = request.inputs[layout.parameter + i].shape;
    const TensorSpec& gradient = request.inputs[layout.gradient + i];
    const int64_t copies = gradient_copies(gradient.shape, shape);
    layout.gradient_dtypes.push_back(gradient.dtype);
    if (copies > kMostCopies) {
      throw ValueError(message(request.op.name, ": gradient ", i, " is a stack of ", copies,
                               " partial sums; add up some of them before"));
    }
    layout.sizes.push_back(num_elements(shape));
    layout.copies.push_back(static_cast<int>(copies));
    total += stretches_of(layout.sizes.back(), layout.copies.back());
  }
  if (total > INT32_MAX) {
    throw ValueError(message(request.op.name,
                             ": the parameters have more elements than one update ", "can take (",
                             INT32_MAX * kStretch, ")"));
  }
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
  measure(request, layout);
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
  measure(request, layout);
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
