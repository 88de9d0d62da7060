// The head of a classifier takes one trip to memory: the last layer, softmax, loss, gradient of the
// logits, and the gradient of the layer's input. A thread takes four features of a few samples. It
// keeps their rows of the layer's kernel in registers, first for the logits, whose sums warps,
// block and cluster add up in a fixed order, then for the gradient of the features. All in float32:
// these products are too few for tensor cores to matter.
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/elementwise/activation.cuh"
#include "core/backend/cuda/fusions/dense_loss.h"
#include "core/backend/cuda/fusions/fusions.h"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/movement/indices.cuh"
#include "core/backend/cuda/normalization/cross_entropy.cuh"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/tiles/async_copy.cuh"
#include "core/backend/cuda/tiles/cluster.cuh"
#include "core/backend/cuda/tiles/ordered_sums.cuh"
#include "core/ops/activation_kind.h"
#include "core/ops/philox.h"

namespace kerascnn::cuda {
namespace {

constexpr int kFeatures = 4;   // of a thread, and elements of a Philox block
constexpr int kMaxSplits = 8;  // blocks that share the features: the largest portable cluster
constexpr int kWarpFeatures = 32 * kFeatures;

// The kernel is compiled for these numbers of classes, and takes fewer too. A thread's rows of the
// layer's kernel are in registers, four for each class, and before that in shared memory: kFew is
// as many as 256 threads have room for, kSome leaves registers for blocks of several samples, and
// 32 are the columns of eight lanes. Rows of exactly as many are read as vectors, since the place
// of each element in the registers is known when the kernel is compiled.
constexpr int kFew = 10, kSome = 16, kMaxClasses = 32;

struct Head {
  int rows, features, classes;
  int splits;
  int slice;      // features of a block, a multiple of kFeatures
  bool vector_x;  // rows of the input are multiples of 16 bytes
  CrossEntropy loss;
  Activation activation;  // before the layer, or before the dropout
  float alpha;
  uint32_t threshold, stream;  // of the dropout
  float scale;
};

template <typename Label>
struct Tensors {
  const float* x;
  const float* kernel;
  const float* bias;  // null where there is none
  const Label* labels;
  const float* gy;
  const int64_t* state;  // null where there is no dropout
  float* loss;
  float* probabilities;
  float* gradient;
  float* dx;
  float* dropped;  // null where nobody reads it
};

// A row of logits has so many columns in shared memory.
template <int kClasses>
constexpr int kColumns = (kClasses + 3) / 4 * 4;

// A block has so many threads: its slice of the kernel must fit into 48 KiB of shared memory.
template <int kClasses>
constexpr int kMaxThreads = kClasses <= kFew ? 256 : (kClasses <= kSome ? 128 : 64);

// Samples of a block, where there are more than the device has multiprocessors.
template <int kClasses>
constexpr int kManyRows = kClasses <= kSome ? 4 : 1;

template <int kClasses, int kRows>
constexpr size_t shared_bytes(int warps, int splits) {
  const int sums = kRows * kColumns<kClasses>;
  const int received = splits > 1 ? splits : 0;
  return static_cast<size_t>(warps * (kWarpFeatures * kClasses + 2 * sums) + received * sums) *
         sizeof(float);
}

template <int kClasses>
constexpr bool fits_in_shared_memory =
    shared_bytes<kClasses, kManyRows<kClasses>>(256 / 32, kMaxSplits) <= size_t{48} << 10;
static_assert(fits_in_shared_memory<kFew> && !fits_in_shared_memory<kFew + 1>);

// Adds up every value over the warp. Each lane keeps some of the sums: `count` of them at the front
// of `values`, beginning with number `first`.
template <int kStep, int kCount, int kSize>
__device__ __forceinline__ void share_sums(float (&values)[kSize], int& first, int& count) {
  constexpr int kHalf = (kCount + 1) / 2;
  const bool upper = (threadIdx.x & kStep) != 0;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float low = values[i];
    const float high = i + kHalf < kCount ? values[i + kHalf] : 0.0f;
    values[i] = (upper ? high : low) + __shfl_xor_sync(kFullWarp, upper ? low : high, kStep);
  }
  first += upper ? kHalf : 0;
  count = upper ? max(count - kHalf, 0) : min(count, kHalf);
  if constexpr (kStep > 1) share_sums<kStep / 2, kHalf>(values, first, count);
}

// A thread has four features of one sample.
struct Features {
  float values[kFeatures];
};

__device__ __forceinline__ Features load_features(const float* __restrict__ from, int count,
                                                  bool vector) {
  Features f{};
  if (vector) {
    if (count > 0) *reinterpret_cast<float4*>(f.values) = *reinterpret_cast<const float4*>(from);
    return f;
  }
#pragma unroll
  for (int i = 0; i < kFeatures; ++i) {
    if (i < count) f.values[i] = from[i];
  }
  return f;
}

__device__ __forceinline__ void store_features(float* __restrict__ to, const Features& f, int count,
                                               bool vector) {
  if (vector) {
    if (count > 0) *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(f.values);
    return;
  }
#pragma unroll
  for (int i = 0; i < kFeatures; ++i) {
    if (i < count) to[i] = f.values[i];
  }
}

// Which of the elements from number `first` on the dropout keeps, as bits.
__device__ __forceinline__ unsigned kept_elements(const int64_t* state, uint32_t stream,
                                                  uint32_t threshold, int first, bool aligned) {
  unsigned kept = 0;
  if (aligned) {
    const PhiloxBlock block = philox_block(state, stream, static_cast<uint64_t>(first / kFeatures));
#pragma unroll
    for (int i = 0; i < kFeatures; ++i) {
      kept |= philox_keep(block.words[i], threshold) ? 1u << i : 0u;
    }
    return kept;
  }
  for (int i = 0; i < kFeatures; ++i) {
    const int element = first + i;
    const PhiloxBlock block =
        philox_block(state, stream, static_cast<uint64_t>(element / kFeatures));
    const int place = element % kFeatures;
    const uint32_t word = place < 2 ? (place == 0 ? block.words[0] : block.words[1])
                                    : (place == 2 ? block.words[2] : block.words[3]);
    kept |= philox_keep(word, threshold) ? 1u << i : 0u;
  }
  return kept;
}

__device__ __forceinline__ Features drop(const Features& f, unsigned kept, float scale) {
  Features result;
#pragma unroll
  for (int i = 0; i < kFeatures; ++i) {
    result.values[i] = (kept >> i & 1u) != 0 ? f.values[i] * scale : 0.0f;
  }
  return result;
}

// Starts copying the warp's rows of the layer's kernel, which lie one after another.
template <int kClasses, bool kExact>
__device__ __forceinline__ void copy_kernel_rows(float* shared, const float* __restrict__ kernel,
                                                 int rows, int classes) {
  const int lane = threadIdx.x % 32;
  const int count = max(rows, 0) * classes;
#pragma unroll
  for (int j = 0; j < kClasses; ++j) {
    if (!kExact && j >= classes) break;
    const int at = (j * 32 + lane) * 4;
    if (at + 4 <= count) copy_async_16(shared + at, kernel + at, true);
  }
  commit_copies();
  const int rest = count / 4 * 4 + lane;
  if (rest < count) shared[rest] = kernel[rest];
}

// Reads a thread's rows of the kernel; zeros beyond the `rows` that there are.
template <int kClasses, bool kExact>
__device__ __forceinline__ void load_kernel_rows(float (&w)[kFeatures * kClasses],
                                                 const float* shared, int rows, int classes) {
  const float* from = shared + threadIdx.x % 32 * kFeatures * classes;
  if constexpr (kExact) {
#pragma unroll
    for (int i = 0; i < kClasses; ++i) {
      *reinterpret_cast<float4*>(w + 4 * i) = *reinterpret_cast<const float4*>(from + 4 * i);
    }
    if (rows >= kFeatures) return;
#pragma unroll
    for (int i = 0; i < kFeatures * kClasses; ++i) {
      if (i >= rows * kClasses) w[i] = 0.0f;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kFeatures; ++i) {
#pragma unroll
      for (int c = 0; c < kClasses; ++c) {
        w[i * kClasses + c] = i < rows && c < classes ? from[i * classes + c] : 0.0f;
      }
    }
  }
}

// Turns the gradient behind an activation, with the outputs y, into the one before it.
__device__ __forceinline__ void undo_activation(Features& g, const Features& y,
                                                Activation activation, float alpha) {
  if (activation == Activation::Linear) return;
#pragma unroll
  for (int i = 0; i < kFeatures; ++i) {
    g.values[i] = activation == Activation::Relu
                      ? element::relu_grad(g.values[i], y.values[i])
                      : activation_gradient(activation, g.values[i], y.values[i], alpha);
  }
}

// With kExact there are kClasses classes, not fewer.
template <int kClasses, bool kExact, int kRows, typename Label>
__global__ void __launch_bounds__(kMaxThreads<kClasses>)
    dense_loss_dgrad(const __grid_constant__ Head p, const __grid_constant__ Tensors<Label> t,
                     uint32_t settled) {
  constexpr int kVectors = kRows * kColumns<kClasses> / 4;
  constexpr int kRowVectors = kColumns<kClasses> / 4;
  extern __shared__ float4 shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int split = blockIdx.x % p.splits;  // and the rank in the cluster
  const int first_row = blockIdx.x / p.splits * kRows;
  const int end = min(p.features, (split + 1) * p.slice);
  const int feature = split * p.slice + threadIdx.x * kFeatures;
  const int count = end - feature;  // of the thread, at most kFeatures count
  float* of_warp = reinterpret_cast<float*>(shared) + warp * kWarpFeatures * kClasses;
  float4* parts = shared + warps * kWarpFeatures * kClasses / 4;  // of each warp
  float4* slopes = parts + warps * kVectors;                      // the same in each warp
  float4* received = slopes + warps * kVectors;                   // of each block of the cluster
  const int classes = kExact ? kClasses : p.classes;
  // Others may write into this block's shared memory once it runs.
  if (p.splits > 1) arrive_in_cluster();

  const int first_of_warp = split * p.slice + warp * kWarpFeatures;
  Features x[kRows];
  // For the loss, eight lanes of a warp share a row; where there are few rows, the other lanes do
  // the same work again.
  const int own_row = min(first_row + lane / 8 % kRows, p.rows - 1);
  const int column = lane % 8 * 4;
  int64_t label = 0;
  float gy = 0.0f;
  float bias[4] = {};
  unsigned kept[kRows] = {};
  begin_kernel(
      settled,
      [&] {
        copy_kernel_rows<kClasses, kExact>(of_warp, t.kernel + first_of_warp * classes,
                                           min(end - first_of_warp, kWarpFeatures), classes);
      },
      [&] {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const int row = first_row + r;
          x[r] =
              load_features(t.x + row * p.features + feature, row < p.rows ? count : 0, p.vector_x);
        }
      },
      [&] {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (t.bias != nullptr && column + j < classes) bias[j] = t.bias[column + j];
        }
      },
      [&] { label = static_cast<int64_t>(t.labels[own_row]); }, [&] { gy = t.gy[own_row]; },
      [&] {
        if (t.state == nullptr) return;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          kept[r] = kept_elements(t.state, p.stream, p.threshold,
                                  (first_row + r) * p.features + feature, p.vector_x);
        }
      });

  wait_for_copies<0>();
  __syncwarp();
  float w[kFeatures * kClasses];
  load_kernel_rows<kClasses, kExact>(w, of_warp, min(count, kFeatures), classes);
  float sums[kRows * kClasses];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    Features given = x[r];
    if (t.state != nullptr) {
      given = drop(x[r], kept[r], p.scale);
      const int row = first_row + r;
      if (t.dropped != nullptr && row < p.rows) {
        store_features(t.dropped + row * p.features + feature, given, count, p.vector_x);
      }
    }
#pragma unroll
    for (int c = 0; c < kClasses; ++c) {
      float sum = given.values[0] * w[c];
#pragma unroll
      for (int i = 1; i < kFeatures; ++i) sum += given.values[i] * w[i * kClasses + c];
      sums[r * kClasses + c] = sum;
    }
  }
  int first = 0, number = kRows * kClasses;
  share_sums<16, kRows * kClasses>(sums, first, number);
  constexpr int kKept = (kRows * kClasses + 31) / 32 + 1;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (i >= number) break;
    const int row = (first + i) / kClasses, at = (first + i) % kClasses;
    reinterpret_cast<float*>(parts + warp * kVectors)[row * kColumns<kClasses> + at] = sums[i];
  }
  __syncthreads();
  if (p.splits > 1) {
    // Every block gets what each block has.
    wait_for_cluster();
    for (int i = threadIdx.x; i < kVectors * p.splits; i += blockDim.x) {
      const int vector = i % kVectors;
      store_in_cluster(received + split * kVectors + vector, i / kVectors,
                       sum_in_order<kMaxSplits>(parts + vector, warps, kVectors));
    }
    arrive_in_cluster();
    wait_for_cluster();
  }

  const int from = lane / 8 % kRows * kRowVectors + lane % 8;
  float4 sum{};
  if (lane % 8 < kRowVectors) {
    sum = p.splits > 1 ? sum_in_order<kMaxSplits>(received + from, p.splits, kVectors)
                       : sum_in_order<kMaxSplits>(parts + from, warps, kVectors);
  }
  const float logits[4] = {sum.x + bias[0], sum.y + bias[1], sum.z + bias[2], sum.w + bias[3]};
  const CrossEntropyColumns result = p.loss(logits, column, classes, label, gy);
  float4* own_slopes = slopes + warp * kVectors;
  if (lane % 8 < kRowVectors && lane / 8 < kRows) {
    own_slopes[from] = {result.slopes[0], result.slopes[1], result.slopes[2], result.slopes[3]};
  }
  __syncwarp();

#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = first_row + r;
    if (row >= p.rows) break;
    float g[kColumns<kClasses>];
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
      *reinterpret_cast<float4*>(g + 4 * v) = own_slopes[r * kRowVectors + v];
    }
    Features dx{};
#pragma unroll
    for (int i = 0; i < kFeatures; ++i) {
#pragma unroll
      for (int c = 0; c < kClasses; ++c) {
        if (kExact || c < classes) dx.values[i] += g[c] * w[i * kClasses + c];
      }
    }
    if (t.state != nullptr) dx = drop(dx, kept[r], p.scale);
    undo_activation(dx, x[r], p.activation, p.alpha);
    store_features(t.dx + row * p.features + feature, dx, count, p.vector_x);
  }

  const int row = first_row + lane / 8;
  if (split != 0 || warp != 0 || lane / 8 >= kRows || row >= p.rows) return;
  if (column == 0) t.loss[row] = result.loss;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (column + j >= classes) break;
    t.probabilities[row * classes + column + j] = result.probabilities[j];
    t.gradient[row * classes + column + j] = result.slopes[j];
  }
}

// How a call is launched; threads is 0 where it does not fit.
struct Launch {
  int splits = 1, slice = 0, threads = 0;
  int rows = 1;  // of a block
};

template <int kClasses>
Launch make_launch(int64_t rows, int64_t features, int max_splits) {
  // Small blocks: fewer warps share a multiprocessor, and the device has enough of these.
  constexpr int64_t kWanted = std::min(kMaxThreads<kClasses>, 128) * kFeatures;
  Launch launch;
  while (launch.splits < max_splits && ceil_div(features, launch.splits) > kWanted) {
    launch.splits *= 2;
  }
  launch.slice =
      static_cast<int>(ceil_div(ceil_div(features, launch.splits), kFeatures)) * kFeatures;
  const int64_t threads = ceil_div(launch.slice, kWarpFeatures) * 32;
  if (threads <= kMaxThreads<kClasses>) launch.threads = static_cast<int>(threads);
  const bool has_room = rows * launch.splits <= Context::current().multiprocessors();
  launch.rows = has_room ? 1 : kManyRows<kClasses>;
  return launch;
}

template <int kClasses, bool kExact, int kRows>
bool has_clusters(const Launch& launch) {
  if (Context::current().compute_capability() < 90 || launch.threads == 0) return false;
  const auto splits = static_cast<unsigned>(launch.splits);
  return ClusterLaunch(splits, static_cast<unsigned>(launch.threads), splits,
                       shared_bytes<kClasses, kRows>(launch.threads / 32, launch.splits))
      .fits(dense_loss_dgrad<kClasses, kExact, kRows, int32_t>);
}

// Calls function with what is compiled for the call: the number of classes, whether it is the exact
// one, and the rows of a block; and with the launch.
template <typename Function>
auto with_launch(const GemmShape& layer, Function&& function) {
  using std::integral_constant;
  const auto call = [&]<int kClasses, bool kExact>(integral_constant<int, kClasses> width,
                                                   integral_constant<bool, kExact> exact) {
    constexpr int kMany = kManyRows<kClasses>;
    Launch launch = make_launch<kClasses>(layer.m, layer.k, kMaxSplits);
    if (launch.splits > 1 && !has_clusters<kClasses, kExact, kMany>(launch)) {
      launch = make_launch<kClasses>(layer.m, layer.k, 1);
    }
    if (launch.rows == kMany) {
      return function(width, exact, integral_constant<int, kMany>(), launch);
    }
    return function(width, exact, integral_constant<int, 1>(), launch);
  };
  const auto call_with = [&](auto width) {
    return layer.n == width() ? call(width, std::true_type()) : call(width, std::false_type());
  };
  if (layer.n <= kFew) return call_with(integral_constant<int, kFew>());
  if (layer.n <= kSome) return call_with(integral_constant<int, kSome>());
  return call_with(integral_constant<int, kMaxClasses>());
}

Head make_head(const Match& match, const Launch& launch) {
  const GemmShape layer = dense_loss_layer(match);
  ActivationCall activation;
  if (match.has("activation")) activation = *undone_activation(match.node("activation"));
  double rate = 0.0;
  uint32_t stream = 0;
  if (match.has("dropout")) {
    const Attributes& dropout = match.node("dropout").attributes;
    rate = dropout.get_double("rate");
    stream = static_cast<uint32_t>(dropout.get_int("stream"));
  }
  return {.rows = static_cast<int>(layer.m),
          .features = static_cast<int>(layer.k),
          .classes = static_cast<int>(layer.n),
          .splits = launch.splits,
          .slice = launch.slice,
          .vector_x = layer.k % kFeatures == 0,
          .loss = CrossEntropy(dense_loss_epsilon(match)),
          .activation = activation.kind,
          .alpha = static_cast<float>(activation.alpha),
          .threshold = philox_threshold(1.0 - rate),
          .stream = stream,
          .scale = rate < 1.0 ? static_cast<float>(1.0 / (1.0 - rate)) : 0.0f};
}

template <typename Label>
Tensors<Label> tensors(const KernelArgs& args, const DenseLossArguments& at) {
  return {.x = input<float>(args, at.x),
          .kernel = input<float>(args, at.kernel),
          .bias = at.has_bias ? input<float>(args, at.bias) : nullptr,
          .labels = input<Label>(args, at.labels),
          .gy = input<float>(args, at.gradient),
          .state = at.drops ? input<int64_t>(args, at.state) : nullptr,
          .loss = output<float>(args, 0),
          .probabilities = output<float>(args, 1),
          .gradient = output<float>(args, 2),
          .dx = output<float>(args, 3),
          .dropped = at.drops ? output<float>(args, 4) : nullptr};
}

template <int kClasses, bool kExact, int kRows, typename Label>
std::unique_ptr<Kernel> plan(const Match& match, const Launch& launch) {
  const DenseLossArguments at(match);
  const Head head = make_head(match, launch);
  const unsigned blocks = static_cast<unsigned>(ceil_div(head.rows, kRows) * launch.splits);
  const size_t shared = shared_bytes<kClasses, kRows>(launch.threads / 32, launch.splits);
  return make_early_kernel(
      message("kerascnn classifier head, ", launch.splits, " blocks a cluster"),
      [=](const KernelArgs& args) {
        const auto stream = static_cast<cudaStream_t>(args.stream);
        const auto kernel = dense_loss_dgrad<kClasses, kExact, kRows, Label>;
        const Tensors<Label> t = tensors<Label>(args, at);
        const uint32_t settled = settled_loads(args, {{at.kernel},
                                                      {at.x},
                                                      {at.has_bias ? at.bias : at.kernel},
                                                      {at.labels},
                                                      {at.gradient},
                                                      {at.drops ? at.state : at.kernel}});
        if (launch.splits > 1) {
          ClusterLaunch(blocks, static_cast<unsigned>(launch.threads),
                        static_cast<unsigned>(launch.splits), shared, stream)
              .run(kernel, head, t, settled);
          return;
        }
        kernel<<<blocks, launch.threads, shared, stream>>>(head, t, settled);
        check_launch("dense_sparse_softmax_cross_entropy_dgrad");
      });
}

// With more products than this, the time that every block takes to read the layer's kernel counts
// for more than launches.
constexpr int64_t kMaxProducts = int64_t{1} << 24;

bool fits(const GemmShape& layer) {
  const bool is_possible = Context::current().compute_capability() >= 80 && layer.m > 0 &&
                           layer.k > 0 && layer.n > 0 && layer.n <= kMaxClasses;
  return is_possible && layer.m <= kMaxProducts && layer.k <= kMaxProducts &&
         layer.m * layer.k <= kMaxProducts && layer.m * layer.k * layer.n <= kMaxProducts;
}

}  // namespace

std::unique_ptr<Kernel> plan_fused_dense_sparse_softmax_cross_entropy_dgrad(const Match& match) {
  const GemmShape layer = dense_loss_layer(match);
  if (match.spec("x").dtype != DType::Float32 || !fits(layer)) return nullptr;
  const auto plan_launch = [&]<typename Label>(Type<Label>) {
    return with_launch(layer, [&](auto width, auto exact, auto rows, const Launch& launch) {
      const bool is_possible = launch.threads > 0;
      return is_possible ? plan<width(), exact(), rows(), Label>(match, launch) : nullptr;
    });
  };
  return dispatch_label("dense_sparse_softmax_cross_entropy_dgrad", match.spec("labels").dtype,
                        plan_launch);
}

}  // namespace kerascnn::cuda
