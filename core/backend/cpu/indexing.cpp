// gather and its adjoint, one_hot, take_batch, put_batch. Indices outside the axis
// are clamped to it.
#include <algorithm>
#include <cstring>

#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/ops/geometry.h"

namespace kerascnn::cpu {

namespace {

template <typename Index>
int64_t clamp_index(Index index, int64_t length) {
  return std::clamp<int64_t>(static_cast<int64_t>(index), 0, length - 1);
}

// Row i of `out` is row order[start + i] of `data`.
void take_rows(const char* data, const int32_t* order, int64_t start, char* out, int64_t count,
               int64_t row_bytes, int64_t rows, int64_t order_length) {
  if (row_bytes == 0 || order_length == 0) return;
  parallel_for(count, std::max<int64_t>(1, 65536 / row_bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t from = clamp_index(order[clamp_index(start + i, order_length)], rows);
      std::memcpy(out + i * row_bytes, data + from * row_bytes, static_cast<size_t>(row_bytes));
    }
  });
}

template <typename T, typename Index>
std::unique_ptr<Kernel> make_gather_grad(const AxisGeometry& geometry, int64_t count) {
  using C = compute_t<T>;
  const int64_t size = geometry.outer * geometry.length * geometry.inner;
  // 16-bit types are summed in float, in the workspace.
  constexpr bool is_narrow = !std::is_same_v<T, C>;
  return make_kernel(
      "kerascnn gather gradient",
      [geometry, count, size](const KernelArgs& args) {
        const T* gy = input<T>(args, 0);
        const Index* indices = input<Index>(args, 1);
        T* gx = output<T>(args, 0);
        C* sums = nullptr;
        if constexpr (is_narrow) {
          sums = static_cast<C*>(args.workspace);
        } else {
          sums = gx;
        }
        // Each task owns a range of positions in (outer, inner), so equal indices never race and
        // are summed in order.
        const int64_t positions = geometry.outer * geometry.inner;
        parallel_for(positions, grain_of(count), [&](int64_t begin, int64_t end) {
          for (int64_t outer = begin / geometry.inner; outer * geometry.inner < end; ++outer) {
            const int64_t first = std::max(begin - outer * geometry.inner, int64_t{0});
            const int64_t last = std::min(end - outer * geometry.inner, geometry.inner);
            C* rows = sums + outer * geometry.length * geometry.inner;
            const T* gradients = gy + outer * count * geometry.inner;
            for (int64_t row = 0; row < geometry.length; ++row) {
              std::fill(rows + row * geometry.inner + first, rows + row * geometry.inner + last,
                        C(0));
            }
            for (int64_t i = 0; i < count; ++i) {
              C* to = rows + clamp_index(indices[i], geometry.length) * geometry.inner;
              const T* from = gradients + i * geometry.inner;
              for (int64_t j = first; j < last; ++j) to[j] += static_cast<C>(from[j]);
            }
          }
        });
        if constexpr (is_narrow) {
          for (int64_t i = 0; i < size; ++i) gx[i] = static_cast<T>(sums[i]);
        }
      },
      is_narrow ? align_up(size * static_cast<int64_t>(sizeof(C))) : 0);
}

}  // namespace

std::unique_ptr<Kernel> plan_gather(const PlanRequest& request) {
  const AxisGeometry geometry =
      axis_geometry(request.inputs[0].shape, request.attributes.get_int("axis"));
  const int64_t count = size_of(request.inputs[1]);
  const int64_t bytes = geometry.inner * static_cast<int64_t>(itemsize(request.inputs[0].dtype));
  const bool is_empty = geometry.length == 0;
  return dispatch_integer(request, request.inputs[1].dtype, [&]<typename Index>(Type<Index>) {
    return make_kernel("kerascnn gather", [=](const KernelArgs& args) {
      if (is_empty || bytes == 0) return;
      const Index* indices = input<Index>(args, 1);
      const int64_t grain = std::max<int64_t>(1, 65536 / bytes);
      parallel_for(geometry.outer * count, grain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t from =
              row / count * geometry.length + clamp_index(indices[row % count], geometry.length);
          std::memcpy(output<char>(args, 0) + row * bytes, input<char>(args, 0) + from * bytes,
                      static_cast<size_t>(bytes));
        }
      });
    });
  });
}

std::unique_ptr<Kernel> plan_gather_grad(const PlanRequest& request) {
  const AxisGeometry geometry =
      axis_geometry(request.outputs[0].shape, request.attributes.get_int("axis"));
  const int64_t count = size_of(request.inputs[1]);
  return dispatch_floating(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return dispatch_integer(request, request.inputs[1].dtype, [&]<typename Index>(Type<Index>) {
      return make_gather_grad<T, Index>(geometry, count);
    });
  });
}

std::unique_ptr<Kernel> plan_one_hot(const PlanRequest& request) {
  const int64_t depth = request.attributes.get_int("depth");
  const int64_t count = size_of(request.inputs[0]);
  const IntegerReader index_of = integer_reader(request, request.inputs[0].dtype);
  return dispatch_any(request, request.outputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_kernel("kerascnn one_hot", [=](const KernelArgs& args) {
      T* out = output<T>(args, 0);
      parallel_each(count, depth, [&](int64_t i) {
        std::fill(out + i * depth, out + (i + 1) * depth, static_cast<T>(0));
        const int64_t index = index_of(args.inputs[0], i);
        // An index outside [0, depth) gives a row of zeros, as in Keras.
        if (index >= 0 && index < depth) out[i * depth + index] = static_cast<T>(1);
      });
    });
  });
}

// data (n, ...), order int32 (m,), step int64 () -> (batch_size, ...)
std::unique_ptr<Kernel> plan_take_batch(const PlanRequest& request) {
  const TensorSpec& data = request.inputs[0];
  const int64_t rows = data.shape[0];
  const int64_t order_length = size_of(request.inputs[1]);
  const int64_t batch_size = request.attributes.get_int("batch_size");
  const int64_t row_bytes = rows > 0 ? num_bytes(data) / rows : 0;
  return make_kernel("kerascnn take_batch", [=](const KernelArgs& args) {
    const int64_t start = *input<int64_t>(args, 2) * batch_size;
    take_rows(input<char>(args, 0), input<int32_t>(args, 1), start, output<char>(args, 0),
              batch_size, row_bytes, rows, order_length);
  });
}

// buffer (n, ...), batch (m, ...), step int64 () -> the buffer. If the output is the buffer itself,
// only the batch's rows are touched.
std::unique_ptr<Kernel> plan_put_batch(const PlanRequest& request) {
  const int64_t rows = request.inputs[0].shape[0];
  const int64_t batch_size = request.inputs[1].shape[0];
  const int64_t buffer_bytes = num_bytes(request.inputs[0]);
  const int64_t bytes = rows > 0 ? buffer_bytes / rows : 0;
  return make_kernel("kerascnn put_batch", [=](const KernelArgs& args) {
    if (buffer_bytes == 0) return;
    char* out = output<char>(args, 0);
    if (out != input<char>(args, 0)) {
      std::memcpy(out, input<char>(args, 0), static_cast<size_t>(buffer_bytes));
    }
    const int64_t step = *input<int64_t>(args, 2);
    // Compared before it is multiplied: no step is too large.
    if (batch_size == 0 || step < 0 || step > (rows - 1) / batch_size) return;
    const int64_t start = step * batch_size;
    const int64_t count = std::min(batch_size, rows - start);
    parallel_for(count, std::max<int64_t>(1, 65536 / bytes), [&](int64_t begin, int64_t end) {
      std::memcpy(out + (start + begin) * bytes, input<char>(args, 1) + begin * bytes,
                  static_cast<size_t>((end - begin) * bytes));
    });
  });
}

}  // namespace kerascnn::cpu
