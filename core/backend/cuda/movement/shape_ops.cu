// transpose, broadcast_to, concatenate, slice and slice_grad, which only move elements, whatever
// their dtype.
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/movement/copy.cuh"
#include "core/backend/cuda/movement/strided.cuh"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/ops/geometry.h"

namespace kerascnn::cuda {
namespace {

// y[i] = x[index(i)].
template <typename Word>
__global__ void strided_copy(const Word* __restrict__ x, Word* __restrict__ y,
                             const __grid_constant__ StridedIndex index, int64_t size) {
  begin_kernel();
  for (int64_t i = first_item(); i < size; i += item_step()) y[i] = x[index(i)];
}

// One reading of an array through strides, in units of `bytes`.
struct StridedReading {
  StridedIndex index;
  int64_t size = 0;
  int64_t bytes = 0;
};

template <typename Word>
void launch_strided(const KernelArgs& args, const StridedReading& reading) {
  strided_copy<Word>
      <<<grid_for(reading.size), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
          input<Word>(args, 0), output<Word>(args, 0), reading.index, reading.size);
  check_launch("strided copy");
}

bool can_halve(const StridedGeometry& g) {
  if (g.strides.back() != 1 || g.extents.back() % 2 != 0 || g.offset % 2 != 0) return false;
  return std::all_of(g.strides.begin(), g.strides.end() - 1,
                     [](int64_t stride) { return stride % 2 == 0; });
}

std::unique_ptr<Kernel> plan_strided(const char* op, DType dtype, StridedGeometry g) {
  const auto reading = [&](int64_t bytes) {
    return StridedReading{StridedIndex(op, g.extents, g.strides, g.offset), g.size, bytes};
  };
  const StridedReading narrow = reading(static_cast<int64_t>(itemsize(dtype)));
  int64_t bytes = narrow.bytes;
  // Two neighbours that always move together count as one element of twice the size.
  while (bytes < kWidestWord && can_halve(g)) {
    bytes *= 2;
    g.size /= 2;
    g.offset /= 2;
    g.extents.back() /= 2;
    for (size_t i = 0; i + 1 < g.strides.size(); ++i) g.strides[i] /= 2;
  }
  const StridedReading wide = reading(bytes);
  return make_early_kernel("kerascnn strided copy", [narrow, wide](const KernelArgs& args) {
    if (narrow.size == 0) return;
    const bool aligned =
        is_aligned(args.inputs[0], wide.bytes) && is_aligned(args.outputs[0], wide.bytes);
    const StridedReading& reading = aligned ? wide : narrow;
    dispatch_word(reading.bytes,
                  [&]<typename Word>(Type<Word>) { launch_strided<Word>(args, reading); });
  });
}

constexpr int kTile = 32;
constexpr int kTileRows = 8;

// x (batch, rows, columns) -> y (batch, columns, rows), both sides in whole lines of memory.
template <typename T>
__global__ void transpose_tiles(const T* __restrict__ x, T* __restrict__ y, int64_t batch,
                                int64_t rows, int64_t columns) {
  begin_kernel();
  __shared__ T tile[kTile][kTile + 1];
  const int64_t row_tiles = (rows + kTile - 1) / kTile;
  const int64_t column_tiles = (columns + kTile - 1) / kTile;
  const int64_t tiles = batch * row_tiles * column_tiles;
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const Division by_column = divide(t, column_tiles);
    const Division by_row = divide(by_column.quotient, row_tiles);
    const int64_t first_row = by_row.remainder * kTile;
    const int64_t first_column = by_column.remainder * kTile;
    const int64_t base = by_row.quotient * rows * columns;
    for (int k = threadIdx.y; k < kTile; k += kTileRows) {
      const int64_t row = first_row + k;
      const int64_t column = first_column + threadIdx.x;
      if (row < rows && column < columns) tile[k][threadIdx.x] = x[base + row * columns + column];
    }
    __syncthreads();
    for (int k = threadIdx.y; k < kTile; k += kTileRows) {
      const int64_t row = first_row + threadIdx.x;
      const int64_t column = first_column + k;
      if (row < rows && column < columns) y[base + column * rows + row] = tile[threadIdx.x][k];
    }
    __syncthreads();  // before the next tile overwrites this one
  }
}

// Is it a transposed matrix, or a batch of them, as a merged geometry shows it?
bool is_batched_transpose(const StridedGeometry& g) {
  const size_t axes = g.extents.size();
  if (axes != 2 && axes != 3) return false;
  const int64_t columns = g.extents[axes - 2];
  const int64_t rows = g.extents[axes - 1];
  if (g.strides[axes - 2] != 1 || g.strides[axes - 1] != columns || g.offset != 0) return false;
  if (axes == 3 && g.strides[0] != rows * columns) return false;
  return rows >= kTile / 2 && columns >= kTile / 2;
}

std::unique_ptr<Kernel> plan_tiles(DType dtype, const StridedGeometry& g) {
  const size_t axes = g.extents.size();
  const int64_t batch = axes == 3 ? g.extents[0] : 1;
  const int64_t columns = g.extents[axes - 2];
  const int64_t rows = g.extents[axes - 1];
  const int64_t tiles = batch * ceil_div(rows, kTile) * ceil_div(columns, kTile);
  return dispatch_size(dtype, [&]<typename T>(Type<T>) {
    return make_early_kernel("kerascnn tiled transpose", [=](const KernelArgs& args) {
      if (batch == 0) return;
      transpose_tiles<T><<<grid_for(tiles, 1), dim3(kTile, kTileRows), 0,
                           static_cast<cudaStream_t>(args.stream)>>>(
          input<T>(args, 0), output<T>(args, 0), batch, rows, columns);
      check_launch("transpose");
    });
  });
}

constexpr int kMaxParts = 64;

// The inputs of one concatenation launch; widths and offsets in words.
struct ConcatenateTable {
  const void* data[kMaxParts];
  int64_t widths[kMaxParts];
  int64_t offsets[kMaxParts];
};

template <typename Word>
__global__ void concatenate_parts(Word* __restrict__ y,
                                  const __grid_constant__ ConcatenateTable table, int64_t outer,
                                  int64_t row_width) {
  begin_kernel();
  const Word* x = static_cast<const Word*>(table.data[blockIdx.y]);
  const int64_t width = table.widths[blockIdx.y];
  Word* to = y + table.offsets[blockIdx.y];
  for (int64_t i = first_item(); i < outer * width; i += item_step()) {
    const Division at = divide(i, width);
    to[at.quotient * row_width + at.remainder] = x[i];
  }
}

// widths: each input's contiguous bytes per row. Every kMaxParts inputs take one launch.
template <typename Word>
void launch_concatenate(const KernelArgs& args, const std::vector<int64_t>& widths, int64_t outer,
                        int64_t row_bytes) {
  constexpr int64_t kBytes = sizeof(Word);
  int64_t offset = 0;
  for (size_t first = 0; first < widths.size(); first += kMaxParts) {
    const size_t count = std::min<size_t>(kMaxParts, widths.size() - first);
    ConcatenateTable table{};
    int64_t widest = 0;
    for (size_t k = 0; k < count; ++k) {
      table.data[k] = args.inputs[first + k];
      table.widths[k] = widths[first + k] / kBytes;
      table.offsets[k] = offset / kBytes;
      offset += widths[first + k];
      widest = std::max(widest, table.widths[k]);
    }
    if (widest == 0) continue;
    const dim3 grid(grid_for(outer * widest), static_cast<unsigned>(count));
    concatenate_parts<Word><<<grid, kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
        output<Word>(args, 0), table, outer, row_bytes / kBytes);
    check_launch("concatenate");
  }
}

// One axis of the array that a slice was taken from.
struct SliceAxis {
  int64_t extent;
  int64_t start;
  int64_t size;
  int64_t stride;
};

struct SliceGradient {
  int axes = 0;
  SliceAxis axis[kMaxAxes] = {};
  int64_t gy_strides[kMaxAxes] = {};
  int64_t size = 0;
};

// One pass over gx, in which each element finds its place in gy, or is zero.
template <typename T>
__global__ void slice_grad(const T* __restrict__ gy, T* __restrict__ gx,
                           const __grid_constant__ SliceGradient g) {
  begin_kernel();
  for (int64_t i = first_item(); i < g.size; i += item_step()) {
    int64_t rest = i;
    int64_t offset = 0;
    bool inside = true;
    for (int k = g.axes - 1; k >= 0; --k) {
      const Division at = divide(rest, g.axis[k].extent);
      rest = at.quotient;
      const bool backwards = g.axis[k].stride < 0;
      const int64_t distance =
          backwards ? g.axis[k].start - at.remainder : at.remainder - g.axis[k].start;
      if (distance < 0) {
        inside = false;
        break;
      }
      const Division step = divide(distance, backwards ? -g.axis[k].stride : g.axis[k].stride);
      if (step.remainder != 0 || step.quotient >= g.axis[k].size) {
        inside = false;
        break;
      }
      offset += step.quotient * g.gy_strides[k];
    }
    gx[i] = inside ? gy[offset] : T(0);
  }
}

SliceGradient make_slice_gradient(const PlanRequest& request) {
  const Shape& shape = request.outputs[0].shape;
  const std::vector<int64_t>& starts = request.attributes.get_ints("starts");
  const std::vector<int64_t>& sizes = request.attributes.get_ints("sizes");
  const std::vector<int64_t>& strides = request.attributes.get_ints("strides");
  std::vector<SliceAxis> axes;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool is_whole = starts[i] == 0 && strides[i] == 1 && sizes[i] == shape[i];
    if (is_whole && !axes.empty() && axes.back().stride == 1) {
      axes.back().extent *= shape[i];
      axes.back().start *= shape[i];
      axes.back().size *= shape[i];
    } else {
      axes.push_back({shape[i], starts[i], sizes[i], strides[i]});
    }
  }
  if (axes.size() > kMaxAxes) {
    throw ValueError(message("slice_grad: more than ", kMaxAxes,
                             " axes that can't be merged are not supported on CUDA; got shape ",
                             shape_string(shape), "; reshape first"));
  }
  SliceGradient g;
  g.axes = static_cast<int>(axes.size());
  g.size = num_elements(shape);
  int64_t gy_stride = 1;
  for (int k = g.axes - 1; k >= 0; --k) {
    g.axis[k] = axes[k];
    g.gy_strides[k] = gy_stride;
    gy_stride *= axes[k].size;
  }
  return g;
}

}  // namespace

std::unique_ptr<Kernel> plan_transpose(const PlanRequest& request) {
  const StridedGeometry g =
      transpose_geometry(request.inputs[0].shape, request.attributes.get_ints("permutation"));
  if (is_batched_transpose(g)) return plan_tiles(request.inputs[0].dtype, g);
  return plan_strided("transpose", request.inputs[0].dtype, g);
}

std::unique_ptr<Kernel> plan_broadcast_to(const PlanRequest& request) {
  const BroadcastGeometry g = broadcast_geometry(request.outputs[0].shape, request.inputs);
  return plan_strided("broadcast_to", request.inputs[0].dtype,
                      {g.extents, g.strides[0], 0, g.size});
}

std::unique_ptr<Kernel> plan_slice(const PlanRequest& request) {
  return plan_strided(
      "slice", request.inputs[0].dtype,
      slice_geometry(request.inputs[0].shape, request.attributes.get_ints("starts"),
                     request.attributes.get_ints("sizes"), request.attributes.get_ints("strides")));
}

std::unique_ptr<Kernel> plan_slice_grad(const PlanRequest& request) {
  const SliceGradient g = make_slice_gradient(request);
  return dispatch_size(request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_early_kernel("kerascnn slice gradient", [g](const KernelArgs& args) {
      if (g.size == 0) return;
      slice_grad<T><<<grid_for(g.size), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
          input<T>(args, 0), output<T>(args, 0), g);
      check_launch("slice_grad");
    });
  });
}

std::unique_ptr<Kernel> plan_concatenate(const PlanRequest& request) {
  const int64_t axis = request.attributes.get_int("axis");
  const int64_t item = static_cast<int64_t>(itemsize(request.outputs[0].dtype));
  std::vector<int64_t> widths;
  int64_t outer = 1, row_bytes = 0, word = kWidestWord;
  for (const TensorSpec& spec : request.inputs) {
    const AxisGeometry g = axis_geometry(spec.shape, axis);
    outer = g.outer;
    widths.push_back(g.length * g.inner * item);
    row_bytes += widths.back();
    word = std::min(word, widest_word(widths.back()));
  }
  return make_early_kernel("kerascnn concatenate", [=](const KernelArgs& args) {
    if (outer * row_bytes == 0) return;
    bool aligned = is_aligned(args.outputs[0], word);
    for (const void* data : args.inputs) aligned = aligned && is_aligned(data, word);
    dispatch_word(aligned ? word : item, [&]<typename Word>(Type<Word>) {
      launch_concatenate<Word>(args, widths, outer, row_bytes);
    });
  });
}

}  // namespace kerascnn::cuda
