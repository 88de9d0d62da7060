// Max and average pooling over channels-last images, and their gradients.
#include "core/ops/pool2d.h"

#include <algorithm>
#include <type_traits>

#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/backend/cpu/widen.h"

namespace kerascnn::cpu {

namespace {

// The part of a window that lies inside the input, as positions inside the window.
struct WindowPart {
  int64_t row_begin, row_end, column_begin, column_end;
  int64_t top, left;  // of the whole window, in the input; negative in the padding

  WindowPart(const Pool2DGeometry& g, int64_t output_row, int64_t output_column)
      : top(output_row * g.stride_height - g.pad_top),
        left(output_column * g.stride_width - g.pad_left) {
    row_begin = std::max<int64_t>(0, -top);
    row_end = std::min(g.window_height, g.input_height - top);
    column_begin = std::max<int64_t>(0, -left);
    column_end = std::min(g.window_width, g.input_width - left);
  }
  int64_t count() const { return (row_end - row_begin) * (column_end - column_begin); }
  // Where the element at row i and column j of the whole window lies in the image.
  int64_t offset(const Pool2DGeometry& g, int64_t i, int64_t j) const {
    return ((top + i) * g.input_width + left + j) * g.channels;
  }
};

// Calls body(image, output row) for all rows of output pixels.
template <typename Body>
void for_each_output_row(const Pool2DGeometry& g, const Body& body) {
  const int64_t row_elements = g.output_width * g.channels * g.window_height * g.window_width;
  parallel_each(g.batch * g.output_height, row_elements,
                [&](int64_t row) { body(row / g.output_height, row % g.output_height); });
}

// Calls body(image) in parallel; one thread adds all gradients of an image, in order.
template <typename Body>
void for_each_image(const Pool2DGeometry& g, const Body& body) {
  parallel_each(g.batch, g.input_height * g.input_width * g.channels, body);
}

// Channels are handled in pieces of so many, so that the loops over them vectorize.
constexpr int64_t kPiece = 64;

template <typename T, typename Index>
void max_pool_pixel(const Pool2DGeometry& g, const WindowPart& part, const T* image, T* y,
                    Index* index) {
  using C = compute_t<T>;
  for (int64_t first = 0; first < g.channels; first += kPiece) {
    const int64_t count = std::min(kPiece, g.channels - first);
    C largest[kPiece];
    int32_t best[kPiece];
    for (int64_t i = part.row_begin; i < part.row_end; ++i) {
      for (int64_t j = part.column_begin; j < part.column_end; ++j) {
        const T* from = image + part.offset(g, i, j) + first;
        const auto position = static_cast<int32_t>(i * g.window_width + j);
        const bool is_first = i == part.row_begin && j == part.column_begin;
        for (int64_t c = 0; c < count; ++c) {
          const C value = static_cast<C>(from[c]);
          // NaN wins over everything, and the first of equal maxima over the others.
          const bool take =
              is_first || value > largest[c] || (value != value && largest[c] == largest[c]);
          largest[c] = take ? value : largest[c];
          best[c] = take ? position : best[c];
        }
      }
    }
    for (int64_t c = 0; c < count; ++c) y[first + c] = static_cast<T>(largest[c]);
    for (int64_t c = 0; index != nullptr && c < count; ++c) {
      index[first + c] = static_cast<Index>(best[c]);
    }
  }
}

template <typename T, typename Index>
std::unique_ptr<Kernel> make_max_pool(const Pool2DGeometry& g) {
  return make_kernel("kerascnn max_pool2d", [g](const KernelArgs& args) {
    const T* x = input<T>(args, 0);
    T* y = output<T>(args, 0);
    Index* index = output<Index>(args, 1);
    for_each_output_row(g, [&](int64_t image, int64_t row) {
      const T* from = x + image * g.input_height * g.input_width * g.channels;
      for (int64_t column = 0; column < g.output_width; ++column) {
        const int64_t at = ((image * g.output_height + row) * g.output_width + column) * g.channels;
        max_pool_pixel(g, WindowPart(g, row, column), from, y + at,
                       index != nullptr ? index + at : nullptr);
      }
    });
  });
}

// Output columns whose windows are clipped alike are one piece of work for the vector kernels:
// body(part, first column, number of columns).
template <typename Body>
void for_each_column_run(const Pool2DGeometry& g, int64_t row, const Body& body) {
  int64_t column = 0;
  while (column < g.output_width) {
    const WindowPart part(g, row, column);
    int64_t count = 1;
    while (column + count < g.output_width) {
      const WindowPart next(g, row, column + count);
      if (next.column_begin != part.column_begin || next.column_end != part.column_end) break;
      ++count;
    }
    body(part, column, count);
    column += count;
  }
}

PoolRow pool_row(const Pool2DGeometry& g, const WindowPart& part, int64_t pixels) {
  return {pixels,
          g.channels,
          part.row_end - part.row_begin,
          part.column_end - part.column_begin,
          g.stride_width * g.channels,
          g.input_width * g.channels,
          part.row_begin * g.window_width + part.column_begin,
          g.window_width};
}

std::unique_ptr<Kernel> make_float_max_pool(const Pool2DGeometry& g) {
  const FloatKernels& kernels = float_kernels();
  return make_kernel(
      message("kerascnn max_pool2d:", kernels.name), [g, &kernels](const KernelArgs& args) {
        for_each_output_row(g, [&](int64_t image, int64_t row) {
          const float* x =
              input<float>(args, 0) + image * g.input_height * g.input_width * g.channels;
          const int64_t first = (image * g.output_height + row) * g.output_width * g.channels;
          float* y = output<float>(args, 0) + first;
          uint8_t* index = output<uint8_t>(args, 1);
          if (index != nullptr) index += first;
          for_each_column_run(g, row, [&](const WindowPart& part, int64_t column, int64_t count) {
            const int64_t at = column * g.channels;
            kernels.max_pool(pool_row(g, part, count),
                             x + part.offset(g, part.row_begin, part.column_begin), y + at,
                             index != nullptr ? index + at : nullptr);
          });
        });
      });
}

// For windows that don't overlap: each output row owns its rows of the input, whose elements
// outside all windows become 0.
std::unique_ptr<Kernel> make_float_max_pool_grad(const Pool2DGeometry& g) {
  const FloatKernels& kernels = float_kernels();
  // With padding, the last window may end before the input even if their sizes are a multiple.
  const bool has_gaps = g.stride_height != g.window_height || g.stride_width != g.window_width ||
                        g.output_height * g.stride_height - g.pad_top < g.input_height ||
                        g.output_width * g.stride_width - g.pad_left < g.input_width;
  return make_kernel(
      message("kerascnn max_pool2d gradient:", kernels.name),
      [=, &kernels](const KernelArgs& args) {
        for_each_output_row(g, [&](int64_t image, int64_t row) {
          const int64_t row_size = g.input_width * g.channels;
          float* gx = output<float>(args, 0) + image * g.input_height * row_size;
          if (has_gaps) {
            // Covers the input rows from the end of the previous output row's windows to the end of
            // this row's.
            const auto end_of = [&](int64_t r) {
              return r == g.output_height - 1
                         ? g.input_height
                         : std::max<int64_t>(0, (r + 1) * g.stride_height - g.pad_top);
            };
            const int64_t begin = row == 0 ? 0 : end_of(row - 1);
            std::fill(gx + begin * row_size, gx + end_of(row) * row_size, 0.0f);
          }
          const int64_t first = (image * g.output_height + row) * g.output_width * g.channels;
          const float* gy = input<float>(args, 0) + first;
          const uint8_t* index = input<uint8_t>(args, 1) + first;
          for_each_column_run(g, row, [&](const WindowPart& part, int64_t column, int64_t count) {
            const int64_t at = column * g.channels;
            kernels.max_pool_grad(pool_row(g, part, count), gy + at, index + at,
                                  gx + part.offset(g, part.row_begin, part.column_begin));
          });
        });
      });
}

template <typename T>
void avg_pool_pixel(const Pool2DGeometry& g, const WindowPart& part, const T* image, T* y) {
  using C = compute_t<T>;
  const C scale = C(1) / static_cast<C>(part.count());
  for (int64_t first = 0; first < g.channels; first += kPiece) {
    const int64_t count = std::min(kPiece, g.channels - first);
    C sums[kPiece] = {};
    for (int64_t i = part.row_begin; i < part.row_end; ++i) {
      for (int64_t j = part.column_begin; j < part.column_end; ++j) {
        const T* from = image + part.offset(g, i, j) + first;
        for (int64_t c = 0; c < count; ++c) sums[c] += static_cast<C>(from[c]);
      }
    }
    for (int64_t c = 0; c < count; ++c) y[first + c] = static_cast<T>(sums[c] * scale);
  }
}

template <typename T>
std::unique_ptr<Kernel> make_avg_pool(const Pool2DGeometry& g) {
  return make_kernel("kerascnn avg_pool2d", [g](const KernelArgs& args) {
    const T* x = input<T>(args, 0);
    T* y = output<T>(args, 0);
    for_each_output_row(g, [&](int64_t image, int64_t row) {
      const T* from = x + image * g.input_height * g.input_width * g.channels;
      for (int64_t column = 0; column < g.output_width; ++column) {
        avg_pool_pixel(
            g, WindowPart(g, row, column), from,
            y + ((image * g.output_height + row) * g.output_width + column) * g.channels);
      }
    });
  });
}

// The windows along one axis that hold a position: [first, second).
std::pair<int64_t, int64_t> windows_with(int64_t position, int64_t pad, int64_t window,
                                         int64_t stride, int64_t count) {
  const int64_t last = (position + pad) / stride;
  const int64_t before =
      position + pad - window;  // the last position that a window may not start at
  const int64_t first = before < 0 ? 0 : before / stride + 1;
  return {first, std::min(last + 1, count)};
}

// Where the maximum of a window lies in the image. An index that no max_pool2d gave must not lead
// outside.
template <typename Index>
int64_t maximum_offset(const Pool2DGeometry& g, const WindowPart& part, Index index) {
  return part.offset(
      g, std::clamp<int64_t>(index / g.window_width, part.row_begin, part.row_end - 1),
      std::clamp<int64_t>(index % g.window_width, part.column_begin, part.column_end - 1));
}

template <typename T, typename Index>
std::unique_ptr<Kernel> make_max_pool_grad(const Pool2DGeometry& g) {
  return make_kernel("kerascnn max_pool2d gradient", [g](const KernelArgs& args) {
    const int64_t image_size = g.input_height * g.input_width * g.channels;
    const int64_t output_size = g.output_height * g.output_width * g.channels;
    for_each_image(g, [&](int64_t image) {
      const T* gy = input<T>(args, 0) + image * output_size;
      const Index* index = input<Index>(args, 1) + image * output_size;
      T* gx = output<T>(args, 0) + image * image_size;
      std::fill(gx, gx + image_size, static_cast<T>(0));
      for (int64_t row = 0; row < g.output_height; ++row) {
        for (int64_t column = 0; column < g.output_width; ++column) {
          const WindowPart part(g, row, column);
          for (int64_t channel = 0; channel < g.channels; ++channel, ++gy, ++index) {
            gx[maximum_offset(g, part, *index) + channel] += *gy;
          }
        }
      }
    });
  });
}

// Each input pixel collects from the windows that hold it, so nothing is accumulated in 16 bits.
template <typename T>
void avg_pool_grad_pixel(const Pool2DGeometry& g, int64_t row, int64_t column, const T* gy, T* gx) {
  using C = compute_t<T>;
  const auto [row_begin, row_end] =
      windows_with(row, g.pad_top, g.window_height, g.stride_height, g.output_height);
  const auto [column_begin, column_end] =
      windows_with(column, g.pad_left, g.window_width, g.stride_width, g.output_width);
  for (int64_t first = 0; first < g.channels; first += kPiece) {
    const int64_t length = std::min(kPiece, g.channels - first);
    C sums[kPiece] = {};
    for (int64_t i = row_begin; i < row_end; ++i) {
      for (int64_t j = column_begin; j < column_end; ++j) {
        const C scale = C(1) / static_cast<C>(WindowPart(g, i, j).count());
        const T* from = gy + (i * g.output_width + j) * g.channels + first;
        for (int64_t c = 0; c < length; ++c) sums[c] += static_cast<C>(from[c]) * scale;
      }
    }
    for (int64_t c = 0; c < length; ++c) gx[first + c] = static_cast<T>(sums[c]);
  }
}

template <typename T>
std::unique_ptr<Kernel> make_avg_pool_grad(const Pool2DGeometry& g) {
  return make_kernel("kerascnn avg_pool2d gradient", [g](const KernelArgs& args) {
    for_each_image(g, [&](int64_t image) {
      const T* gy = input<T>(args, 0) + image * g.output_height * g.output_width * g.channels;
      T* gx = output<T>(args, 0) + image * g.input_height * g.input_width * g.channels;
      for (int64_t row = 0; row < g.input_height; ++row) {
        for (int64_t column = 0; column < g.input_width; ++column, gx += g.channels) {
          avg_pool_grad_pixel(g, row, column, gy, gx);
        }
      }
    });
  });
}

template <typename Function>
std::unique_ptr<Kernel> with_index_type(const Pool2DGeometry& g, const Function& function) {
  return g.index_dtype() == DType::UInt8 ? function(Type<uint8_t>()) : function(Type<int32_t>());
}

}  // namespace

std::unique_ptr<Kernel> plan_max_pool2d(const PlanRequest& request) {
  if (is_narrow(request.inputs[0].dtype)) return plan_in_float32(request, plan_max_pool2d);
  const Pool2DGeometry g =
      pool2d_geometry("max_pool2d", request.attributes, request.inputs[0].shape);
  if (request.inputs[0].dtype == DType::Float32 && g.index_dtype() == DType::UInt8) {
    return make_float_max_pool(g);
  }
  return dispatch<float, double>(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return with_index_type(g,
                           [&]<typename Index>(Type<Index>) { return make_max_pool<T, Index>(g); });
  });
}

std::unique_ptr<Kernel> plan_max_pool2d_grad(const PlanRequest& request) {
  if (is_narrow(request.inputs[0].dtype)) return plan_in_float32(request, plan_max_pool2d_grad);
  const Pool2DGeometry g =
      pool2d_geometry("max_pool2d_grad", request.attributes, request.outputs[0].shape);
  if (request.inputs[0].dtype == DType::Float32 && g.index_dtype() == DType::UInt8 &&
      !g.windows_overlap()) {
    return make_float_max_pool_grad(g);
  }
  return dispatch<float, double>(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return with_index_type(
        g, [&]<typename Index>(Type<Index>) { return make_max_pool_grad<T, Index>(g); });
  });
}

std::unique_ptr<Kernel> plan_avg_pool2d(const PlanRequest& request) {
  const Pool2DGeometry g =
      pool2d_geometry("avg_pool2d", request.attributes, request.inputs[0].shape);
  return dispatch_floating(request, request.inputs[0].dtype,
                           [&]<typename T>(Type<T>) { return make_avg_pool<T>(g); });
}

std::unique_ptr<Kernel> plan_avg_pool2d_grad(const PlanRequest& request) {
  const Pool2DGeometry g =
      pool2d_geometry("avg_pool2d_grad", request.attributes, request.outputs[0].shape);
  return dispatch_floating(request, request.inputs[0].dtype,
                           [&]<typename T>(Type<T>) { return make_avg_pool_grad<T>(g); });
}

}  // namespace kerascnn::cpu
