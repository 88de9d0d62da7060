// Random numbers by Philox, counted by the state {seed, counter}, so that a call gives the same
// numbers whatever the number of threads.
#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/ops/philox.h"

namespace kerascnn::cpu {

namespace {

constexpr int64_t kBlockGrain = 1024;

// Calls body(first element, number of elements, words) for all elements of `size`, many Philox
// blocks at a time. The last block has its four words too where it has fewer elements.
template <typename Body>
void for_each_words(const int64_t* state, uint32_t stream, int64_t size, const Body& body) {
  parallel_for((size + 3) / 4, kBlockGrain, [&](int64_t begin, int64_t end) {
    constexpr int64_t kBlocks = 64;
    uint32_t words[4 * kBlocks];
    for (int64_t block = begin; block < end; block += kBlocks) {
      const int64_t whole = 4 * std::min(kBlocks, end - block);
      float_kernels().random_words(state, stream, block, whole, words);
      body(4 * block, std::min(whole, size - 4 * block), words);
    }
  });
}

uint32_t stream_of(const PlanRequest& request) {
  return static_cast<uint32_t>(request.attributes.get_int("stream"));
}

// Element i of the output is make(random word, args, i); the state is the input of that number.
template <typename T, typename Make>
std::unique_ptr<Kernel> make_word_kernel(const PlanRequest& request, const char* description,
                                         size_t state, const Make& make) {
  const int64_t size = size_of(request.outputs[0]);
  return make_kernel(description, [=, stream = stream_of(request)](const KernelArgs& args) {
    T* out = output<T>(args, 0);
    for_each_words(input<int64_t>(args, state), stream, size,
                   [&](int64_t at, int64_t count, const uint32_t* words) {
                     for (int64_t i = 0; i < count; ++i) {
                       out[at + i] = make(words[i], args, at + i);
                     }
                   });
  });
}

std::unique_ptr<Kernel> make_float_uniform(int64_t size, uint32_t stream, float low, float high) {
  return make_kernel("kerascnn Philox", [=](const KernelArgs& args) {
    parallel_for((size + 3) / 4, kBlockGrain, [&](int64_t begin, int64_t end) {
      float_kernels().uniform(input<int64_t>(args, 0), stream, low, high, begin,
                              std::min(4 * end, size) - 4 * begin,
                              output<float>(args, 0) + 4 * begin);
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> plan_random_uniform(const PlanRequest& request) {
  const double minval = request.attributes.get_double("minval");
  const double maxval = request.attributes.get_double("maxval");
  return dispatch_floating(request, request.outputs[0].dtype, [&]<typename T>(Type<T>) {
    using C = compute_t<T>;
    const C low = static_cast<C>(minval), high = static_cast<C>(maxval);
    if constexpr (std::is_same_v<T, float>) {
      return make_float_uniform(size_of(request.outputs[0]), stream_of(request), low, high);
    }
    return make_word_kernel<T>(request, "kerascnn Philox", 0,
                               [low, high](uint32_t word, const KernelArgs&, int64_t) {
                                 return static_cast<T>(philox_uniform(word, low, high));
                               });
  });
}

std::unique_ptr<Kernel> plan_random_normal(const PlanRequest& request) {
  const int64_t size = size_of(request.outputs[0]);
  const uint32_t stream = stream_of(request);
  const double mean = request.attributes.get_double("mean");
  const double stddev = request.attributes.get_double("stddev");
  return dispatch_floating(request, request.outputs[0].dtype, [&]<typename T>(Type<T>) {
    using C = compute_t<T>;
    return make_kernel("kerascnn Philox",
                       [size, stream, mean = static_cast<C>(mean),
                        stddev = static_cast<C>(stddev)](const KernelArgs& args) {
                         T* out = output<T>(args, 0);
                         for_each_words(input<int64_t>(args, 0), stream, size,
                                        [&](int64_t at, int64_t count, const uint32_t* words) {
                                          for (int64_t i = 0; i < count; i += 2) {
                                            C even, odd;
                                            philox_normal_pair(words[i], words[i + 1], even, odd);
                                            out[at + i] = static_cast<T>(mean + stddev * even);
                                            if (i + 1 < count)
                                              out[at + i + 1] = static_cast<T>(mean + stddev * odd);
                                          }
                                        });
                       });
  });
}

std::unique_ptr<Kernel> plan_random_bernoulli(const PlanRequest& request) {
  const uint32_t threshold = philox_threshold(request.attributes.get_double("p"));
  return dispatch_any(request, request.outputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_word_kernel<T>(request, "kerascnn Philox", 0,
                               [threshold](uint32_t word, const KernelArgs&, int64_t) {
                                 return static_cast<T>(philox_keep(word, threshold) ? 1 : 0);
                               });
  });
}

namespace {

std::unique_ptr<Kernel> make_float_dropout(int64_t size, uint32_t stream, uint32_t threshold,
                                           float scale) {
  const FloatKernels& kernels = float_kernels();
  return make_kernel(
      message("kerascnn dropout:", kernels.name), [=, &kernels](const KernelArgs& args) {
        parallel_for((size + 3) / 4, kBlockGrain, [&](int64_t begin, int64_t end) {
          kernels.dropout(input<float>(args, 0) + 4 * begin, output<float>(args, 0) + 4 * begin,
                          input<int64_t>(args, 1), stream, threshold, scale, begin,
                          std::min(4 * end, size) - 4 * begin);
        });
      });
}

}  // namespace

std::unique_ptr<Kernel> plan_dropout(const PlanRequest& request) {
  const int64_t size = size_of(request.outputs[0]);
  const uint32_t stream = stream_of(request);
  const double rate = request.attributes.get_double("rate");
  const uint32_t threshold = philox_threshold(1 - rate);
  return dispatch_floating(request, request.outputs[0].dtype, [&]<typename T>(Type<T>) {
    using C = compute_t<T>;
    const C scale = rate < 1 ? static_cast<C>(1 / (1 - rate)) : C(0);
    if constexpr (std::is_same_v<T, float>) {
      return make_float_dropout(size, stream, threshold, scale);
    }
    return make_word_kernel<T>(
        request, "kerascnn dropout", 1,
        [threshold, scale](uint32_t word, const KernelArgs& args, int64_t i) {
          if (!philox_keep(word, threshold)) return static_cast<T>(0);
          return static_cast<T>(static_cast<C>(input<T>(args, 0)[i]) * scale);
        });
  });
}

std::unique_ptr<Kernel> plan_random_advance(const PlanRequest& request) {
  const int64_t amount = request.attributes.get_int("amount");
  return make_kernel("kerascnn random_advance", [amount](const KernelArgs& args) {
    const int64_t* state = input<int64_t>(args, 0);
    int64_t* next = output<int64_t>(args, 0);
    const uint64_t counter = static_cast<uint64_t>(state[1]) + static_cast<uint64_t>(amount);
    next[0] = state[0];
    next[1] = static_cast<int64_t>(counter);
  });
}

}  // namespace kerascnn::cpu
