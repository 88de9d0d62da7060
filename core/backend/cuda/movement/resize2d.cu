// Images of another size, and their gradient, whose axes are the transposed ones. A thread makes
// some neighbouring channels of a new pixel from all old pixels of its window. Where windows are
// large there are two such kernels, of which the first makes the rows and the second the columns.
//
// Rows are weighted first, and each product and each sum is rounded, as on a CPU: with a fused
// multiply-add, integers that are rounded at the end could be others there.
#include "core/ops/resize2d.h"

#include <vector>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/backend/cuda/runtime/device_buffer.h"

namespace kerascnn::cuda {
namespace {

// Windows of up to so many pixels are summed by one kernel.
constexpr int64_t kMostPixels = 16;

// An axis on the device.
template <typename C>
struct Axis {
  const int32_t* firsts;  // null where every pixel is the old one
  const int32_t* counts;
  const C* shares;  // null where all are 1
  int64_t most;

  __device__ __forceinline__ int first(int pixel) const {
    return firsts == nullptr ? pixel : firsts[pixel];
  }
  __device__ __forceinline__ int count(int pixel) const {
    return counts == nullptr ? 1 : counts[pixel];
  }
};

__device__ __forceinline__ float add_product(float sum, float value, float share) {
  return __fadd_rn(sum, __fmul_rn(value, share));
}
__device__ __forceinline__ double add_product(double sum, double value, double share) {
  return __dadd_rn(sum, __dmul_rn(value, share));
}

// sums += share `at` of values.
template <typename C, int N>
__device__ __forceinline__ void add_share(C (&sums)[N], const C (&values)[N], const C* shares,
                                          int64_t at) {
  const C share = shares == nullptr ? C(1) : shares[at];
#pragma unroll
  for (int k = 0; k < N; ++k) sums[k] = add_product(sums[k], values[k], share);
}

template <typename C>
struct Resizing {
  int64_t old_height, old_width, channels;
  Axis<C> rows, columns;
  Divisor packs, width, height;  // packs of channels, and the size of the new images
  int64_t items;
};

template <typename In, typename Out, typename C, int N>
__global__ void __launch_bounds__(kThreads) resize(const In* x, Out* y, Resizing<C> p) {
  begin_kernel();
  for (int64_t item = first_item(); item < p.items; item += item_step()) {
    int64_t left = item;
    const int64_t channel = p.packs.divide(&left) * N;
    const int column = static_cast<int>(p.width.divide(&left));
    const int row = static_cast<int>(p.height.divide(&left));  // `left` is the image's number now
    const int row_count = p.rows.count(row), column_count = p.columns.count(column);
    const int64_t from_row = left * p.old_height + p.rows.first(row);
    const int64_t step = p.old_width * p.channels;
    const In* from = x + (from_row * p.old_width + p.columns.first(column)) * p.channels + channel;
    C sums[N] = {};
    for (int i = 0; i < column_count; ++i, from += p.channels) {
      C line[N] = {};
      for (int j = 0; j < row_count; ++j) {
        const auto pack = *reinterpret_cast<const Vector<In, N>*>(from + j * step);
        C values[N];
#pragma unroll
        for (int k = 0; k < N; ++k) values[k] = load(pack.values[k]);
        add_share(line, values, p.rows.shares, row * p.rows.most + j);
      }
      add_share(sums, line, p.columns.shares, column * p.columns.most + i);
    }
    Vector<Out, N> rounded;
#pragma unroll
    for (int k = 0; k < N; ++k) rounded.values[k] = store<Out>(sums[k]);
    // Items are packs in the order of memory.
    *reinterpret_cast<Vector<Out, N>*>(y + item * N) = rounded;
  }
}

// The axes' tables in device memory, which nothing writes later.
template <typename C>
class Tables {
 public:
  Tables(const ResizeAxis& rows, const ResizeAxis& columns)
      : buffer_((share_count(rows) + share_count(columns)) * sizeof(C) +
                (index_count(rows) + index_count(columns)) * sizeof(int32_t) + sizeof(C)) {
    // The wider numbers come first, so that all are aligned.
    C* shares = buffer_.as<C>();
    auto* indices = reinterpret_cast<int32_t*>(shares + share_count(rows) + share_count(columns));
    rows_ = put(rows, shares, indices);
    columns_ = put(columns, shares, indices);
    // Kernels run on a stream of their own, which does not wait for this one.
    check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  const Axis<C>& rows() const { return rows_; }
  const Axis<C>& columns() const { return columns_; }

 private:
  static size_t share_count(const ResizeAxis& axis) { return axis.sums ? 0 : axis.shares.size(); }
  static size_t index_count(const ResizeAxis& axis) {
    return axis.keeps ? 0 : 2 * axis.firsts.size();
  }

  template <typename T>
  static const T* copy(const std::vector<T>& from, T*& to) {
    T* const place = to;
    check(cudaMemcpy(place, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice),
          "cudaMemcpy of the weights of resized images");
    to += from.size();
    return place;
  }
  static Axis<C> put(const ResizeAxis& axis, C*& shares, int32_t*& indices) {
    Axis<C> result{nullptr, nullptr, nullptr, axis.most};
    if (!axis.sums) {
      result.shares = copy(std::vector<C>(axis.shares.begin(), axis.shares.end()), shares);
    }
    if (!axis.keeps) {
      result.firsts = copy(axis.firsts, indices);
      result.counts = copy(axis.counts, indices);
    }
    return result;
  }

  DeviceBuffer buffer_;
  Axis<C> rows_{}, columns_{};
};

template <typename In, typename Out, typename C>
void launch(const void* x, void* y, Resizing<C> p, int64_t pixels, cudaStream_t stream) {
  // Packs are up to 16 bytes of the wider dtype; tensors are aligned to that.
  constexpr int kWidest = static_cast<int>(16 / std::max(sizeof(In), sizeof(Out)));
  const auto run = [&](auto width) {
    constexpr int N = decltype(width)::value;
    p.packs = Divisor(p.channels / N);
    p.items = pixels * (p.channels / N);
    resize<In, Out, C, N><<<grid_for(p.items), kThreads, 0, stream>>>(static_cast<const In*>(x),
                                                                      static_cast<Out*>(y), p);
    check_launch("resize2d");
  };
  if (p.channels % kWidest == 0) {
    run(std::integral_constant<int, kWidest>());
  } else {
    run(std::integral_constant<int, 1>());
  }
}

template <typename T>
std::unique_ptr<Kernel> make_resizing(const Resize2DGeometry& g) {
  using C = compute_t<T>;
  // The functions own them.
  const auto tables = std::make_shared<const Tables<C>>(g.rows, g.columns);
  const auto to_size = [&](int64_t height, int64_t width, const Axis<C>& rows,
                           const Axis<C>& columns) {
    return Resizing<C>{g.rows.old_size, g.columns.old_size, g.channels,      rows, columns,
                       Divisor(1),      Divisor(width),     Divisor(height), 0};
  };
  const int64_t pixels = g.batch * g.rows.size * g.columns.size;
  if (g.rows.most * g.columns.most <= kMostPixels || g.rows.keeps || g.columns.keeps) {
    const auto whole = to_size(g.rows.size, g.columns.size, tables->rows(), tables->columns());
    return make_early_kernel("kerascnn image resizing",
                             [=, tables = tables](const KernelArgs& args) {
                               if (pixels * whole.channels == 0) return;
                               launch<T, T>(args.inputs[0], args.outputs[0], whole, pixels,
                                            static_cast<cudaStream_t>(args.stream));
                             });
  }
  const Axis<C> same{nullptr, nullptr, nullptr, 1};
  const auto down = to_size(g.rows.size, g.columns.old_size, tables->rows(), same);
  auto across = to_size(g.rows.size, g.columns.size, same, tables->columns());
  across.old_height = g.rows.size;
  const int64_t between = g.batch * g.rows.size * g.columns.old_size;
  const auto run = [=, tables = tables](const KernelArgs& args) {
    if (pixels * down.channels == 0) return;
    const auto stream = static_cast<cudaStream_t>(args.stream);
    launch<T, C>(args.inputs[0], args.workspace, down, between, stream);
    launch<C, T>(args.workspace, args.outputs[0], across, pixels, stream);
  };
  return make_early_kernel("kerascnn image resizing in two steps", run,
                           between * g.channels * static_cast<int64_t>(sizeof(C)));
}

std::unique_ptr<Kernel> plan_resizing(const PlanRequest& request) {
  return dispatch_floating(request.op.name, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_resizing<T>(resize2d_geometry(request.op, request.attributes, request.inputs));
  });
}

}  // namespace

std::unique_ptr<Kernel> plan_resize2d(const PlanRequest& request) { return plan_resizing(request); }

std::unique_ptr<Kernel> plan_resize2d_grad(const PlanRequest& request) {
  return plan_resizing(request);
}

}  // namespace kerascnn::cuda
