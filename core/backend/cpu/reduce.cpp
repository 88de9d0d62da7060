// Reductions. Sums of floating numbers are accumulated in double and split at fixed places, so that
// they don't depend on the number of threads.

#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/backend/cpu/reductions.h"
#include "core/ops/geometry.h"

namespace kerascnn::cpu {

namespace {

// (outer, reduce, inner) cut into `pieces` along reduce: partial results (outer, pieces, inner).
struct ReduceSplit {
  int64_t pieces = 1;
  int64_t rows = 1;  // of a piece, but for the last
};

ReduceSplit split_reduction(const ReduceGeometry& geometry) {
  constexpr int64_t kPieceElements = 32768;
  constexpr int64_t kEnoughTasks = 64;
  ReduceSplit split{1, geometry.reduce};
  if (geometry.outer >= kEnoughTasks || geometry.reduce * geometry.inner < 2 * kPieceElements) {
    return split;
  }
  const int64_t wanted = std::min(geometry.reduce * geometry.inner / kPieceElements,
                                  (kEnoughTasks + geometry.outer - 1) / geometry.outer);
  split.rows = (geometry.reduce + wanted - 1) / std::max<int64_t>(1, wanted);
  split.pieces = (geometry.reduce + split.rows - 1) / split.rows;
  return split;
}

template <typename T, typename Op>
std::unique_ptr<Kernel> make_simple_reduce(const ReduceGeometry& geometry, double divisor) {
  using Accumulator = typename Op::Accumulator;
  const ReduceSplit split = split_reduction(geometry);
  const int64_t partials = geometry.outer * split.pieces * geometry.inner;
  return make_kernel(
      "kerascnn reduce",
      [geometry, split, divisor, &kernels = float_kernels()](const KernelArgs& args) {
        const T* x = input<T>(args, 0);
        T* out = output<T>(args, 0);
        auto* partial = static_cast<Accumulator*>(args.workspace);
        const int64_t inner = geometry.inner;
        parallel_each(geometry.outer * split.pieces, split.rows * inner, [&](int64_t task) {
          const int64_t first = task % split.pieces * split.rows;
          const int64_t rows = std::min(split.rows, geometry.reduce - first);
          const T* from = x + (task / split.pieces * geometry.reduce + first) * inner;
          if (inner == 1) {
            partial[task] = reduce_row<T, Op>(kernels, from, rows);
          } else if constexpr (std::is_same_v<Op, Sum<float>>) {
            sum_float_columns(kernels, from, rows, inner, partial + task * inner);
          } else {
            reduce_columns<T, Op>(from, rows, inner, partial + task * inner);
          }
        });
        parallel_each(geometry.outer * inner, 1, [&](int64_t i) {
          const Accumulator* from = partial + i / inner * split.pieces * inner + i % inner;
          Accumulator value = from[0];
          for (int64_t piece = 1; piece < split.pieces; ++piece) {
            value = Op::combine(value, from[piece * inner]);
          }
          out[i] = finish<T>(value, divisor);
        });
      },
      align_up(partials * static_cast<int64_t>(sizeof(Accumulator))));
}

int64_t offset_of(int64_t linear, const Shape& extents, const Shape& strides) {
  int64_t offset = 0;
  for (size_t d = extents.size(); d-- > 0;) {
    offset += linear % extents[d] * strides[d];
    linear /= extents[d];
  }
  return offset;
}

// Reduced axes that are not neighbours: each output element by itself.
template <typename T, typename Op>
std::unique_ptr<Kernel> make_general_reduce(const ReduceGeometry& geometry, double divisor) {
  using Accumulator = typename Op::Accumulator;
  return make_kernel("kerascnn reduce", [geometry, divisor](const KernelArgs& args) {
    const T* x = input<T>(args, 0);
    T* out = output<T>(args, 0);
    const int64_t length = geometry.reduced_extents.back();
    const int64_t step = geometry.reduced_strides.back();
    parallel_each(geometry.outputs, geometry.reduce, [&](int64_t o) {
      const T* base = x + offset_of(o, geometry.kept_extents, geometry.kept_strides);
      Accumulator value = Op::initial();
      for (int64_t r = 0; r < geometry.reduce; r += length) {
        const T* from = base + offset_of(r, geometry.reduced_extents, geometry.reduced_strides);
        for (int64_t i = 0; i < length; ++i) value = Op::combine(value, Op::load(from[i * step]));
      }
      out[o] = finish<T>(value, divisor);
    });
  });
}

// (outer, rows, inner, last) -> (outer, inner), the sums of a group normalization: rows and last
// are reduced.
bool is_sum_of_groups(const ReduceGeometry& g) {
  if (g.kept_extents.size() != 2 || g.reduced_extents.size() != 2) return false;
  const int64_t last = g.reduced_extents[1];
  const int64_t columns = g.kept_extents[1] * last;
  return g.reduced_strides == Shape{columns, 1} &&
         g.kept_strides == Shape{g.reduced_extents[0] * columns, last};
}

// The columns are summed first, as whole rows of vectors.
std::unique_ptr<Kernel> make_sum_of_groups(const ReduceGeometry& geometry, double divisor) {
  const int64_t outer = geometry.kept_extents[0], inner = geometry.kept_extents[1];
  const int64_t rows = geometry.reduced_extents[0], last = geometry.reduced_extents[1];
  const int64_t columns = inner * last;
  return make_kernel(
      "kerascnn reduce",
      [=, &kernels = float_kernels()](const KernelArgs& args) {
        auto* sums = static_cast<double*>(args.workspace);
        parallel_each(outer, rows * columns, [&](int64_t o) {
          double* of_columns = sums + o * columns;
          sum_float_columns(kernels, input<float>(args, 0) + o * rows * columns, rows, columns,
                            of_columns);
          for (int64_t i = 0; i < inner; ++i) {
            double value = 0;
            for (int64_t j = 0; j < last; ++j) value += of_columns[i * last + j];
            output<float>(args, 0)[o * inner + i] = finish<float>(value, divisor);
          }
        });
      },
      align_up(outer * columns * static_cast<int64_t>(sizeof(double))));
}

template <template <typename> typename Op>
std::unique_ptr<Kernel> plan_reduce(const PlanRequest& request, bool is_mean) {
  const ReduceGeometry geometry =
      reduce_geometry(request.inputs[0].shape, request.attributes.get_ints("axes"));
  const double divisor = is_mean ? static_cast<double>(geometry.reduce) : 1.0;
  return dispatch_number(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    if constexpr (std::is_same_v<Op<T>, Sum<float>>) {
      if (is_sum_of_groups(geometry)) return make_sum_of_groups(geometry, divisor);
    }
    return geometry.is_simple ? make_simple_reduce<T, Op<T>>(geometry, divisor)
                              : make_general_reduce<T, Op<T>>(geometry, divisor);
  });
}

// The first maximum; the first NaN where there is one, as in NumPy.
template <typename T>
int64_t argmax_line(const T* x, int64_t length, int64_t step) {
  using C = compute_t<T>;
  int64_t best = 0;
  C largest = static_cast<C>(x[0]);
  for (int64_t i = 1; i < length && largest == largest; ++i) {
    const C value = static_cast<C>(x[i * step]);
    if (value > largest || value != value) {
      best = i;
      largest = value;
    }
  }
  return best;
}

}  // namespace

std::unique_ptr<Kernel> plan_reduce_sum(const PlanRequest& request) {
  return plan_reduce<Sum>(request, false);
}
std::unique_ptr<Kernel> plan_reduce_mean(const PlanRequest& request) {
  return plan_reduce<Sum>(request, true);
}
std::unique_ptr<Kernel> plan_reduce_max(const PlanRequest& request) {
  return plan_reduce<Max>(request, false);
}
std::unique_ptr<Kernel> plan_reduce_min(const PlanRequest& request) {
  return plan_reduce<Min>(request, false);
}

std::unique_ptr<Kernel> plan_argmax(const PlanRequest& request) {
  const AxisGeometry geometry =
      axis_geometry(request.inputs[0].shape, request.attributes.get_int("axis"));
  return dispatch_any(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_kernel("kerascnn argmax", [geometry](const KernelArgs& args) {
      const T* x = input<T>(args, 0);
      int32_t* out = output<int32_t>(args, 0);
      parallel_each(geometry.outer * geometry.inner, geometry.length, [&](int64_t i) {
        const int64_t at =
            i / geometry.inner * geometry.length * geometry.inner + i % geometry.inner;
        out[i] = static_cast<int32_t>(argmax_line(x + at, geometry.length, geometry.inner));
      });
    });
  });
}

}  // namespace kerascnn::cpu
