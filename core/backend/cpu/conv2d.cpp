// conv2d, conv2d_dgrad and conv2d_wgrad have oneDNN's kernels, own ones for few channels, and, for
// every geometry, in float and double, kernels that unfold patches (im2col) and multiply matrices.
#include "core/ops/conv2d.h"

#include "core/backend/cpu/conv2d_few_filters.h"
#include "core/backend/cpu/conv2d_scatter.h"
#include "core/backend/cpu/depthwise_wgrad.h"
#include "core/backend/cpu/dilated_wgrad.h"
#include "core/backend/cpu/epilogue.h"
#include "core/backend/cpu/gemm.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/backend/cpu/widen.h"
#ifdef KERASCNN_WITH_ONEDNN
#include "core/backend/cpu/onednn/primitives.h"
#endif

namespace kerascnn::cpu {

namespace {

bool is_empty(const Conv2DGeometry& g) {
  return g.batch * g.input_channels * g.output_channels == 0;
}

[[maybe_unused]] bool use_onednn(const PlanRequest& request, const Conv2DGeometry& g) {
  return request.inputs[0].dtype == DType::Float32 && !is_empty(g);
}

// With up to 4 channels oneDNN 3.2's kernels for tiles multiply neighbouring pixels by 0, so that
// their NaN spreads; and few channels fill no tile.
[[maybe_unused]] bool may_have_tiles(const PlanRequest& request, const Conv2DGeometry& g) {
  constexpr int64_t kLeastChannels = 16;
  return request.inputs[0].dtype == DType::BFloat16 && !is_empty(g) &&
         std::min(g.group_input_channels(), g.group_output_channels()) >= kLeastChannels;
}

// The unfolded patches of one image and one group: (output pixels, kh * kw * c / groups).
struct Patches {
  int64_t pixels;
  int64_t length;

  explicit Patches(const Conv2DGeometry& g)
      : pixels(g.output_height * g.output_width), length(g.num_taps()) {}
  int64_t size() const { return pixels * length; }
};

// Calls body(offset in the patches, offset in the image or -1 in the padding) for every piece of
// c / groups neighbouring elements.
template <typename Body>
void for_each_patch_piece(const Conv2DGeometry& g, int64_t group, const Body& body) {
  const int64_t channels = g.group_input_channels();
  int64_t at = 0;
  for (int64_t row = 0; row < g.output_height; ++row) {
    for (int64_t column = 0; column < g.output_width; ++column) {
      for (int64_t i = 0; i < g.kernel_height; ++i) {
        const int64_t y = row * g.stride_height - g.pad_top + i * g.dilation_height;
        for (int64_t j = 0; j < g.kernel_width; ++j, at += channels) {
          const int64_t x = column * g.stride_width - g.pad_left + j * g.dilation_width;
          const bool inside = y >= 0 && y < g.input_height && x >= 0 && x < g.input_width;
          body(at, inside ? (y * g.input_width + x) * g.input_channels + group * channels : -1);
        }
      }
    }
  }
}

template <typename T>
void unfold(const Conv2DGeometry& g, int64_t group, const T* image, T* patches) {
  const int64_t channels = g.group_input_channels();
  for_each_patch_piece(g, group, [&](int64_t at, int64_t from) {
    if (from < 0) {
      std::fill(patches + at, patches + at + channels, T(0));
    } else {
      std::copy(image + from, image + from + channels, patches + at);
    }
  });
}

template <typename T>
void fold(const Conv2DGeometry& g, int64_t group, const T* patches, T* image) {
  const int64_t channels = g.group_input_channels();
  for_each_patch_piece(g, group, [&](int64_t at, int64_t to) {
    if (to < 0) return;
    for (int64_t c = 0; c < channels; ++c) image[to + c] += patches[at + c];
  });
}

template <typename T>
T* scratch(const KernelArgs& args, int64_t index, int64_t elements) {
  return reinterpret_cast<T*>(static_cast<char*>(args.workspace) +
                              index * align_up(elements * static_cast<int64_t>(sizeof(T))));
}

template <typename T>
int64_t scratch_bytes(int64_t count, int64_t elements) {
  return count * align_up(elements * static_cast<int64_t>(sizeof(T)));
}

// One group's columns of the kernel: (kh * kw * c / groups, k / groups).
template <typename T>
MatrixView<T> group_kernel(const Conv2DGeometry& g, const T* kernel, int64_t group) {
  return {kernel + group * g.group_output_channels(), g.output_channels, 1};
}

template <typename T>
std::unique_ptr<Kernel> make_generic_conv2d(const Conv2DGeometry& g, bool has_bias,
                                            const ActivationCall& activation) {
  const Patches patches(g);
  return make_kernel(
      "kerascnn generic conv2d",
      [g, patches, has_bias, activation](const KernelArgs& args) {
        const int64_t image_size = g.input_height * g.input_width * g.input_channels;
        parallel_tasks(g.batch, [&](int64_t image, int64_t thread) {
          T* unfolded = scratch<T>(args, thread, patches.size());
          T* y = output<T>(args, 0) + image * patches.pixels * g.output_channels;
          for (int64_t group = 0; group < g.groups; ++group) {
            unfold(g, group, input<T>(args, 0) + image * image_size, unfolded);
            gemm(patches.pixels, g.group_output_channels(), patches.length,
                 MatrixView<T>{unfolded, patches.length, 1},
                 group_kernel(g, input<T>(args, 1), group), y + group * g.group_output_channels(),
                 g.output_channels, false);
          }
          apply_epilogue(has_bias ? input<T>(args, 2) : nullptr, activation, y, patches.pixels,
                         g.output_channels);
        });
      },
      scratch_bytes<T>(num_threads(), patches.size()));
}

template <typename T>
std::unique_ptr<Kernel> make_generic_conv2d_dgrad(const Conv2DGeometry& g) {
  const Patches patches(g);
  return make_kernel(
      "kerascnn generic conv2d_dgrad",
      [g, patches](const KernelArgs& args) {
        const int64_t image_size = g.input_height * g.input_width * g.input_channels;
        parallel_tasks(g.batch, [&](int64_t image, int64_t thread) {
          T* unfolded = scratch<T>(args, thread, patches.size());
          const T* gy = input<T>(args, 0) + image * patches.pixels * g.output_channels;
          T* gx = output<T>(args, 0) + image * image_size;
          std::fill(gx, gx + image_size, T(0));
          for (int64_t group = 0; group < g.groups; ++group) {
            const MatrixView<T> kernel = group_kernel(g, input<T>(args, 1), group);
            gemm(patches.pixels, patches.length, g.group_output_channels(),
                 MatrixView<T>{gy + group * g.group_output_channels(), g.output_channels, 1},
                 MatrixView<T>{kernel.data, kernel.column_step, kernel.row_step}, unfolded,
                 patches.length, false);
            fold(g, group, unfolded, gx);
          }
        });
      },
      scratch_bytes<T>(num_threads(), patches.size()));
}

template <typename T>
std::unique_ptr<Kernel> make_generic_conv2d_wgrad(const Conv2DGeometry& g) {
  const Patches patches(g);
  // Images are summed in this many parts whatever the number of threads, so that the result is
  // always the same.
  const int64_t parts = std::clamp<int64_t>(g.batch, 1, 8);
  const int64_t kernel_size = patches.length * g.output_channels;
  return make_kernel(
      "kerascnn generic conv2d_wgrad",
      [g, patches, parts, kernel_size](const KernelArgs& args) {
        const int64_t image_size = g.input_height * g.input_width * g.input_channels;
        T* sums = static_cast<T*>(args.workspace);
        T* unfolded = sums + parts * kernel_size;
        parallel_tasks(parts, [&](int64_t part, int64_t thread) {
          T* sum = sums + part * kernel_size;
          T* mine = unfolded + thread * patches.size();
          std::fill(sum, sum + kernel_size, T(0));
          for (int64_t image = g.batch * part / parts; image < g.batch * (part + 1) / parts;
               ++image) {
            const T* gy = input<T>(args, 1) + image * patches.pixels * g.output_channels;
            for (int64_t group = 0; group < g.groups; ++group) {
              const int64_t first = group * g.group_output_channels();
              unfold(g, group, input<T>(args, 0) + image * image_size, mine);
              gemm(patches.length, g.group_output_channels(), patches.pixels,
                   MatrixView<T>{mine, 1, patches.length},
                   MatrixView<T>{gy + first, g.output_channels, 1}, sum + first, g.output_channels,
                   true);
            }
          }
        });
        T* gw = output<T>(args, 0);
        parallel_each(kernel_size, 1, [&](int64_t i) {
          T total = sums[i];
          for (int64_t part = 1; part < parts; ++part) total += sums[part * kernel_size + i];
          gw[i] = total;
        });
      },
      (parts * kernel_size + num_threads() * patches.size()) * static_cast<int64_t>(sizeof(T)));
}

#ifdef KERASCNN_WITH_ONEDNN
// oneDNN's gradient of a kernel, or that of another convolution with the same sums, which it has
// faster kernels for. Null where it has none.
std::unique_ptr<Kernel> plan_onednn_wgrad(const PlanRequest& request, const Conv2DGeometry& g) {
  const DType dtype = request.outputs[0].dtype;
  const auto plan_other = [&](const Conv2DGeometry& other) {
    const TensorSpec inputs[] = {{dtype, other.input_shape()}, {dtype, other.output_shape()}};
    const TensorSpec outputs[] = {{dtype, other.kernel_shape()}};
    return plan_onednn_wgrad({request.op, request.attributes, inputs, outputs}, other);
  };
  if (swaps_wgrad(g)) {
    if (auto kernel = plan_other(swapped_geometry(g))) {
      return make_swapped_wgrad(g, std::move(kernel));
    }
  }
  auto kernel = onednn::plan_conv2d_wgrad(request, g);
  // With AVX2 it unfolds the patches of dilated convolutions.
  const bool unfolds = kernel != nullptr && kernel->description().find("gemm") != std::string::npos;
  if (!unfolds || !has_phases(g)) return kernel;
  auto phases = plan_other(phase_geometry(g));
  if (phases == nullptr) return kernel;
  return make_dilated_wgrad(g, std::move(phases), std::move(kernel));
}

bool is_product(const Conv2DGeometry& g) {
  return g.kernel_height * g.kernel_width * g.stride_height * g.stride_width * g.groups == 1 &&
         std::max({g.pad_top, g.pad_bottom, g.pad_left, g.pad_right}) == 0;
}

// The gradient of a kernel of bfloat16 as a product of patches and gradients. Tiles add up to 32
// pixels at a time, and oneDNN's kernel for the gradient those of one row: short rows leave most of
// a tile empty. Patches of single pixels are the images themselves. Null where it gains nothing.
std::unique_ptr<Kernel> plan_wgrad_of_patches(const PlanRequest& request, const Conv2DGeometry& g) {
  constexpr int64_t kShortRow = 7;
  constexpr int64_t kMostBytes = int64_t{1} << 28;
  const Patches patches(g);
  const int64_t bytes =
      is_product(g) ? 0 : align_up(g.batch * patches.size() * itemsize(DType::BFloat16));
  const bool is_short = g.groups == 1 && g.output_width <= kShortRow && bytes <= kMostBytes;
  if (!is_product(g) && !is_short) return nullptr;
  const MatmulSizes sizes{1,    patches.length, g.output_channels, g.batch * patches.pixels,
                          true, false};
  std::shared_ptr<Kernel> product = onednn::plan_matmul_bfloat16(request, sizes);
  if (product == nullptr) return nullptr;
  return make_kernel(
      product->description(),
      [g, patches, bytes, product](const KernelArgs& args) {
        if (bytes == 0) return product->run(args);
        auto* unfolded = static_cast<BFloat16*>(args.workspace);
        const int64_t image_size = g.input_height * g.input_width * g.input_channels;
        parallel_tasks(g.batch, [&](int64_t image, int64_t) {
          unfold(g, 0, input<BFloat16>(args, 0) + image * image_size,
                 unfolded + image * patches.size());
        });
        const void* const inputs[] = {unfolded, args.inputs[1]};
        product->run(
            {inputs, args.outputs, static_cast<char*>(args.workspace) + bytes, args.stream});
      },
      bytes + product->workspace_bytes());
}
#endif

std::unique_ptr<Kernel> plan_any_wgrad(const PlanRequest& request, const Conv2DGeometry& g) {
#ifdef KERASCNN_WITH_ONEDNN
  if (use_onednn(request, g)) {
    if (auto kernel = plan_onednn_wgrad(request, g)) return kernel;
  }
#endif
  return dispatch<float, double>(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_generic_conv2d_wgrad<T>(g);
  });
}

}  // namespace

std::unique_ptr<Kernel> plan_conv2d(const PlanRequest& request) {
  const Conv2DGeometry g = conv2d_geometry(request.op, request.attributes, request.inputs);
  const ActivationCall activation = fused_activation("conv2d", request.attributes);
  const bool has_bias = request.inputs.size() > 2;
  if (is_narrow(request.inputs[0].dtype)) {
#ifdef KERASCNN_WITH_ONEDNN
    if (may_have_tiles(request, g)) {
      if (auto tiles = onednn::plan_conv2d_bfloat16(request, g, has_bias, activation)) return tiles;
    }
#endif
    return plan_in_float32(request, plan_conv2d);
  }
  if (request.inputs[0].dtype == DType::Float32 && !is_empty(g) && has_few_filters(g)) {
    return make_few_filters_conv2d(g, has_bias, activation);
  }
#ifdef KERASCNN_WITH_ONEDNN
  if (use_onednn(request, g)) return onednn::plan_conv2d(request, g, has_bias, activation);
#endif
  return dispatch<float, double>(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_generic_conv2d<T>(g, has_bias, activation);
  });
}

std::unique_ptr<Kernel> plan_conv2d_dgrad(const PlanRequest& request) {
  const Conv2DGeometry g = conv2d_geometry(request.op, request.attributes, request.inputs);
  if (is_narrow(request.inputs[0].dtype)) {
#ifdef KERASCNN_WITH_ONEDNN
    if (may_have_tiles(request, g)) {
      if (auto tiles = onednn::plan_conv2d_dgrad_bfloat16(request, g)) return tiles;
    }
#endif
    return plan_in_float32(request, plan_conv2d_dgrad);
  }
  if (request.inputs[0].dtype == DType::Float32 && !is_empty(g) && scatters_better(g)) {
    return make_scatter_conv2d_dgrad(g);
  }
#ifdef KERASCNN_WITH_ONEDNN
  if (use_onednn(request, g)) return onednn::plan_conv2d_dgrad(request, g);
#endif
  return dispatch<float, double>(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_generic_conv2d_dgrad<T>(g);
  });
}

std::unique_ptr<Kernel> plan_conv2d_wgrad(const PlanRequest& request) {
  const Conv2DGeometry g = conv2d_geometry(request.op, request.attributes, request.inputs);
  if (is_narrow(request.inputs[0].dtype)) {
#ifdef KERASCNN_WITH_ONEDNN
    if (may_have_tiles(request, g)) {
      if (auto product = plan_wgrad_of_patches(request, g)) return product;
      if (auto tiles = onednn::plan_conv2d_wgrad_bfloat16(request, g)) return tiles;
    }
#endif
    return plan_in_float32(request, plan_conv2d_wgrad);
  }
  auto kernel = plan_any_wgrad(request, g);
  if (request.inputs[0].dtype != DType::Float32 || !takes_depthwise_wgrad(g)) return kernel;
  // oneDNN has kernels for depthwise convolutions of up to three columns, which need no packed copy
  // of the images.
  if (kernel->description().starts_with("oneDNN jit_dw")) return kernel;
  return make_depthwise_wgrad(g, std::move(kernel));
}

}  // namespace kerascnn::cpu
