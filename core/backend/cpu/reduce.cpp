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

int64_t offset_of(int64_t linear, const Shape& extents, const Shape& strides) {
  int64_t offset = 0;
  for (size_t d = extents.size(); d-- > 0;) {
    offset += linear % extents[d] * strides[d];
    linear /= extents[d];
  }
  return offset;
}

// Offsets of so many blocks are computed once.
constexpr int64_t kListedBlocks = 1024;

// Kept and reduced axes take turns. The last kept one, where nothing is reduced behind it, makes
// the columns: `lines` results have so many, and `rows` neighbouring rows of them are a block.
// A result is of all blocks that the other reduced axes count.
struct ReducePlan {
  explicit ReducePlan(const ReduceGeometry& geometry)
      : line_extents(geometry.kept_extents),
        line_strides(geometry.kept_strides),
        block_extents(geometry.reduced_extents),
        block_strides(geometry.reduced_strides),
        rows(block_extents.back()) {
    if (line_strides.back() == 1 && block_strides.back() > 1) {
      columns = line_extents.back();
      line_extents.pop_back();
      line_strides.pop_back();
    }
    block_extents.pop_back();
    block_strides.pop_back();
    lines = columns == 0 ? 0 : geometry.outputs / columns;
    blocks = rows == 0 ? 1 : geometry.reduce / rows;
    for (int64_t b = 0; b < std::min(blocks, kListedBlocks); ++b) {
      block_offsets.push_back(offset_of(b, block_extents, block_strides));
    }
    split();
  }

  int64_t block_offset(int64_t block) const {
    return block < kListedBlocks ? block_offsets[block]
                                 : offset_of(block, block_extents, block_strides);
  }

  Shape line_extents, line_strides;
  Shape block_extents, block_strides;
  int64_t lines = 1, columns = 1;
  int64_t blocks = 1, rows = 1;
  std::vector<int64_t> block_offsets;  // of the first ones
  // What a line reduces is cut into pieces: of blocks where there are several, of rows otherwise.
  int64_t pieces = 1, piece_length = 1;

 private:
  void split() {
    constexpr int64_t kPieceElements = 32768;
    constexpr int64_t kEnoughTasks = 64;
    const int64_t length = blocks > 1 ? blocks : rows;
    const int64_t work = blocks * rows * columns;
    piece_length = length;
    if (lines >= kEnoughTasks || work < 2 * kPieceElements) return;
    const int64_t wanted = std::min(work / kPieceElements, (kEnoughTasks + lines - 1) / lines);
    piece_length = (length + wanted - 1) / wanted;
    pieces = (length + piece_length - 1) / piece_length;
  }
};

// So many rows are enough for all threads, without cutting them.
constexpr int64_t kManyRows = 1024;

// Combines one piece of what a line reduces.
template <typename T, typename Op>
void reduce_piece(const ReducePlan& plan, const FloatKernels& kernels, const T* line, int64_t piece,
                  typename Op::Accumulator* to) {
  const int64_t first = piece * plan.piece_length;
  std::fill(to, to + plan.columns, Op::initial());
  if (plan.blocks == 1) {
    const int64_t rows = std::min(plan.piece_length, plan.rows - first);
    combine_block<T, Op>(kernels, line + first * plan.columns, rows, plan.columns, to);
    return;
  }
  const int64_t end = std::min(plan.blocks, first + plan.piece_length);
  for (int64_t b = first; b < end; ++b) {
    combine_block<T, Op>(kernels, line + plan.block_offset(b), plan.rows, plan.columns, to);
  }
}

// So many columns have their sums on the stack, where no pieces have to be put together.
constexpr int64_t kColumnsOnStack = 512;

template <typename T, typename Op>
std::unique_ptr<Kernel> make_reduce(const ReduceGeometry& geometry, double divisor) {
  using Accumulator = typename Op::Accumulator;
  const ReducePlan plan(geometry);
  const bool is_on_stack = plan.pieces == 1 && plan.columns <= kColumnsOnStack;
  const int64_t partials = is_on_stack ? 0 : plan.lines * plan.pieces * plan.columns;
  return make_kernel(
      "kerascnn reduce",
      [plan, is_on_stack, divisor, &kernels = float_kernels()](const KernelArgs& args) {
        T* out = output<T>(args, 0);
        auto* partial = static_cast<Accumulator*>(args.workspace);
        const int64_t columns = plan.columns;
        const int64_t work = plan.piece_length * (plan.blocks > 1 ? plan.rows : 1) * columns;
        parallel_each(plan.lines * plan.pieces, work, [&](int64_t task) {
          const int64_t line = task / plan.pieces;
          const T* from = input<T>(args, 0) + offset_of(line, plan.line_extents, plan.line_strides);
          Accumulator stack[kColumnsOnStack];
          Accumulator* to = is_on_stack ? stack : partial + task * columns;
          reduce_piece<T, Op>(plan, kernels, from, task % plan.pieces, to);
          if (plan.pieces > 1) return;
          for (int64_t j = 0; j < columns; ++j) {
            out[line * columns + j] = finish<T>(to[j], divisor);
          }
        });
        if (plan.pieces == 1) return;
        parallel_each(plan.lines * columns, plan.pieces, [&](int64_t i) {
          const Accumulator* from = partial + i / columns * plan.pieces * columns + i % columns;
          Accumulator value = from[0];
          for (int64_t piece = 1; piece < plan.pieces; ++piece) {
            value = Op::combine(value, from[piece * columns]);
          }
          out[i] = finish<T>(value, divisor);
        });
      },
      align_up(partials * static_cast<int64_t>(sizeof(Accumulator))));
}

// Each row by itself, where there are enough of them for all threads.
template <typename T, typename Op>
std::unique_ptr<Kernel> make_rows(const ReduceGeometry& geometry, double divisor) {
  return make_kernel("kerascnn reduce", [count = geometry.outer, length = geometry.reduce, divisor,
                                         &kernels = float_kernels()](const KernelArgs& args) {
    const T* x = input<T>(args, 0);
    T* out = output<T>(args, 0);
    parallel_for(count, grain_of(length), [&](int64_t begin, int64_t end) {
      constexpr int64_t kRows = 16;
      typename Op::Accumulator values[kRows];
      for (int64_t row = begin; row < end; row += kRows) {
        const int64_t rows = std::min(kRows, end - row);
        reduce_rows<T, Op>(kernels, x + row * length, rows, length, values);
        for (int64_t i = 0; i < rows; ++i) out[row + i] = finish<T>(values[i], divisor);
      }
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
    const bool has_rows = geometry.is_simple && geometry.inner == 1 &&
                          (geometry.reduce < kShortRow || geometry.outer >= kManyRows);
    return has_rows ? make_rows<T, Op<T>>(geometry, divisor)
                    : make_reduce<T, Op<T>>(geometry, divisor);
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
