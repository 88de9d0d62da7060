// Reads and writes y once, 16 bytes at a time. The grid is as large as what runs at once, and goes
// over y from its end: what the product or convolution before this wrote last may still be in the
// L2 cache, and what is written last here is what the next kernel begins with. A thread goes on by
// whole rows, so that it has the same columns each time, whose biases stay in its registers.
#include "core/backend/cuda/products/bias_activation.h"

#include <algorithm>
#include <numeric>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/elementwise/activation.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/movement/copy.cuh"
#include "core/backend/cuda/runtime/check.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/base/ceil_div.h"

namespace kerascnn::cuda {
namespace {

// Blocks of a multiprocessor that run at once, by the registers that they take.
constexpr int kBlocksPerMultiprocessor = 4;

// Packs that a thread has under way: their loads overlap. Simple activations leave registers for
// more.
constexpr int packs_of_thread(bool simple) { return simple ? 4 : 2; }

// How y is shared out. A thread takes the packs that are whole multiples of `threads` apart.
struct Shares {
  int64_t size;     // elements
  int64_t packs;    // whole ones
  int64_t threads;  // that take packs; a multiple of the packs after which columns repeat
  int64_t rounds;   // packs of a thread, at most
};

Shares shares_of(int64_t size, int64_t channels, int64_t pack) {
  const int64_t period = channels / std::gcd(channels, pack);
  const int64_t packs = size / pack;
  const int64_t at_once =
      int64_t{kBlocksPerMultiprocessor} * Context::current().multiprocessors() * kThreads;
  const int64_t threads = ceil_div(std::min(at_once, std::max<int64_t>(packs, 1)), period) * period;
  return {size, packs, threads, ceil_div(packs, threads)};
}

// kSimple: the activation is linear or relu, and has little code.
template <typename T, int N, bool kSimple>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    bias_activation_kernel(T* __restrict__ y, const T* __restrict__ bias, Shares shares,
                           int64_t channels, Activation kind, compute_t<T> alpha) {
  using C = compute_t<T>;
  using Pack = Vector<T, N>;
  constexpr int kPacks = packs_of_thread(kSimple);
  begin_kernel();
  const auto apply = [&]<int M>(C(&values)[M]) {
    if constexpr (kSimple) {
      if (kind == Activation::Relu) {
#pragma unroll
        for (int k = 0; k < M; ++k) values[k] = activate(Activation::Relu, values[k], alpha);
      }
    } else {
      activate_all(kind, values, alpha);
    }
  };
  const int64_t thread = first_item();
  if (thread < shares.threads) {
    C offsets[N];
    int64_t column = divide(thread * N, channels).remainder;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      offsets[k] = bias != nullptr ? load(bias[column]) : C(-0.0);  // which changes no number
      if (++column == channels) column = 0;
    }
    Pack* const all = reinterpret_cast<Pack*>(y);
    int64_t i = thread + (shares.rounds - 1) * shares.threads;
    if (i >= shares.packs) i -= shares.threads;  // the last round is not whole
    for (; i >= 0; i -= kPacks * shares.threads) {
      Pack packs[kPacks];
#pragma unroll
      for (int u = 0; u < kPacks; ++u) {
        const int64_t pack = i - u * shares.threads;
        packs[u] = all[pack < 0 ? thread : pack];  // what is read twice is stored once
      }
      C values[kPacks * N];
#pragma unroll
      for (int k = 0; k < kPacks * N; ++k) {
        values[k] = load(packs[k / N].values[k % N]) + offsets[k % N];
      }
      apply(values);
#pragma unroll
      for (int u = 0; u < kPacks; ++u) {
        const int64_t pack = i - u * shares.threads;
#pragma unroll
        for (int k = 0; k < N; ++k) packs[u].values[k] = store<T>(values[u * N + k]);
        if (pack >= 0) all[pack] = packs[u];
      }
    }
  }
  const int64_t rest = shares.packs * N + thread;  // what is no pack
  if (rest < shares.size) {
    C values[1] = {load(y[rest])};
    if (bias != nullptr) values[0] += load(bias[divide(rest, channels).remainder]);
    apply(values);
    y[rest] = store<T>(values[0]);
  }
}

}  // namespace

void launch_bias_activation(DType dtype, void* y, const void* bias, int64_t rows, int64_t channels,
                            const ActivationCall& activation, cudaStream_t stream) {
  const int64_t size = rows * channels;
  if (size == 0) return;
  const bool simple = activation.kind == Activation::Linear || activation.kind == Activation::Relu;
  dispatch_floating("bias_activation", dtype, [&]<typename T>(Type<T>) {
    // Every tensor that a kernel gets is aligned to this.
    constexpr int kWidest = static_cast<int>(kWidestWord / sizeof(T));
    const Shares shares = shares_of(size, channels, kWidest);
    const auto launch = [&](auto* kernel) {
      kernel<<<static_cast<unsigned>(ceil_div(shares.threads, kThreads)), kThreads, 0, stream>>>(
          static_cast<T*>(y), static_cast<const T*>(bias), shares, channels, activation.kind,
          static_cast<compute_t<T>>(activation.alpha));
    };
    if (simple) {
      launch(bias_activation_kernel<T, kWidest, true>);
    } else {
      launch(bias_activation_kernel<T, kWidest, false>);
    }
    check_launch("bias_activation");
  });
}

}  // namespace kerascnn::cuda
