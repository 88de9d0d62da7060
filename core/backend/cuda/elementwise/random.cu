// Random numbers (Philox, counted by the state {seed, counter}) and dropout. A thread takes one
// Philox block, which gives four elements.
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/movement/copy.cuh"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/ops/philox.h"

namespace kerascnn::cuda {
namespace {

constexpr int kBlockThreads = 128;
constexpr int kBlockElements = 4;

struct RandomParams {
  int64_t size = 0;
  uint32_t stream = 0;
  bool vectorized = false;  // the tensors are aligned to four elements
};

template <typename T>
__device__ __forceinline__ void store_block(T* out, int64_t at, const T (&values)[kBlockElements],
                                            const RandomParams& params) {
  if (params.vectorized && at + kBlockElements <= params.size) {
    Vector<T, kBlockElements> vector;
#pragma unroll
    for (int k = 0; k < kBlockElements; ++k) vector.values[k] = values[k];
    *reinterpret_cast<Vector<T, kBlockElements>*>(out + at) = vector;
    return;
  }
#pragma unroll
  for (int k = 0; k < kBlockElements; ++k) {
    if (at + k < params.size) out[at + k] = values[k];
  }
}

// Each turns the words of one block into four elements.
template <typename T>
struct Uniform {
  using C = compute_t<T>;
  C low, high;

  __device__ __forceinline__ void operator()(const PhiloxBlock& block, T (&out)[4]) const {
#pragma unroll
    for (int k = 0; k < 4; ++k) out[k] = store<T>(philox_uniform(block.words[k], low, high));
  }
};

template <typename T>
struct Normal {
  using C = compute_t<T>;
  C mean, stddev;

  __device__ __forceinline__ void operator()(const PhiloxBlock& block, T (&out)[4]) const {
    C values[4];
    philox_normal_pair(block.words[0], block.words[1], values[0], values[1]);
    philox_normal_pair(block.words[2], block.words[3], values[2], values[3]);
#pragma unroll
    for (int k = 0; k < 4; ++k) out[k] = store<T>(mean + stddev * values[k]);
  }
};

template <typename T>
struct Bernoulli {
  uint32_t threshold;

  __device__ __forceinline__ void operator()(const PhiloxBlock& block, T (&out)[4]) const {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const compute_t<T> value = philox_keep(block.words[k], threshold) ? 1 : 0;
      out[k] = store<T>(value);
    }
  }
};

template <typename T, typename Distribution>
__global__ void __launch_bounds__(kBlockThreads)
    draw(const int64_t* __restrict__ state, T* __restrict__ out, RandomParams params,
         Distribution distribution) {
  begin_kernel();
  const int64_t blocks = (params.size + kBlockElements - 1) / kBlockElements;
  for (int64_t block = first_item(); block < blocks; block += item_step()) {
    T values[kBlockElements];
    distribution(philox_block(state, params.stream, static_cast<uint64_t>(block)), values);
    store_block(out, block * kBlockElements, values, params);
  }
}

// y may be x: a thread reads its elements before it writes them.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    dropout(const T* x, const int64_t* __restrict__ state, T* y, RandomParams params,
            uint32_t threshold, compute_t<T> scale) {
  begin_kernel();
  const int64_t blocks = (params.size + kBlockElements - 1) / kBlockElements;
  for (int64_t block = first_item(); block < blocks; block += item_step()) {
    const int64_t at = block * kBlockElements;
    T values[kBlockElements] = {};
    if (params.vectorized && at + kBlockElements <= params.size) {
      const auto vector = *reinterpret_cast<const Vector<T, kBlockElements>*>(x + at);
#pragma unroll
      for (int k = 0; k < kBlockElements; ++k) values[k] = vector.values[k];
    } else {
#pragma unroll
      for (int k = 0; k < kBlockElements; ++k) {
        if (at + k < params.size) values[k] = x[at + k];
      }
    }
    const PhiloxBlock random = philox_block(state, params.stream, static_cast<uint64_t>(block));
#pragma unroll
    for (int k = 0; k < kBlockElements; ++k) {
      values[k] = store<T>(philox_keep(random.words[k], threshold) ? load(values[k]) * scale
                                                                   : compute_t<T>(0));
    }
    store_block(y, at, values, params);
  }
}

__global__ void random_advance(const int64_t* state, int64_t* next, int64_t amount) {
  begin_kernel();
  const int64_t seed = state[0];
  const uint64_t counter = static_cast<uint64_t>(state[1]) + static_cast<uint64_t>(amount);
  next[0] = seed;
  next[1] = static_cast<int64_t>(counter);
}

RandomParams make_params(const PlanRequest& request) {
  RandomParams params;
  params.size = num_elements(request.outputs[0].shape);
  params.stream = static_cast<uint32_t>(request.attributes.get_int("stream"));
  return params;
}

unsigned block_grid(const RandomParams& params) {
  return grid_for(params.size, kBlockThreads * kBlockElements);
}

template <typename T, typename Distribution>
std::unique_ptr<Kernel> make_draw(const RandomParams& planned, const Distribution& distribution) {
  return make_early_kernel("kerascnn Philox", [planned, distribution](const KernelArgs& args) {
    if (planned.size == 0) return;
    RandomParams params = planned;
    params.vectorized = is_aligned(args.outputs[0], sizeof(T) * kBlockElements);
    draw<T><<<block_grid(params), kBlockThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
        input<int64_t>(args, 0), output<T>(args, 0), params, distribution);
    check_launch("random numbers");
  });
}

}  // namespace

std::unique_ptr<Kernel> plan_random_uniform(const PlanRequest& request) {
  const double low = request.attributes.get_double("minval");
  const double high = request.attributes.get_double("maxval");
  return dispatch_floating("random_uniform", request.outputs[0].dtype, [&]<typename T>(Type<T>) {
    using C = compute_t<T>;
    return make_draw<T>(make_params(request),
                        Uniform<T>{static_cast<C>(low), static_cast<C>(high)});
  });
}

std::unique_ptr<Kernel> plan_random_normal(const PlanRequest& request) {
  const double mean = request.attributes.get_double("mean");
  const double stddev = request.attributes.get_double("stddev");
  return dispatch_floating("random_normal", request.outputs[0].dtype, [&]<typename T>(Type<T>) {
    using C = compute_t<T>;
    return make_draw<T>(make_params(request),
                        Normal<T>{static_cast<C>(mean), static_cast<C>(stddev)});
  });
}

std::unique_ptr<Kernel> plan_random_bernoulli(const PlanRequest& request) {
  const uint32_t threshold = philox_threshold(request.attributes.get_double("p"));
  const auto plan = [&]<typename T>(Type<T>) {
    return make_draw<T>(make_params(request), Bernoulli<T>{threshold});
  };
  // A bool is a byte that is 0 or 1.
  if (request.outputs[0].dtype == DType::Bool) return plan(Type<uint8_t>());
  return dispatch_number("random_bernoulli", request.outputs[0].dtype, plan);
}

std::unique_ptr<Kernel> plan_dropout(const PlanRequest& request) {
  const double rate = request.attributes.get_double("rate");
  const uint32_t threshold = philox_threshold(1.0 - rate);
  const RandomParams planned = make_params(request);
  return dispatch_floating("dropout", request.outputs[0].dtype, [&]<typename T>(Type<T>) {
    using C = compute_t<T>;
    const C scale = rate < 1.0 ? static_cast<C>(1.0 / (1.0 - rate)) : C(0);
    return make_early_kernel("kerascnn dropout", [planned, threshold,
                                                  scale](const KernelArgs& args) {
      if (planned.size == 0) return;
      RandomParams params = planned;
      constexpr int64_t kBytes = sizeof(T) * kBlockElements;
      params.vectorized = is_aligned(args.inputs[0], kBytes) && is_aligned(args.outputs[0], kBytes);
      dropout<T><<<block_grid(params), kBlockThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
          input<T>(args, 0), input<int64_t>(args, 1), output<T>(args, 0), params, threshold, scale);
      check_launch("dropout");
    });
  });
}

std::unique_ptr<Kernel> plan_random_advance(const PlanRequest& request) {
  const int64_t amount =
      request.attributes.has("amount") ? request.attributes.get_int("amount") : 1;
  return make_early_kernel("kerascnn random_advance", [amount](const KernelArgs& args) {
    random_advance<<<1, 1, 0, static_cast<cudaStream_t>(args.stream)>>>(
        input<int64_t>(args, 0), output<int64_t>(args, 0), amount);
    check_launch("random_advance");
  });
}

}  // namespace kerascnn::cuda
