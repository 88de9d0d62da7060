// Batch normalization over the last axis with the batch's own statistics, and its gradient. Column
// sums are taken in double over a fixed number of row blocks, so they don't depend on the number of
// threads.
#include <algorithm>
#include <cmath>

#include "core/backend/cpu/batch_norm.h"

#include "core/backend/cpu/channel_kernels.h"
#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"

namespace kerascnn::cpu {

namespace {

struct Columns {
  int64_t rows;
  int64_t channels;
  int64_t blocks;

  // Those of one of `outer` equal parts.
  explicit Columns(const TensorSpec& x, int64_t outer = 1) : channels(x.shape.back()), blocks(1) {
    rows = channels > 0 ? size_of(x) / channels / outer : 0;
    blocks = std::clamp<int64_t>(rows * channels / 32768, 1, 32);
  }
  int64_t first_row(int64_t block) const { return rows * block / blocks; }
  int64_t workspace_bytes(int64_t sums) const {
    return (blocks + 1) * sums * channels * static_cast<int64_t>(sizeof(double));
  }
};

// Calls body(first row, last row, sums) for ranges of all rows, where sums points at num_sums *
// channels accumulators, and leaves their totals at the start of the workspace.
template <typename Body>
double* sum_columns(const Columns& columns, int64_t num_sums, void* workspace, const Body& body) {
  const int64_t width = num_sums * columns.channels;
  double* totals = static_cast<double*>(workspace);
  double* partial = totals + width;
  parallel_each(columns.blocks, kElementGrain, [&](int64_t block) {
    double* sums = partial + block * width;
    std::fill(sums, sums + width, 0.0);
    body(columns.first_row(block), columns.first_row(block + 1), sums);
  });
  std::fill(totals, totals + width, 0.0);
  for (int64_t block = 0; block < columns.blocks; ++block) {
    for (int64_t i = 0; i < width; ++i) totals[i] += partial[block * width + i];
  }
  return totals;
}

template <typename Body>
void for_each_row_range(const Columns& columns, const Body& body) {
  parallel_for(columns.rows, grain_of(columns.channels), body);
}

// A thread has buffers of so many floats for rows of 16 bits.
constexpr int64_t kBuffer = kMostChannelsOf16Bits;

// Rows of float32, or of 16 bits, which are widened into a buffer.
class RowReader {
 public:
  RowReader(const void* data, DType dtype, int64_t channels)
      : data_(data), dtype_(dtype), channels_(channels) {}

  const float* rows(int64_t first, int64_t count, float* buffer) const {
    if (dtype_ == DType::Float32) return static_cast<const float*>(data_) + first * channels_;
    with_type<Half, BFloat16>(dtype_, [&]<typename T>(Type<T>) {
      widen(static_cast<const T*>(data_) + first * channels_, buffer, count * channels_);
    });
    return buffer;
  }

 private:
  const void* data_;
  DType dtype_;
  int64_t channels_;
};

// Where rows of float32 are computed: in place, or in a buffer that `done` rounds.
class RowWriter {
 public:
  RowWriter(void* data, DType dtype, int64_t channels)
      : data_(data), dtype_(dtype), channels_(channels) {}

  float* rows(int64_t first, float* buffer) const {
    return dtype_ == DType::Float32 ? static_cast<float*>(data_) + first * channels_ : buffer;
  }
  void done(int64_t first, int64_t count, const float* buffer) const {
    if (dtype_ == DType::Float32) return;
    with_type<Half, BFloat16>(dtype_, [&]<typename T>(Type<T>) {
      narrow(buffer, static_cast<T*>(data_) + first * channels_, count * channels_);
    });
  }

 private:
  void* data_;
  DType dtype_;
  int64_t channels_;
};

// Calls body(first, count) for pieces of rows, of which a buffer holds one if any has 16 bits.
template <typename Body>
void for_each_piece(int64_t begin, int64_t end, int64_t channels, bool has_buffers,
                    const Body& body) {
  const int64_t most = has_buffers ? std::max<int64_t>(1, kBuffer / channels) : end - begin;
  for (int64_t first = begin; first < end; first += most) body(first, std::min(most, end - first));
}

// The mean and the biased variance of each channel, one after the other in the workspace.
struct Moments {
  double* mean;
  double* variance;
};

int64_t moments_workspace(const Columns& columns) {
  return columns.workspace_bytes(2) + columns.channels * static_cast<int64_t>(sizeof(float)) +
         kAlignment;
}

// About the mean of each channel: that of a few rows, 0 where it is not finite. Squares of
// differences from it are of the variance's size, so few digits are lost between them.
void find_middles(const Columns& columns, const RowReader& x, double* sums, float* middles) {
  constexpr int64_t kRows = 16;
  const int64_t rows = std::min(columns.rows, kRows);
  std::fill(sums, sums + columns.channels, 0.0);
  float buffer[kBuffer];
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = x.rows(columns.rows * i / rows, 1, buffer);
    for (int64_t c = 0; c < columns.channels; ++c) sums[c] += static_cast<double>(row[c]);
  }
  for (int64_t c = 0; c < columns.channels; ++c) {
    const bool has_mean = rows > 0 && std::isfinite(sums[c]);
    middles[c] = has_mean ? static_cast<float>(sums[c] / static_cast<double>(rows)) : 0;
  }
}

Moments moments_of(const Columns& columns, const RowReader& x, bool has_buffers, void* workspace) {
  const int64_t channels = columns.channels;
  const double count = static_cast<double>(columns.rows);
  auto* shift =
      reinterpret_cast<float*>(static_cast<char*>(workspace) + columns.workspace_bytes(2));
  find_middles(columns, x, static_cast<double*>(workspace), shift);
  double* mean = sum_columns(columns, 2, workspace, [&](int64_t begin, int64_t end, double* sums) {
    float buffer[kBuffer];
    for_each_piece(begin, end, channels, has_buffers, [&](int64_t first, int64_t rows) {
      channel_kernels().sum_moments(x.rows(first, rows, buffer), shift, rows, channels, sums,
                                    sums + channels);
    });
  });
  double* variance = mean + channels;
  for (int64_t c = 0; c < channels; ++c) {
    const double off = mean[c] / count;
    mean[c] = static_cast<double>(shift[c]) + off;
    variance[c] = std::max(variance[c] / count - off * off, 0.0);
  }
  return {mean, variance};
}

template <typename T>
Moments moments_of(const Columns& columns, const T* x, void* workspace) {
  using C = compute_t<T>;
  const int64_t channels = columns.channels;
  const double count = static_cast<double>(columns.rows);
  double* mean = sum_columns(columns, 1, workspace, [&](int64_t begin, int64_t end, double* sums) {
    for (int64_t at = begin * channels; at < end * channels; at += channels) {
      for (int64_t c = 0; c < channels; ++c) sums[c] += static_cast<C>(x[at + c]);
    }
  });
  // The means lie in front of the second pass' sums, which must not overwrite them.
  for (int64_t c = 0; c < channels; ++c) mean[c] /= count;
  double* variance =
      sum_columns(columns, 1, mean + channels, [&](int64_t begin, int64_t end, double* sums) {
        for (int64_t at = begin * channels; at < end * channels; at += channels) {
          for (int64_t c = 0; c < channels; ++c) {
            const double centered = static_cast<C>(x[at + c]) - mean[c];
            sums[c] += centered * centered;
          }
        }
      });
  for (int64_t c = 0; c < channels; ++c) variance[c] /= count;
  return {mean, variance};
}

// Of each of `outer` parts of x by itself.
template <typename T>
void column_moments(const Columns& columns, int64_t outer, const KernelArgs& args) {
  const int64_t channels = columns.channels;
  for (int64_t part = 0; part < outer; ++part) {
    const T* const x = input<T>(args, 0) + part * columns.rows * channels;
    // In double, as a region sums: in a region or by itself the op has the same bits.
    const Moments moments = moments_of<T>(columns, x, args.workspace);
    T* const mean = output<T>(args, 0) + part * channels;
    T* const variance = output<T>(args, 1) + part * channels;
    for (int64_t c = 0; c < channels; ++c) {
      mean[c] = static_cast<T>(static_cast<compute_t<T>>(moments.mean[c]));
      variance[c] = static_cast<T>(static_cast<compute_t<T>>(moments.variance[c]));
    }
  }
}

// Rows of float factors, one for each channel, behind a call's sums.
constexpr int64_t kFactors = 4;

struct Factors {
  Factors(void* workspace, int64_t offset, int64_t channels)
      : first(reinterpret_cast<float*>(static_cast<char*>(workspace) + offset)),
        channels(channels) {}
  float* operator[](int64_t row) { return first + row * channels; }

  static int64_t bytes(int64_t channels) {
    return kFactors * channels * static_cast<int64_t>(sizeof(float));
  }

  float* first;
  int64_t channels;
};

// Writes the statistics that are read, and leaves the inverse standard deviations in the place of
// the variances.
template <typename P>
void write_statistics(const Moments& moments, int64_t channels, double epsilon,
                      const KernelArgs& args) {
  const auto [mean, variance] = moments;
  const auto write = [&](size_t k, int64_t c, double value) {
    if (args.outputs[k] != nullptr) {
      output<P>(args, k)[c] = static_cast<P>(static_cast<compute_t<P>>(value));
    }
  };
  for (int64_t c = 0; c < channels; ++c) {
    const double inverse = 1 / std::sqrt(variance[c] + epsilon);
    write(1, c, mean[c]);
    write(2, c, variance[c]);
    write(3, c, inverse);
    variance[c] = inverse;
  }
}

// By vectors, of data in float32 or 16 bits.
void batch_norm_rows(const Columns& columns, DType x_dtype, DType y_dtype, double epsilon,
                     const KernelArgs& args) {
  const int64_t channels = columns.channels;
  const RowReader x(args.inputs[0], x_dtype, channels);
  const RowWriter y(args.outputs[0], y_dtype, channels);
  const bool is_narrow_x = is_narrow(x_dtype);
  const auto* gamma = input<float>(args, 1);
  const auto [mean, inverse] = moments_of(columns, x, is_narrow_x, args.workspace);
  write_statistics<float>({mean, inverse}, channels, epsilon, args);
  Factors factors(args.workspace, moments_workspace(columns), channels);
  for (int64_t c = 0; c < channels; ++c) {
    factors[0][c] = static_cast<float>(mean[c]);
    factors[1][c] = static_cast<float>(mean[c] - static_cast<double>(factors[0][c]));
    factors[2][c] = static_cast<float>(static_cast<double>(gamma[c]) * inverse[c]);
  }
  const NormalizedColumns normalized{factors[0], factors[1], factors[2], input<float>(args, 2)};
  const bool has_buffers = is_narrow_x || is_narrow(y_dtype);
  for_each_row_range(columns, [&](int64_t begin, int64_t end) {
    float from[kBuffer], to[kBuffer];
    for_each_piece(begin, end, channels, has_buffers, [&](int64_t first, int64_t rows) {
      channel_kernels().normalize(normalized, x.rows(first, rows, from), rows, channels,
                                  y.rows(first, to));
      y.done(first, rows, to);
    });
  });
}

// Of any dtype.
template <typename T>
void batch_norm_forward(const Columns& columns, double epsilon, const KernelArgs& args) {
  using C = compute_t<T>;
  const T* x = input<T>(args, 0);
  const T* gamma = input<T>(args, 1);
  const T* beta = input<T>(args, 2);
  T* y = output<T>(args, 0);
  const int64_t channels = columns.channels;
  const auto [mean, inverse] = moments_of(columns, x, args.workspace);
  write_statistics<T>({mean, inverse}, channels, epsilon, args);
  for_each_row_range(columns, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t c = 0; c < channels; ++c) {
        const C centered = static_cast<C>(static_cast<C>(x[row * channels + c]) - mean[c]);
        const C scale = static_cast<C>(static_cast<C>(gamma[c]) * inverse[c]);
        y[row * channels + c] =
            static_cast<T>(static_cast<C>(centered * scale + static_cast<C>(beta[c])));
      }
    }
  });
}

// gx = gamma * inverse / n * (n * gy - sum(gy) - xhat * sum(gy * xhat)), xhat = (x - mean) *
// inverse.
// Writes the gradients of gamma and of beta that are read.
template <typename P>
void write_sums(const double* sums, int64_t channels, const KernelArgs& args) {
  for (const size_t k : {size_t{1}, size_t{2}}) {
    if (args.outputs[k] == nullptr) continue;
    const double* from = sums + (k == 1 ? channels : 0);
    for (int64_t c = 0; c < channels; ++c) {
      output<P>(args, k)[c] = static_cast<P>(static_cast<compute_t<P>>(from[c]));
    }
  }
}

// By vectors, of data in float32 or 16 bits.
void batch_norm_grad_rows(const Columns& columns, DType gy_dtype, DType x_dtype, DType gx_dtype,
                          const KernelArgs& args) {
  const int64_t channels = columns.channels;
  const RowReader gy(args.inputs[0], gy_dtype, channels), x(args.inputs[1], x_dtype, channels);
  const auto *gamma = input<float>(args, 2), *mean = input<float>(args, 3);
  const auto* inverse = input<float>(args, 4);
  const bool reads_narrow = is_narrow(gy_dtype) || is_narrow(x_dtype);
  double* sums =
      sum_columns(columns, 2, args.workspace, [&](int64_t begin, int64_t end, double* partial) {
        float gradients[kBuffer], values[kBuffer];
        for_each_piece(begin, end, channels, reads_narrow, [&](int64_t first, int64_t rows) {
          channel_kernels().sum_gradients(gy.rows(first, rows, gradients),
                                          x.rows(first, rows, values), mean, rows, channels,
                                          partial, partial + channels);
        });
      });
  for (int64_t c = 0; c < channels; ++c) sums[channels + c] *= static_cast<double>(inverse[c]);
  write_sums<float>(sums, channels, args);
  if (args.outputs[0] == nullptr) return;
  const double count = static_cast<double>(columns.rows);
  Factors factors(args.workspace, columns.workspace_bytes(2), channels);
  for (int64_t c = 0; c < channels; ++c) {
    const double factor = static_cast<double>(inverse[c]);
    factors[0][c] = static_cast<float>(static_cast<double>(gamma[c]) * factor);
    factors[1][c] = static_cast<float>(sums[c] / count);
    factors[2][c] = static_cast<float>(factor * sums[channels + c] / count);
  }
  const NormalizedGradients factors_of{mean, factors[0], factors[1], factors[2]};
  const RowWriter gx(args.outputs[0], gx_dtype, channels);
  const bool has_buffers = reads_narrow || is_narrow(gx_dtype);
  for_each_row_range(columns, [&](int64_t begin, int64_t end) {
    float gradients[kBuffer], values[kBuffer], to[kBuffer];
    for_each_piece(begin, end, channels, has_buffers, [&](int64_t first, int64_t rows) {
      channel_kernels().normalize_grad(factors_of, gy.rows(first, rows, gradients),
                                       x.rows(first, rows, values), rows, channels,
                                       gx.rows(first, to));
      gx.done(first, rows, to);
    });
  });
}

// Of any dtype.
template <typename T>
void batch_norm_backward(const Columns& columns, const KernelArgs& args) {
  using C = compute_t<T>;
  const T* gy = input<T>(args, 0);
  const T* x = input<T>(args, 1);
  const T* gamma = input<T>(args, 2);
  const T* mean = input<T>(args, 3);
  const T* inverse = input<T>(args, 4);
  T* gx = output<T>(args, 0);
  const int64_t channels = columns.channels;
  const auto normalized = [&](int64_t at, int64_t c) {
    return (static_cast<double>(static_cast<C>(x[at])) - static_cast<C>(mean[c])) *
           static_cast<C>(inverse[c]);
  };
  double* sums =
      sum_columns(columns, 2, args.workspace, [&](int64_t begin, int64_t end, double* partial) {
        for (int64_t row = begin; row < end; ++row) {
          for (int64_t c = 0; c < channels; ++c) {
            const int64_t at = row * channels + c;
            const double g = static_cast<C>(gy[at]);
            partial[c] += g;
            partial[channels + c] += g * normalized(at, c);
          }
        }
      });
  write_sums<T>(sums, channels, args);
  if (gx == nullptr) return;
  const double count = static_cast<double>(columns.rows);
  for_each_row_range(columns, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t at = row * channels + c;
        const double scale =
            static_cast<double>(static_cast<C>(gamma[c])) * static_cast<C>(inverse[c]);
        const double value =
            static_cast<C>(gy[at]) - (sums[c] + normalized(at, c) * sums[channels + c]) / count;
        gx[at] = static_cast<T>(static_cast<C>(scale * value));
      }
    }
  });
}

}  // namespace

std::unique_ptr<Kernel> make_batch_norm(const TensorSpec& x, DType y, double epsilon) {
  const Columns columns(x);
  return make_kernel(
      "kerascnn batch_norm",
      [columns, epsilon, from = x.dtype, y](const KernelArgs& args) {
        batch_norm_rows(columns, from, y, epsilon, args);
      },
      moments_workspace(columns) + Factors::bytes(columns.channels));
}

std::unique_ptr<Kernel> make_batch_norm_grad(const TensorSpec& x, DType gy, DType gx) {
  const Columns columns(x);
  return make_kernel(
      "kerascnn batch_norm gradient",
      [columns, gy, from = x.dtype, gx](const KernelArgs& args) {
        batch_norm_grad_rows(columns, gy, from, gx, args);
      },
      columns.workspace_bytes(2) + Factors::bytes(columns.channels));
}

std::unique_ptr<Kernel> plan_batch_norm(const PlanRequest& request) {
  const TensorSpec& x = request.inputs[0];
  const double epsilon = request.attributes.get_double("epsilon");
  if (x.dtype == DType::Float32) return make_batch_norm(x, x.dtype, epsilon);
  const Columns columns(x);
  return dispatch<Half, BFloat16, double>(request, x.dtype, [&]<typename T>(Type<T>) {
    return make_kernel(
        "kerascnn batch_norm",
        [columns, epsilon](const KernelArgs& args) {
          batch_norm_forward<T>(columns, epsilon, args);
        },
        moments_workspace(columns));
  });
}

std::unique_ptr<Kernel> plan_batch_norm_grad(const PlanRequest& request) {
  const TensorSpec& x = request.inputs[1];
  if (x.dtype == DType::Float32) return make_batch_norm_grad(x, x.dtype, x.dtype);
  const Columns columns(x);
  return dispatch<Half, BFloat16, double>(request, x.dtype, [&]<typename T>(Type<T>) {
    return make_kernel(
        "kerascnn batch_norm gradient",
        [columns](const KernelArgs& args) { batch_norm_backward<T>(columns, args); },
        columns.workspace_bytes(2));
  });
}

std::unique_ptr<Kernel> plan_column_moments(const PlanRequest& request) {
  const int64_t outer = size_of(request.outputs[0]) / request.inputs[0].shape.back();
  const Columns columns(request.inputs[0], outer);
  return dispatch_floating(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_kernel(
        "kerascnn column_moments",
        [columns, outer](const KernelArgs& args) { column_moments<T>(columns, outer, args); },
        moments_workspace(columns));
  });
}

}  // namespace kerascnn::cpu
