// gather and its adjoint, one_hot, put_batch. Indices outside the axis are clamped to
// it.
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/block.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/movement/copy.cuh"
#include "core/backend/cuda/movement/indices.cuh"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/ops/geometry.h"

namespace kerascnn::cuda {
namespace {

constexpr int kCopyThreads = 128;  // batches are small: more blocks reach more of the GPU

// The rows of `batch` become rows step * batch_size, ... of `out`, as far as it has such rows; a
// row has `words` words. In place, only these rows are touched; otherwise the rest is copied from
// `buffer`. It is one launch either way.
template <typename Word>
__global__ void put_batch(const Word* buffer, const Word* __restrict__ batch,
                          const int64_t* __restrict__ step, Word* out, int64_t batch_size,
                          int64_t words, int64_t rows) {
  begin_kernel();
  // `step` is compared before it is multiplied, so no step is too large.
  const bool is_inside = batch_size > 0 && *step >= 0 && *step <= (rows - 1) / batch_size;
  const int64_t start = is_inside ? *step * batch_size * words : rows * words;
  const int64_t end = min(start + batch_size * words, rows * words);
  if (buffer == out) {
    for (int64_t i = start + first_item(); i < end; i += item_step()) out[i] = batch[i - start];
    return;
  }
  for (int64_t i = first_item(); i < rows * words; i += item_step()) {
    out[i] = i >= start && i < end ? batch[i - start] : buffer[i];
  }
}

// x (outer, length, words), indices (count,) -> y (outer, count, words).
template <typename Word, typename Index>
__global__ void gather(const Word* __restrict__ x, const Index* __restrict__ indices,
                       Word* __restrict__ y, int64_t outer, int64_t length, int64_t count,
                       int64_t words) {
  begin_kernel();
  for (int64_t i = first_item(); i < outer * count * words; i += item_step()) {
    const Division row = divide(i, words);
    const Division at = divide(row.quotient, count);
    const int64_t from =
        at.quotient * length + clamp_index(static_cast<int64_t>(indices[at.remainder]), length);
    y[i] = x[from * words + row.remainder];
  }
}

constexpr int kSums = 4;  // sums that a thread of gather_grad carries

// Adds gy (outer, count, inner) up into gx (outer, length, inner), which is zero before. The block
// of the first position that names a row adds up all of the row's gradients, in order: no two
// blocks write one element.
template <typename T, typename Index>
__global__ void __launch_bounds__(kThreads)
    gather_grad(const T* __restrict__ gy, const Index* __restrict__ indices, T* __restrict__ gx,
                AxisGeometry g, int64_t count) {
  begin_kernel();
  using C = compute_t<T>;
  constexpr int kWarps = kThreads / 32;
  __shared__ int matches[kThreads];
  __shared__ int warp_counts[kWarps];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int64_t elements = g.outer * g.inner;
  const auto names = [&](int64_t position, int64_t end, int64_t row) {
    return position < end && clamp_index(static_cast<int64_t>(indices[position]), g.length) == row;
  };

  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const int64_t row = clamp_index(static_cast<int64_t>(indices[i]), g.length);
    bool is_first = true;
    for (int64_t begin = 0; begin < i && is_first; begin += kThreads) {
      is_first = !__syncthreads_or(names(begin + threadIdx.x, i, row));
    }
    if (!is_first) continue;

    for (int64_t base = static_cast<int64_t>(blockIdx.y) * kThreads * kSums; base < elements;
         base += static_cast<int64_t>(gridDim.y) * kThreads * kSums) {
      C sums[kSums] = {};
      int64_t sources[kSums];
#pragma unroll
      for (int k = 0; k < kSums; ++k) {
        const Division at = divide(base + k * kThreads + threadIdx.x, g.inner);
        sources[k] = at.quotient * count * g.inner + at.remainder;
      }
      for (int64_t begin = i; begin < count; begin += kThreads) {
        // The positions of this stretch that name the row, in order.
        const bool is_match = names(begin + threadIdx.x, count, row);
        const unsigned mask = __ballot_sync(kFullWarp, is_match);
        if (lane == 0) warp_counts[warp] = __popc(mask);
        __syncthreads();
        int before = 0, total = 0;
        for (int w = 0; w < kWarps; ++w) {
          if (w < warp) before += warp_counts[w];
          total += warp_counts[w];
        }
        if (is_match) matches[before + __popc(mask & ((1u << lane) - 1))] = threadIdx.x;
        __syncthreads();
        for (int m = 0; m < total; ++m) {
          const int64_t position = (begin + matches[m]) * g.inner;
#pragma unroll
          for (int k = 0; k < kSums; ++k) {
            if (base + k * kThreads + threadIdx.x < elements) {
              sums[k] += load(gy[sources[k] + position]);
            }
          }
        }
        __syncthreads();  // before the next stretch overwrites the matches
      }
#pragma unroll
      for (int k = 0; k < kSums; ++k) {
        const int64_t element = base + k * kThreads + threadIdx.x;
        if (element >= elements) continue;
        const Division at = divide(element, g.inner);
        gx[(at.quotient * g.length + row) * g.inner + at.remainder] = store<T>(sums[k]);
      }
    }
  }
}

// An index outside [0, depth) gives a row of zeros, as in Keras.
template <typename Word, typename Index>
__global__ void one_hot(const Index* __restrict__ indices, Word* __restrict__ y, int64_t size,
                        int64_t depth, Word one) {
  begin_kernel();
  for (int64_t i = first_item(); i < size; i += item_step()) {
    const Division at = divide(i, depth);
    y[i] = static_cast<int64_t>(indices[at.quotient]) == at.remainder ? one : Word(0);
  }
}

// The bits of the number 1.
uint64_t bits_of_one(DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return 0x3c00;
    case DType::BFloat16:
      return 0x3f80;
    case DType::Float32:
      return 0x3f800000;
    case DType::Float64:
      return 0x3ff0000000000000;
    default:
      return 1;
  }
}

AxisGeometry gathered_axis(const PlanRequest& request, const Shape& shape) {
  return axis_geometry(shape, request.attributes.get_int("axis"));
}

// The word to copy with is `widest` where both buffers are aligned to it.
int64_t word_for(const KernelArgs& args, int64_t widest, int64_t item) {
  const bool aligned = is_aligned(args.inputs[0], widest) && is_aligned(args.outputs[0], widest);
  return aligned ? widest : item;
}

}  // namespace

std::unique_ptr<Kernel> plan_gather(const PlanRequest& request) {
  const AxisGeometry g = gathered_axis(request, request.inputs[0].shape);
  const int64_t count = num_elements(request.inputs[1].shape);
  const int64_t item = static_cast<int64_t>(itemsize(request.inputs[0].dtype));
  const int64_t row_bytes = g.inner * item;
  const int64_t widest = widest_word(row_bytes);
  return dispatch_label("gather", request.inputs[1].dtype, [&]<typename Index>(Type<Index>) {
    return make_early_kernel("kerascnn gather", [=](const KernelArgs& args) {
      if (g.outer * count * row_bytes == 0) return;
      dispatch_word(word_for(args, widest, item), [&]<typename Word>(Type<Word>) {
        const int64_t words = row_bytes / static_cast<int64_t>(sizeof(Word));
        gather<Word, Index><<<grid_for(g.outer * count * words, kCopyThreads), kCopyThreads, 0,
                              static_cast<cudaStream_t>(args.stream)>>>(
            input<Word>(args, 0), input<Index>(args, 1), output<Word>(args, 0), g.outer, g.length,
            count, words);
        check_launch("gather");
      });
    });
  });
}

std::unique_ptr<Kernel> plan_gather_grad(const PlanRequest& request) {
  const AxisGeometry g = gathered_axis(request, request.outputs[0].shape);
  const int64_t count = num_elements(request.inputs[1].shape);
  const int64_t bytes = num_bytes(request.outputs[0]);
  const dim3 grid(grid_for(count, 1), grid_for(g.outer * g.inner, kThreads * kSums));
  return dispatch_floating("gather_grad", request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return dispatch_label("gather_grad", request.inputs[1].dtype, [&]<typename Index>(Type<Index>) {
      return make_kernel("kerascnn gather gradient", [=](const KernelArgs& args) {
        if (bytes == 0) return;
        const auto stream = static_cast<cudaStream_t>(args.stream);
        check(cudaMemsetAsync(args.outputs[0], 0, static_cast<size_t>(bytes), stream),
              "gather_grad: cudaMemsetAsync");
        if (count == 0) return;
        gather_grad<T, Index><<<grid, kThreads, 0, stream>>>(
            input<T>(args, 0), input<Index>(args, 1), output<T>(args, 0), g, count);
        check_launch("gather_grad");
      });
    });
  });
}

std::unique_ptr<Kernel> plan_one_hot(const PlanRequest& request) {
  const int64_t depth = request.attributes.get_int("depth");
  const int64_t size = num_elements(request.outputs[0].shape);
  const uint64_t one = bits_of_one(request.outputs[0].dtype);
  return dispatch_label("one_hot", request.inputs[0].dtype, [&]<typename Index>(Type<Index>) {
    return dispatch_size(request.outputs[0].dtype, [&]<typename Word>(Type<Word>) {
      return make_early_kernel("kerascnn one_hot", [=](const KernelArgs& args) {
        if (size == 0) return;
        one_hot<Word, Index>
            <<<grid_for(size), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
                input<Index>(args, 0), output<Word>(args, 0), size, depth, static_cast<Word>(one));
        check_launch("one_hot");
      });
    });
  });
}

// (buffer (n, ...), batch (m, ...), step int64 ()) -> the buffer
std::unique_ptr<Kernel> plan_put_batch(const PlanRequest& request) {
  const TensorSpec& buffer = request.inputs[0];
  const int64_t rows = buffer.shape[0];
  const int64_t batch_size = request.inputs[1].shape[0];
  const int64_t item = static_cast<int64_t>(itemsize(buffer.dtype));
  const int64_t row_bytes = rows > 0 ? num_bytes(buffer) / rows : 0;
  const int64_t widest = widest_word(row_bytes);
  return make_early_kernel("kerascnn put_batch", [=](const KernelArgs& args) {
    const bool in_place = args.inputs[0] == args.outputs[0];
    if (rows * row_bytes == 0 || (batch_size == 0 && in_place)) return;
    const int64_t word = is_aligned(args.inputs[1], widest) ? word_for(args, widest, item) : item;
    dispatch_word(word, [&]<typename Word>(Type<Word>) {
      const int64_t words = row_bytes / static_cast<int64_t>(sizeof(Word));
      const int64_t items = (in_place ? std::min(batch_size, rows) : rows) * words;
      put_batch<Word><<<grid_for(items, kCopyThreads), kCopyThreads, 0,
                        static_cast<cudaStream_t>(args.stream)>>>(
          input<Word>(args, 0), input<Word>(args, 1), input<int64_t>(args, 2),
          output<Word>(args, 0), batch_size, words, rows);
      check_launch("put_batch");
    });
  });
}

}  // namespace kerascnn::cuda
