// Batch normalization over the last axis with the batch's own statistics, and its gradient: one
// launch for the column sums, one for the elements.
//
// Column sums are split over blocks; the last block to finish combines the parts in a fixed order,
// so results don't depend on timing.
#include <bit>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/block.cuh"
#include "core/backend/cuda/device/moments.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/movement/copy.cuh"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/device_buffer.h"

namespace kerascnn::cuda {
namespace {

constexpr int kColumnThreads = 1024;
constexpr int kBatch = 8;  // rows that a thread loads before it uses them
constexpr int kWidth = 4;  // channels of a thread of the second launch, where they divide

// `lanes` threads side by side, a power of two, take neighbouring channels; the other threads take
// other rows.
struct ColumnGeometry {
  int64_t rows = 0;  // of a part
  int64_t channels = 0;
  int64_t parts = 1;  // one after another, each reduced by itself
  int lanes = 1;
  int64_t tiles = 1;  // of channels
  int64_t splits = 1;
  int64_t rows_per_split = 0;
};

int lanes_for(int64_t columns) {
  return static_cast<int>(
      std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(columns, 1, 32))));
}

ColumnGeometry column_geometry(const TensorSpec& x, int64_t parts = 1) {
  ColumnGeometry g;
  g.parts = parts;
  g.channels = x.shape.back();
  g.rows = g.channels > 0 ? num_elements(x.shape) / g.channels / parts : 0;
  g.lanes = lanes_for(g.channels);
  g.tiles = std::max<int64_t>(1, ceil_div(g.channels, g.lanes));
  // There is one block for each multiprocessor, and each has at least one full batch of loads.
  const int64_t wanted = ceil_div(Context::current().multiprocessors(), g.tiles * parts);
  const int64_t most = g.rows / (kColumnThreads / g.lanes * kBatch);
  g.splits = std::max<int64_t>(1, std::min(wanted, most));
  g.rows_per_split = std::max<int64_t>(1, ceil_div(g.rows, g.splits));
  g.splits = std::max<int64_t>(1, ceil_div(g.rows, g.rows_per_split));
  return g;
}

// A Reduction has a plain Value that is empty where all is zero, merge(a, b), accumulate() over
// some rows of one channel, and finish(), which takes the value of a whole channel.
template <typename Reduction>
__global__ void __launch_bounds__(kColumnThreads)
    reduce_columns(const __grid_constant__ Reduction reduction, typename Reduction::Value* partial,
                   unsigned* tickets, const __grid_constant__ ColumnGeometry g) {
  begin_kernel();
  using Value = typename Reduction::Value;
  __shared__ Value shared[kColumnThreads];
  const int lane = threadIdx.x & (g.lanes - 1);
  const int row = threadIdx.x / g.lanes;
  const int block_rows = kColumnThreads / g.lanes;
  const int64_t part = blockIdx.x / g.tiles;
  const int64_t channel = blockIdx.x % g.tiles * g.lanes + lane;
  const bool is_inside = channel < g.channels;
  const int64_t result = part * g.channels + channel;

  // Merges the values of one channel's rows; the thread of row 0 has the result.
  const auto merge_rows = [&](const Value& value) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = block_rows / 2; half > 0; half /= 2) {
      if (row < half) {
        shared[threadIdx.x] =
            Reduction::merge(shared[threadIdx.x], shared[threadIdx.x + half * g.lanes]);
      }
      __syncthreads();
    }
    return shared[lane];
  };

  const int64_t begin = part * g.rows + blockIdx.y * g.rows_per_split;
  const int64_t end = min(begin + g.rows_per_split, (part + 1) * g.rows);
  Value value{};
  if (is_inside) value = reduction.accumulate(channel, begin + row, end, block_rows);
  value = merge_rows(value);
  const bool is_writer = row == 0 && is_inside;
  if (g.splits == 1) {
    if (is_writer) reduction.finish(result, value);
    return;
  }
  partial += part * g.splits * g.channels;
  if (is_writer) partial[blockIdx.y * g.channels + channel] = value;
  if (!is_last_block(tickets + blockIdx.x, static_cast<unsigned>(g.splits))) return;
  value = Value{};
  if (is_inside) {
    for (int64_t split = row; split < g.splits; split += block_rows) {
      value = Reduction::merge(value, partial[split * g.channels + channel]);
    }
  }
  value = merge_rows(value);
  if (is_writer) reduction.finish(result, value);
}

template <typename T>
struct Statistics {
  using C = compute_t<T>;
  using Value = Moments<C>;

  const T* x;
  int64_t channels;
  C epsilon;
  C* shared_mean;  // in full precision for the second launch, null where there is none
  C* shared_inverse;
  T* mean;  // null where nobody reads them
  T* variance;
  T* inverse_stddev;

  __device__ __forceinline__ static Value merge(const Value& a, const Value& b) {
    return merge_moments(a, b);
  }

  __device__ __forceinline__ Value accumulate(int64_t channel, int64_t begin, int64_t end,
                                              int64_t step) const {
    Value total{};
    for (int64_t first = begin; first < end; first += step * kBatch) {
      C values[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int64_t row = first + k * step;
        values[k] = row < end ? load(x[row * channels + channel]) : C(0);
      }
      Value batch{};
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        batch.mean += values[k];
        if (first + k * step < end) batch.count += C(1);
      }
      batch.mean /= batch.count;
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const C centered = values[k] - batch.mean;
        if (first + k * step < end) batch.deviation += centered * centered;
      }
      total = merge(total, batch);
    }
    return total;
  }

  __device__ __forceinline__ void finish(int64_t channel, const Value& value) const {
    const C biased = value.deviation / value.count;
    const C inverse = C(1) / element::sqrt(biased + epsilon);
    if (shared_mean != nullptr) {
      shared_mean[channel] = value.mean;
      shared_inverse[channel] = inverse;
    }
    if (mean != nullptr) mean[channel] = store<T>(value.mean);
    if (variance != nullptr) variance[channel] = store<T>(biased);
    if (inverse_stddev != nullptr) inverse_stddev[channel] = store<T>(inverse);
  }
};

// sum(gy) and sum(gy xhat) with xhat = (x - mean) inverse_stddev.
template <typename T>
struct GradientSums {
  using C = compute_t<T>;
  struct Value {
    C gradient, product;
  };

  const T* gy;
  const T* x;
  const T* mean;
  const T* inverse_stddev;
  int64_t channels;
  C* shared_gradient;  // in full precision for the second launch
  C* shared_product;
  T* ggamma;  // null where nobody reads them
  T* gbeta;

  __device__ __forceinline__ static Value merge(const Value& a, const Value& b) {
    return {a.gradient + b.gradient, a.product + b.product};
  }

  __device__ __forceinline__ Value accumulate(int64_t channel, int64_t begin, int64_t end,
                                              int64_t step) const {
    const C center = load(mean[channel]);
    const C scale = load(inverse_stddev[channel]);
    Value total{};
    for (int64_t first = begin; first < end; first += step * kBatch) {
      C gradients[kBatch];
      C values[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int64_t row = first + k * step;
        gradients[k] = row < end ? load(gy[row * channels + channel]) : C(0);
        values[k] = row < end ? load(x[row * channels + channel]) : center;
      }
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        total.gradient += gradients[k];
        total.product += gradients[k] * ((values[k] - center) * scale);
      }
    }
    return total;
  }

  __device__ __forceinline__ void finish(int64_t channel, const Value& value) const {
    shared_gradient[channel] = value.gradient;
    shared_product[channel] = value.product;
    if (gbeta != nullptr) gbeta[channel] = store<T>(value.gradient);
    if (ggamma != nullptr) ggamma[channel] = store<T>(value.product);
  }
};

// A Map has channel(c), which loads what a channel's elements share, and apply(shared, at, result),
// which computes kVector neighbouring elements. Blocks have kThreads threads; their lanes are those
// of ColumnGeometry, of vectors.
template <typename T, int kVector, typename Map>
__global__ void __launch_bounds__(kThreads)
    map_columns(const __grid_constant__ Map map, T* __restrict__ y, int64_t rows, int64_t channels,
                int lanes) {
  begin_kernel();
  const int lane = threadIdx.x & (lanes - 1);
  const int block_rows = kThreads / lanes;
  const int64_t channel = (static_cast<int64_t>(blockIdx.x) * lanes + lane) * kVector;
  if (channel >= channels) return;
  typename Map::Shared shared[kVector];
#pragma unroll
  for (int k = 0; k < kVector; ++k) shared[k] = map.channel(channel + k);
  const int64_t step = static_cast<int64_t>(gridDim.y) * block_rows;
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * block_rows + threadIdx.x / lanes;
       row < rows; row += step) {
    Vector<T, kVector> result;
    map.template apply<kVector>(shared, row * channels + channel, result);
    *reinterpret_cast<Vector<T, kVector>*>(y + row * channels + channel) = result;
  }
}

template <typename T>
struct Normalize {
  using C = compute_t<T>;
  struct Shared {
    C mean, scale, beta;
  };
  const T* x;
  const T* gamma;
  const T* beta;
  const C* mean;
  const C* inverse;

  __device__ __forceinline__ Shared channel(int64_t c) const {
    return {mean[c], load(gamma[c]) * inverse[c], load(beta[c])};
  }
  template <int kVector>
  __device__ __forceinline__ void apply(const Shared (&shared)[kVector], int64_t at,
                                        Vector<T, kVector>& result) const {
    const auto values = *reinterpret_cast<const Vector<T, kVector>*>(x + at);
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      result.values[k] =
          store<T>((load(values.values[k]) - shared[k].mean) * shared[k].scale + shared[k].beta);
    }
  }
};

// gx = gamma inverse (gy - sum(gy) / n - xhat sum(gy xhat) / n)
template <typename T>
struct InputGradient {
  using C = compute_t<T>;
  struct Shared {
    C mean, inverse, scale, mean_gradient, mean_product;
  };
  const T* gy;
  const T* x;
  const T* gamma;
  const T* mean;
  const T* inverse_stddev;
  const C* gradient;
  const C* product;
  C rows;

  __device__ __forceinline__ Shared channel(int64_t c) const {
    const C inverse = load(inverse_stddev[c]);
    return {load(mean[c]), inverse, load(gamma[c]) * inverse, gradient[c] / rows,
            product[c] / rows};
  }
  template <int kVector>
  __device__ __forceinline__ void apply(const Shared (&shared)[kVector], int64_t at,
                                        Vector<T, kVector>& result) const {
    const auto gradients = *reinterpret_cast<const Vector<T, kVector>*>(gy + at);
    const auto values = *reinterpret_cast<const Vector<T, kVector>*>(x + at);
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      const Shared& s = shared[k];
      const C normalized = (load(values.values[k]) - s.mean) * s.inverse;
      const C value = load(gradients.values[k]) - s.mean_gradient - normalized * s.mean_product;
      result.values[k] = store<T>(s.scale * value);
    }
  }
};

template <typename T, int kVector, typename Map>
void launch_map(const Map& map, T* y, const ColumnGeometry& g, cudaStream_t stream) {
  constexpr int64_t kRowsPerThread = 2;
  const int64_t vectors = g.channels / kVector;
  const int lanes = lanes_for(vectors);
  const dim3 grid(static_cast<unsigned>(ceil_div(vectors, lanes)),
                  grid_for(g.rows, kThreads / lanes * kRowsPerThread));
  launch_early(map_columns<T, kVector, Map>, grid, kThreads, stream, map, y, g.rows, g.channels,
               lanes);
}

template <typename T, typename Map>
void launch_map(const Map& map, T* y, const ColumnGeometry& g, bool aligned, cudaStream_t stream) {
  if (aligned && g.channels % kWidth == 0) {
    launch_map<T, kWidth>(map, y, g, stream);
  } else {
    launch_map<T, 1>(map, y, g, stream);
  }
}

// A planned reduction keeps the tickets of its blocks, and its workspace has two rows of channel
// results and the parts of the splits.
template <typename Reduction>
struct ColumnPlan {
  using C = typename Reduction::C;
  using Value = typename Reduction::Value;

  explicit ColumnPlan(const TensorSpec& x, int64_t parts = 1)
      : geometry(column_geometry(x, parts)) {
    if (geometry.splits == 1) return;
    tickets = std::make_shared<DeviceBuffer>(static_cast<size_t>(geometry.parts * geometry.tiles) *
                                             sizeof(unsigned));
  }

  int64_t parts_offset() const {
    return ceil_div(2 * geometry.channels * static_cast<int64_t>(sizeof(C)), 256) * 256;
  }
  int64_t workspace_bytes() const {
    const int64_t parts = geometry.splits == 1 ? 0 : geometry.splits * geometry.channels;
    return parts_offset() + parts * geometry.parts * static_cast<int64_t>(sizeof(Value));
  }
  void launch(const Reduction& reduction, void* workspace, cudaStream_t stream) const {
    auto* partial = reinterpret_cast<Value*>(static_cast<char*>(workspace) + parts_offset());
    const dim3 grid(static_cast<unsigned>(geometry.parts * geometry.tiles),
                    static_cast<unsigned>(geometry.splits));
    reduce_columns<Reduction><<<grid, kColumnThreads, 0, stream>>>(
        reduction, partial, tickets ? tickets->as<unsigned>() : nullptr, geometry);
    check_launch("batch_norm");
  }

  ColumnGeometry geometry;
  std::shared_ptr<DeviceBuffer> tickets;
};

template <typename T>
void run_forward(const ColumnPlan<Statistics<T>>& plan, double epsilon, const KernelArgs& args) {
  using C = compute_t<T>;
  const ColumnGeometry& g = plan.geometry;
  if (g.rows * g.channels == 0) return;
  const auto stream = static_cast<cudaStream_t>(args.stream);
  C* mean = static_cast<C*>(args.workspace);
  C* inverse = mean + g.channels;
  const T* x = input<T>(args, 0);
  T* y = output<T>(args, 0);
  plan.launch({x, g.channels, static_cast<C>(epsilon), mean, inverse, output<T>(args, 1),
               output<T>(args, 2), output<T>(args, 3)},
              args.workspace, stream);
  const Normalize<T> map{x, input<T>(args, 1), input<T>(args, 2), mean, inverse};
  constexpr int64_t kBytes = sizeof(T) * kWidth;
  launch_map<T>(map, y, g, is_aligned(x, kBytes) && is_aligned(y, kBytes), stream);
}

template <typename T>
void run_gradient(const ColumnPlan<GradientSums<T>>& plan, const KernelArgs& args) {
  using C = compute_t<T>;
  const ColumnGeometry& g = plan.geometry;
  if (g.rows * g.channels == 0) return;
  const auto stream = static_cast<cudaStream_t>(args.stream);
  C* gradient = static_cast<C*>(args.workspace);
  C* product = gradient + g.channels;
  const T* gy = input<T>(args, 0);
  const T* x = input<T>(args, 1);
  const T* mean = input<T>(args, 3);
  const T* inverse = input<T>(args, 4);
  T* gx = output<T>(args, 0);
  plan.launch(
      {gy, x, mean, inverse, g.channels, gradient, product, output<T>(args, 1), output<T>(args, 2)},
      args.workspace, stream);
  if (gx == nullptr) return;
  const InputGradient<T> map{gy,      x,        input<T>(args, 2), mean,
                             inverse, gradient, product,           static_cast<C>(g.rows)};
  constexpr int64_t kBytes = sizeof(T) * kWidth;
  const bool aligned = is_aligned(gy, kBytes) && is_aligned(x, kBytes) && is_aligned(gx, kBytes);
  launch_map<T>(map, gx, g, aligned, stream);
}

}  // namespace

// x (..., c), gamma (c,), beta (c,) -> y, mean (c,), variance (c,), inverse_stddev (c,)
std::unique_ptr<Kernel> plan_batch_norm(const PlanRequest& request) {
  const double epsilon = request.attributes.get_double("epsilon");
  return dispatch_floating("batch_norm", request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    const ColumnPlan<Statistics<T>> plan(request.inputs[0]);
    return make_early_kernel(
        "kerascnn batch_norm",
        [plan, epsilon](const KernelArgs& args) { run_forward<T>(plan, epsilon, args); },
        plan.workspace_bytes(), plan.tickets != nullptr);
  });
}

// x (..., c) -> mean (c,), variance (c,), or (..., c) for each index of the outer axes
std::unique_ptr<Kernel> plan_column_moments(const PlanRequest& request) {
  const int64_t parts = num_elements(request.outputs[0].shape) / request.inputs[0].shape.back();
  return dispatch_floating("column_moments", request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    const ColumnPlan<Statistics<T>> plan(request.inputs[0], parts);
    return make_early_kernel(
        "kerascnn column_moments",
        [plan](const KernelArgs& args) {
          plan.launch({input<T>(args, 0), plan.geometry.channels, 0, nullptr, nullptr,
                       output<T>(args, 0), output<T>(args, 1), nullptr},
                      args.workspace, static_cast<cudaStream_t>(args.stream));
        },
        plan.workspace_bytes(), plan.tickets != nullptr);
  });
}

// gy, x (..., c), gamma, mean, inverse_stddev (c,) -> gx, ggamma (c,), gbeta (c,)
std::unique_ptr<Kernel> plan_batch_norm_grad(const PlanRequest& request) {
  return dispatch_floating("batch_norm_grad", request.inputs[1].dtype, [&]<typename T>(Type<T>) {
    const ColumnPlan<GradientSums<T>> plan(request.inputs[1]);
    return make_early_kernel(
        "kerascnn batch_norm gradient",
        [plan](const KernelArgs& args) { run_gradient<T>(plan, args); }, plan.workspace_bytes(),
        plan.tickets != nullptr);
  });
}

}  // namespace kerascnn::cuda
