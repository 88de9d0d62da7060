// Batch normalization over the last axis with the batch's own statistics, and its gradient. Column
// sums are taken in double over a fixed number of row blocks, so they don't depend on the number of
// threads.
#include <algorithm>
#include <cmath>

#include "core/backend/cpu/channel_kernels.h"
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

// The mean and the biased variance of each channel, one after the other in the workspace.
struct Moments {
  double* mean;
  double* variance;
};

int64_t moments_workspace(const Columns& columns) {
  return columns.workspace_bytes(2) + columns.channels * static_cast<int64_t>(sizeof(float)) +
         kAlignment;
}

// About the mean of a channel: that of a few rows, 0 where it is not finite. Squares of differences
// from it are of the variance's size, so few digits are lost between them.
float middle_of(const Columns& columns, const float* x, int64_t channel) {
  constexpr int64_t kRows = 16;
  const int64_t rows = std::min(columns.rows, kRows);
  double sum = 0;
  for (int64_t i = 0; i < rows; ++i) {
    sum += x[columns.rows * i / rows * columns.channels + channel];
  }
  return rows > 0 && std::isfinite(sum) ? static_cast<float>(sum / static_cast<double>(rows)) : 0;
}

Moments moments_of(const Columns& columns, const float* x, void* workspace) {
  const int64_t channels = columns.channels;
  const double count = static_cast<double>(columns.rows);
  auto* shift =
      reinterpret_cast<float*>(static_cast<char*>(workspace) + columns.workspace_bytes(2));
  for (int64_t c = 0; c < channels; ++c) shift[c] = middle_of(columns, x, c);
  double* mean = sum_columns(columns, 2, workspace, [&](int64_t begin, int64_t end, double* sums) {
    channel_kernels().sum_moments(x + begin * channels, shift, end - begin, channels, sums,
                                  sums + channels);
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

template <typename T, typename P>
void batch_norm_forward(const Columns& columns, double epsilon, const KernelArgs& args) {
  using C = compute_t<T>;
  const T* x = input<T>(args, 0);
  const P* gamma = input<P>(args, 1);
  const P* beta = input<P>(args, 2);
  T* y = output<T>(args, 0);
  const int64_t channels = columns.channels;
  const auto [mean, variance] = moments_of(columns, x, args.workspace);
  for (int64_t c = 0; c < channels; ++c) {
    const double inverse = 1 / std::sqrt(variance[c] + epsilon);
    if (args.outputs[1] != nullptr)
      output<P>(args, 1)[c] = static_cast<P>(static_cast<compute_t<P>>(mean[c]));
    if (args.outputs[2] != nullptr) {
      output<P>(args, 2)[c] = static_cast<P>(static_cast<compute_t<P>>(variance[c]));
    }
    if (args.outputs[3] != nullptr) {
      output<P>(args, 3)[c] = static_cast<P>(static_cast<compute_t<P>>(inverse));
    }
    variance[c] = inverse;
  }
  const double* inverse = variance;
  if constexpr (std::is_same_v<T, float>) {
    Factors factors(args.workspace, moments_workspace(columns), channels);
    for (int64_t c = 0; c < channels; ++c) {
      factors[0][c] = static_cast<float>(mean[c]);
      factors[1][c] = static_cast<float>(mean[c] - static_cast<double>(factors[0][c]));
      factors[2][c] = static_cast<float>(static_cast<double>(gamma[c]) * inverse[c]);
    }
    const NormalizedColumns normalized{factors[0], factors[1], factors[2], beta};
    for_each_row_range(columns, [&](int64_t begin, int64_t end) {
      channel_kernels().normalize(normalized, x + begin * channels, end - begin, channels,
                                  y + begin * channels);
    });
    return;
  }
  for_each_row_range(columns, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t c = 0; c < channels; ++c) {
        const C centered = static_cast<C>(static_cast<C>(x[row * channels + c]) - mean[c]);
        const C scale = static_cast<C>(static_cast<compute_t<P>>(gamma[c]) * inverse[c]);
        y[row * channels + c] = static_cast<T>(
            static_cast<C>(centered * scale + static_cast<C>(static_cast<compute_t<P>>(beta[c]))));
      }
    }
  });
}

// gx = gamma * inverse / n * (n * gy - sum(gy) - xhat * sum(gy * xhat)), xhat = (x - mean) *
// inverse.
template <typename T, typename P>
void batch_norm_backward(const Columns& columns, const KernelArgs& args) {
  using C = compute_t<T>;
  using Q = compute_t<P>;
  const T* gy = input<T>(args, 0);
  const T* x = input<T>(args, 1);
  const P* gamma = input<P>(args, 2);
  const P* mean = input<P>(args, 3);
  const P* inverse = input<P>(args, 4);
  T* gx = output<T>(args, 0);
  const int64_t channels = columns.channels;
  const auto normalized = [&](int64_t at, int64_t c) {
    return (static_cast<double>(static_cast<C>(x[at])) - static_cast<Q>(mean[c])) *
           static_cast<Q>(inverse[c]);
  };
  double* sums =
      sum_columns(columns, 2, args.workspace, [&](int64_t begin, int64_t end, double* partial) {
        if constexpr (std::is_same_v<T, float>) {
          channel_kernels().sum_gradients(gy + begin * channels, x + begin * channels, mean,
                                          end - begin, channels, partial, partial + channels);
          return;
        }
        for (int64_t row = begin; row < end; ++row) {
          for (int64_t c = 0; c < channels; ++c) {
            const int64_t at = row * channels + c;
            const double g = static_cast<C>(gy[at]);
            partial[c] += g;
            partial[channels + c] += g * normalized(at, c);
          }
        }
      });
  if constexpr (std::is_same_v<T, float>) {
    for (int64_t c = 0; c < channels; ++c) sums[channels + c] *= static_cast<double>(inverse[c]);
  }
  for (int64_t c = 0; c < channels; ++c) {
    if (args.outputs[1] != nullptr) {
      output<P>(args, 1)[c] = static_cast<P>(static_cast<Q>(sums[channels + c]));
    }
    if (args.outputs[2] != nullptr) output<P>(args, 2)[c] = static_cast<P>(static_cast<Q>(sums[c]));
  }
  if (gx == nullptr) return;
  const double count = static_cast<double>(columns.rows);
  if constexpr (std::is_same_v<T, float>) {
    Factors factors(args.workspace, columns.workspace_bytes(2), channels);
    for (int64_t c = 0; c < channels; ++c) {
      const double factor = static_cast<double>(inverse[c]);
      factors[0][c] = static_cast<float>(static_cast<double>(gamma[c]) * factor);
      factors[1][c] = static_cast<float>(sums[c] / count);
      factors[2][c] = static_cast<float>(factor * sums[channels + c] / count);
    }
    const NormalizedGradients gradients{mean, factors[0], factors[1], factors[2]};
    for_each_row_range(columns, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * channels;
      channel_kernels().normalize_grad(gradients, gy + at, x + at, end - begin, channels, gx + at);
    });
    return;
  }
  for_each_row_range(columns, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t at = row * channels + c;
        const double scale =
            static_cast<double>(static_cast<Q>(gamma[c])) * static_cast<Q>(inverse[c]);
        const double value =
            static_cast<C>(gy[at]) - (sums[c] + normalized(at, c) * sums[channels + c]) / count;
        gx[at] = static_cast<T>(static_cast<C>(scale * value));
      }
    }
  });
}

// x and the parameters may differ in dtype: 16-bit data with float32 parameters.
template <typename Function>
std::unique_ptr<Kernel> dispatch_pair(const PlanRequest& request, DType data, DType parameters,
                                      const Function& function) {
  return dispatch_floating(request, data, [&]<typename T>(Type<T> type) {
    if (parameters == data) return function(type, type);
    if (parameters != DType::Float32) throw_unsupported_dtype(request, parameters);
    return function(type, Type<float>());
  });
}

}  // namespace

std::unique_ptr<Kernel> plan_batch_norm(const PlanRequest& request) {
  const Columns columns(request.inputs[0]);
  const double epsilon = request.attributes.get_double("epsilon");
  return dispatch_pair(request, request.inputs[0].dtype, request.inputs[1].dtype,
                       [&]<typename T, typename P>(Type<T>, Type<P>) {
                         return make_kernel(
                             "kerascnn batch_norm",
                             [columns, epsilon](const KernelArgs& args) {
                               batch_norm_forward<T, P>(columns, epsilon, args);
                             },
                             moments_workspace(columns) + Factors::bytes(columns.channels));
                       });
}

std::unique_ptr<Kernel> plan_batch_norm_grad(const PlanRequest& request) {
  const Columns columns(request.inputs[1]);
  return dispatch_pair(
      request, request.inputs[1].dtype, request.inputs[2].dtype,
      [&]<typename T, typename P>(Type<T>, Type<P>) {
        return make_kernel(
            "kerascnn batch_norm gradient",
            [columns](const KernelArgs& args) { batch_norm_backward<T, P>(columns, args); },
            columns.workspace_bytes(2) + Factors::bytes(columns.channels));
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
