#include "core/backend/cpu/onednn/primitives.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "core/backend/cpu/onednn/idle_parts.h"
#include "core/backend/cpu/onednn/nan_safe_activation.h"
#include "core/backend/cpu/onednn/primitive_kernel.h"
#include "core/backend/cpu/onednn/winograd.h"
#include "core/backend/cpu/parallel.h"
#include "core/backend/cpu/widen.h"

namespace kerascnn::cpu::onednn {

namespace {

using dnnl::memory;
using Tag = memory::format_tag;

// Runs `make`, which creates a primitive descriptor and the kernel, and turns oneDNN's errors into
// ours.
template <typename Make>
std::unique_ptr<Kernel> make_checked(const PlanRequest& request, const Make& make) {
  try {
    require_room_for_code();
    prepare_products();
    return make();
  } catch (const dnnl::error& error) {
    throw_library_error(call_string(request), error);
  }
}

// How a call is cut into parts that the pool's threads take. Sizes and the number of threads
// decide, never timing, so the bits of sums over parts don't depend on who runs them.
struct Cut {
  int64_t rows;       // what is cut: images, or a side of a matrix
  int64_t unit = 1;   // borders are multiples of it
  int64_t parts = 1;  // a single part has oneDNN's own threads
  int team = 1;       // how many of those

  int64_t border(int64_t part) const {
    return part == parts ? rows : (rows / unit) * part / parts * unit;
  }
};

// A call of fewer operations is not worth a second thread.
constexpr int64_t kSmallWork = 2'000'000;

// `wanted` is the number of parts from which a call gains, whatever the number of threads.
Cut cut_rows(int64_t rows, int64_t unit, int64_t wanted, int64_t operations) {
  const int64_t threads = num_threads();
  if (threads == 1 || operations < kSmallWork) return {rows};
  const int64_t parts = std::clamp(wanted, threads, threads * kPiecesOfThread);
  if (rows / unit < threads) return {rows, unit, 1, static_cast<int>(threads)};
  return {rows, unit, std::min(parts, rows / unit)};
}

// What make(rows) of a plan function gives: the primitive for so many rows.
struct MadePart {
  dnnl::primitive primitive;
  dnnl::memory::desc scratchpad;
  std::string implementation;
  std::vector<Argument> arguments;
};

template <typename Primitive, typename Descriptor>
MadePart made_part(const Descriptor& descriptor, std::vector<Argument> arguments) {
  return {Primitive(descriptor), descriptor.scratchpad_desc(), descriptor.impl_info_str(),
          std::move(arguments)};
}

// Do two parts read and write the arguments that they share in the same layout?
bool fit(const MadePart& one, const MadePart& other) {
  for (size_t i = 0; i < one.arguments.size(); ++i) {
    const Argument& argument = one.arguments[i];
    if (argument.row_bytes == 0 && argument.inside != other.arguments[i].inside) return false;
  }
  return true;
}

template <typename Make>
std::unique_ptr<Kernel> make_primitive_kernel(const PlanRequest& request, Cut cut,
                                              const Make& make) {
  std::map<int64_t, MadePart> made;  // by rows
  const auto make_all = [&] {
    const ThreadCountScope threads(cut.team);
    made.clear();
    for (int64_t part = 0; part < cut.parts; ++part) {
      const int64_t rows = cut.border(part + 1) - cut.border(part);
      if (!made.contains(rows)) made.emplace(rows, make(rows));
    }
    const MadePart& first = made.begin()->second;
    return std::all_of(made.begin(), made.end(),
                       [&](const auto& entry) { return fit(first, entry.second); });
  };
  if (!make_all()) {
    cut = {cut.rows, 1, 1, num_threads()};
    make_all();
  }
  std::vector<Part> parts;
  for (int64_t part = 0; part < cut.parts; ++part) {
    const int64_t begin = cut.border(part);
    const MadePart& piece = made.at(cut.border(part + 1) - begin);
    parts.push_back({piece.primitive, piece.scratchpad, piece.arguments, begin});
  }
  return std::make_unique<PrimitiveKernel>(
      call_string(request), made.begin()->second.implementation, std::move(parts), cut.team);
}

constexpr int64_t kFloatBytes = 4;

// oneDNN's name of the dtype of a tensor.
memory::data_type type_of(const TensorSpec& spec) {
  return spec.dtype == DType::BFloat16 ? memory::data_type::bf16 : memory::data_type::f32;
}

int64_t bytes_of(memory::data_type type) {
  return static_cast<int64_t>(memory::data_type_size(type));
}

// The geometry of a part of the images.
Conv2DGeometry with_batch(Conv2DGeometry g, int64_t batch) {
  g.batch = batch;
  return g;
}

// A convolution is cut into images, of which a part has at least so many output pixels: each part
// reads the whole kernel, and writes it where it is the result.
constexpr int64_t kPixelsOfPart = 128;
constexpr int64_t kPixelsOfSum = 512;
// The parts' sums of a kernel may take this much memory.
constexpr int64_t kSumsBytes = int64_t{1} << 28;

Cut cut_images(const Conv2DGeometry& g, int64_t pixels_of_part) {
  const int64_t pixels = g.batch * g.output_height * g.output_width;
  return cut_rows(g.batch, 1, pixels / pixels_of_part, 2 * g.num_products());
}

Cut cut_sums(const Conv2DGeometry& g) {
  const Cut cut = cut_images(g, kPixelsOfSum);
  const int64_t bytes = g.num_taps() * g.output_channels * kFloatBytes;
  if (cut.parts * bytes <= kSumsBytes) return cut;
  return {cut.rows, 1, 1, num_threads()};
}

// The types of a convolution's tensors in memory.
struct ConvolutionTypes {
  memory::data_type x, kernel, y;
  memory::data_type bias = memory::data_type::f32;
};

// oneDNN's sizes of a convolution. Its images are logically NCHW and its kernels OIHW or GOIHW,
// whatever the memory layout, and its dilation counts the gaps.
struct ConvolutionSizes {
  memory::dims strides, dilations, pad_begin, pad_end;
  memory::desc x, y;          // as they are in memory: channels last
  memory::desc kernel;        // as it is in memory: HWIO
  memory::desc any_kernel;    // for oneDNN to choose, of the type of x
  memory::desc any_gradient;  // of a kernel, in float32
  memory::desc bias;
  int64_t x_bytes, y_bytes;  // of an image

  ConvolutionSizes(const Conv2DGeometry& g, const ConvolutionTypes& types)
      : strides{g.stride_height, g.stride_width},
        dilations{g.dilation_height - 1, g.dilation_width - 1},
        pad_begin{g.pad_top, g.pad_left},
        pad_end{g.pad_bottom, g.pad_right},
        x(plain({g.batch, g.input_channels, g.input_height, g.input_width}, Tag::nhwc, types.x)),
        y(plain({g.batch, g.output_channels, g.output_height, g.output_width}, Tag::nhwc, types.y)),
        bias(plain({g.output_channels}, Tag::x, types.bias)),
        x_bytes(g.input_height * g.input_width * g.input_channels * bytes_of(types.x)),
        y_bytes(g.output_height * g.output_width * g.output_channels * bytes_of(types.y)) {
    const int64_t c = g.group_input_channels();
    const int64_t k = g.group_output_channels();
    memory::dims dims{k, c, g.kernel_height, g.kernel_width};
    if (g.groups == 1) {
      kernel = plain(dims, Tag::hwio, types.kernel);
    } else {
      // The dimensions are those of (kh, kw, c / groups, groups * k): the group is the slower half
      // of the last axis.
      dims.insert(dims.begin(), g.groups);
      const int64_t row = g.output_channels;
      const memory::dims steps{k, 1, row, g.kernel_width * c * row, c * row};
      kernel = memory::desc(dims, types.kernel, steps);
    }
    any_kernel = plain(dims, Tag::any, types.x);
    any_gradient = any_layout(dims);
  }
};

dnnl::convolution_forward::primitive_desc forward_descriptor(const ConvolutionSizes& sizes,
                                                             bool has_bias,
                                                             const ActivationCall& activation) {
  const auto attributes = make_attributes(activation);
  return dnnl::convolution_forward::primitive_desc(
      engine(), dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, sizes.x,
      sizes.any_kernel, has_bias ? sizes.bias : memory::desc(), sizes.y, sizes.strides,
      sizes.dilations, sizes.pad_begin, sizes.pad_end, attributes);
}

std::unique_ptr<Kernel> make_conv2d(const PlanRequest& request, const Conv2DGeometry& g,
                                    bool has_bias, const ActivationCall& activation) {
  ConvolutionTypes types{type_of(request.inputs[0]), type_of(request.inputs[1]),
                         type_of(request.outputs[0])};
  if (has_bias) types.bias = type_of(request.inputs[2]);
  return make_primitive_kernel(request, cut_images(g, kPixelsOfPart), [&](int64_t images) {
    const ConvolutionSizes sizes(with_batch(g, images), types);
    const auto descriptor = forward_descriptor(sizes, has_bias, activation);
    std::vector<Argument> arguments{
        {DNNL_ARG_SRC, false, 0, sizes.x, descriptor.src_desc(), sizes.x_bytes},
        {DNNL_ARG_WEIGHTS, false, 1, sizes.kernel, descriptor.weights_desc()},
        {DNNL_ARG_DST, true, 0, sizes.y, descriptor.dst_desc(), sizes.y_bytes}};
    if (has_bias) {
      arguments.push_back({DNNL_ARG_BIAS, false, 2, sizes.bias, descriptor.bias_desc()});
    }
    return made_part<dnnl::convolution_forward>(descriptor, std::move(arguments));
  });
}

// A product's sizes and types. Its matrices lie in memory as MatmulSizes says.
struct Product {
  MatmulSizes sizes;
  memory::data_type from = memory::data_type::f32;
  memory::data_type to = memory::data_type::f32;
  memory::data_type bias = memory::data_type::f32;
  bool has_bias = false;
  bool is_turned = false;  // its factors change places, and its result is written transposed
};

// What of a product is cut: the matrices of a batch, rows of a, columns of b, or what is summed.
enum class ProductSide { Batch, Rows, Columns, Depth };

// Parts of a product have at least so many rows or columns; borders of columns are those of cache
// lines. Sums that are cut are long in comparison with the result, of which each part has one.
constexpr int64_t kRowsOfPart = 16;
constexpr int64_t kColumnsOfPart = 64;
constexpr int64_t kDepthOfPart = 512;
constexpr int64_t kOperationsOfPart = 4 * kSmallWork;

// Is it the gradient of weights over far more rows than these have?
bool sums_long_columns(const MatmulSizes& sizes) {
  return sizes.batch == 1 && sizes.transpose_a && !sizes.transpose_b &&
         sizes.k > 4 * std::max(sizes.m, sizes.n);
}

// Each part of rows reads all of b, which it may also copy, and each part of columns all of a. The
// side that reads less is cut, unless that gives the threads fewer than two parts each.
bool cuts_columns(const MatmulSizes& sizes, const Cut& rows, const Cut& columns) {
  const int64_t few = 2 * num_threads();
  if (std::min(rows.parts, columns.parts) < few) return columns.parts > rows.parts;
  const int64_t a = sizes.m * sizes.k, b = sizes.k * sizes.n;
  return columns.parts * a + b < rows.parts * b + a;
}

std::pair<ProductSide, Cut> cut_product(const Product& product, bool can_add) {
  const MatmulSizes& sizes = product.sizes;
  const int64_t operations = 2 * sizes.batch * sizes.m * sizes.n * sizes.k;
  const int64_t wanted = operations / kOperationsOfPart;
  if (sizes.batch >= num_threads()) {
    return {ProductSide::Batch, cut_rows(sizes.batch, 1, wanted, operations)};
  }
  const Cut rows = cut_rows(sizes.m, kRowsOfPart, wanted, operations);
  const Cut columns = cut_rows(sizes.n, kColumnsOfPart, wanted, operations);
  // Batches that are fewer than the threads stay whole where they are more than one: a part's rows
  // would have gaps.
  if (sizes.batch > 1) return {ProductSide::Batch, {sizes.batch, 1, 1, rows.team}};
  // Parts of the sums of weights' gradients lie in one piece in both matrices.
  const Cut depth = cut_rows(sizes.k, kDepthOfPart, wanted, operations);
  // oneDNN makes tiles of matrices that lie in one piece, or of rows of them.
  const bool is_tiled = product.from == memory::data_type::bf16;
  const bool has_rows = !is_tiled || !sizes.transpose_a;
  const bool has_columns = !is_tiled || sizes.transpose_b;
  if (can_add && depth.parts > 1 && (!has_rows || sums_long_columns(sizes))) {
    return {ProductSide::Depth, depth};
  }
  if (has_columns && (!has_rows || cuts_columns(sizes, rows, columns))) {
    return {ProductSide::Columns, columns};
  }
  if (has_rows) return {ProductSide::Rows, rows};
  // The whole.
  return {ProductSide::Rows, {sizes.m, 1, 1, depth.parts > 1 ? num_threads() : depth.team}};
}

// A matrix of `rows` and `columns` with steps, or a batch of them where `batch` is more than 1:
// oneDNN has more kernels for plain matrices.
memory::desc matrix(const memory::dims& sizes, const memory::dims& steps, memory::data_type type) {
  if (sizes[0] > 1) return {sizes, type, steps};
  return {memory::dims(sizes.begin() + 1, sizes.end()), type,
          memory::dims(steps.begin() + 1, steps.end())};
}

MadePart make_product(const Product& product, ProductSide side, int64_t part,
                      const ActivationCall& activation) {
  const auto [batch, m, n, k, transpose_a, transpose_b] = product.sizes;
  // Steps are those of the whole matrices.
  const memory::dims a_steps = transpose_a ? memory::dims{m * k, 1, m} : memory::dims{m * k, k, 1};
  const memory::dims b_steps = transpose_b ? memory::dims{k * n, 1, k} : memory::dims{k * n, n, 1};
  const memory::dims out_steps{m * n, n, 1};
  const auto size = [&](ProductSide which, int64_t whole) { return side == which ? part : whole; };
  const int64_t matrices = size(ProductSide::Batch, batch);
  const int64_t rows = size(ProductSide::Rows, m);
  const int64_t columns = size(ProductSide::Columns, n);
  const int64_t depth = size(ProductSide::Depth, k);
  const memory::desc a = matrix({matrices, rows, depth}, a_steps, product.from);
  const memory::desc b = matrix({matrices, depth, columns}, b_steps, product.from);
  // Parts of sums are added in float32.
  const memory::data_type inside =
      side == ProductSide::Depth && product.to == memory::data_type::bf16 ? memory::data_type::f32
                                                                          : product.to;
  const memory::desc out = matrix({matrices, rows, columns}, out_steps, inside);
  // Only single products have a bias.
  const memory::desc bias =
      product.has_bias ? plain({1, columns}, Tag::ab, product.bias) : memory::desc();
  const dnnl::matmul::primitive_desc descriptor(engine(), a, b, bias, out,
                                                make_attributes(activation));
  // The axes of the three matrices that are cut, or none.
  const auto bytes = [&](const memory::dims& steps, std::array<int, 4> axes, int64_t element) {
    const int axis = axes[static_cast<size_t>(side)];
    return axis < 0 ? 0 : steps[static_cast<size_t>(axis)] * element;
  };
  const size_t first = product.is_turned ? 1 : 0;
  const memory::desc result = product.is_turned
                                  ? memory::desc({rows, columns}, product.to, memory::dims{1, m})
                                  : matrix({matrices, rows, columns}, out_steps, product.to);
  const int64_t from_bytes = bytes_of(product.from);
  std::vector<Argument> arguments{
      {DNNL_ARG_SRC, false, first, a, a, bytes(a_steps, {0, 1, -1, 2}, from_bytes)},
      {DNNL_ARG_WEIGHTS, false, 1 - first, b, b, bytes(b_steps, {0, -1, 2, 1}, from_bytes)},
      {DNNL_ARG_DST, true, 0, result, out, bytes(out_steps, {0, 1, 2, -1}, bytes_of(product.to))}};
  if (product.has_bias) {
    const int64_t step = side == ProductSide::Columns ? bytes_of(product.bias) : 0;
    arguments.push_back({DNNL_ARG_BIAS, false, 2, bias, bias, step});
  }
  return made_part<dnnl::matmul>(descriptor, std::move(arguments));
}

std::unique_ptr<Kernel> make_product_kernel(const PlanRequest& request, const Product& product,
                                            const ActivationCall& activation) {
  // Parts of sums are added in float32, before what follows the product.
  const bool can_add = product.to != memory::data_type::s32 && !product.has_bias &&
                       activation.kind == Activation::Linear;
  const auto cut = cut_product(product, can_add);
  Product made = product;
  // oneDNN copies a transposed matrix: here the narrower one, where the result is small.
  const bool is_whole = cut.first == ProductSide::Depth || cut.second.parts == 1;
  if (can_add && is_whole && sums_long_columns(made.sizes) && made.sizes.m > made.sizes.n) {
    made.is_turned = true;
    std::swap(made.sizes.m, made.sizes.n);
  }
  return make_primitive_kernel(request, cut.second, [&](int64_t rows) {
    // A part that is the whole has the rows of the side that would have been cut.
    const bool is_part = cut.first == ProductSide::Depth || !made.is_turned;
    return make_product(made, is_part ? cut.first : ProductSide::Batch, is_part ? rows : 1,
                        activation);
  });
}

std::unique_ptr<Kernel> make_dense(const PlanRequest& request, const ActivationCall& activation) {
  const int64_t rows = request.outputs[0].shape[0];
  const int64_t columns = request.outputs[0].shape[1];
  const int64_t depth = request.inputs[1].shape[0];
  Product product{
      {1, rows, columns, depth}, type_of(request.inputs[0]), type_of(request.outputs[0])};
  product.has_bias = request.inputs.size() > 2;
  if (product.has_bias) product.bias = type_of(request.inputs[2]);
  return make_product_kernel(request, product, activation);
}

// Does oneDNN use a set of instructions? Each set has the bits of those that it contains.
bool uses(dnnl::cpu_isa instructions) {
  const auto wanted = static_cast<unsigned>(instructions);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

// Those that add products of bytes in 32 bits.
bool has_vnni() { return uses(dnnl::cpu_isa::avx512_core_vnni) || uses(dnnl::cpu_isa::avx2_vnni); }

std::unique_ptr<Kernel> make_direct_conv2d(const PlanRequest& request, const Conv2DGeometry& g,
                                           bool has_bias, const ActivationCall& activation) {
  auto kernel = make_conv2d(request, g, has_bias, activation);
  if (activation.kind == Activation::Linear) return kernel;
  auto linear = make_conv2d(request, g, has_bias, {});
  std::vector<int64_t> input_sizes;
  for (const TensorSpec& input : request.inputs) input_sizes.push_back(num_elements(input.shape));
  return choose_by_range(std::move(kernel),
                         add_activation(std::move(linear), request.outputs[0], activation),
                         std::move(input_sizes), g.num_taps());
}

std::unique_ptr<Kernel> make_direct_dgrad(const PlanRequest& request, const Conv2DGeometry& g) {
  const ConvolutionTypes types{type_of(request.outputs[0]), type_of(request.inputs[1]),
                               type_of(request.inputs[0])};
  return make_primitive_kernel(request, cut_images(g, kPixelsOfPart), [&](int64_t images) {
    const ConvolutionSizes sizes(with_batch(g, images), types);
    const dnnl::convolution_backward_data::primitive_desc descriptor(
        engine(), dnnl::algorithm::convolution_direct, sizes.x, sizes.any_kernel, sizes.y,
        sizes.strides, sizes.dilations, sizes.pad_begin, sizes.pad_end,
        forward_descriptor(sizes, false, {}), make_attributes({}));
    return made_part<dnnl::convolution_backward_data>(
        descriptor,
        {{DNNL_ARG_DIFF_DST, false, 0, sizes.y, descriptor.diff_dst_desc(), sizes.y_bytes},
         {DNNL_ARG_WEIGHTS, false, 1, sizes.kernel, descriptor.weights_desc()},
         {DNNL_ARG_DIFF_SRC, true, 0, sizes.x, descriptor.diff_src_desc(), sizes.x_bytes}});
  });
}

// Null where oneDNN's kernel would be wrong.
std::unique_ptr<Kernel> make_direct_wgrad(const PlanRequest& request, const Conv2DGeometry& g) {
  const ConvolutionTypes types{type_of(request.inputs[0]), type_of(request.outputs[0]),
                               type_of(request.inputs[1])};
  bool is_right = true;
  auto kernel = make_primitive_kernel(request, cut_sums(g), [&](int64_t images) {
    const ConvolutionSizes sizes(with_batch(g, images), types);
    const dnnl::convolution_backward_weights::primitive_desc descriptor(
        engine(), dnnl::algorithm::convolution_direct, sizes.x, sizes.any_gradient, sizes.y,
        sizes.strides, sizes.dilations, sizes.pad_begin, sizes.pad_end,
        forward_descriptor(sizes, false, {}), make_attributes({}));
    const std::string_view name = descriptor.impl_info_str();
    // oneDNN 3.2's kernels for 1 x 1 kernels read past the channels where strides skip pixels, and
    // those of brgconv leave what is in memory as the gradients of taps that meet padding alone.
    const bool skips = g.stride_height > 1 || g.stride_width > 1;
    if (skips && name.starts_with("jit_1x1")) is_right = false;
    if (name.starts_with("brgconv") && has_idle_taps(g)) is_right = false;
    return made_part<dnnl::convolution_backward_weights>(
        descriptor,
        {{DNNL_ARG_SRC, false, 0, sizes.x, descriptor.src_desc(), sizes.x_bytes},
         {DNNL_ARG_DIFF_DST, false, 1, sizes.y, descriptor.diff_dst_desc(), sizes.y_bytes},
         {DNNL_ARG_DIFF_WEIGHTS, true, 0, sizes.kernel, descriptor.diff_weights_desc()}});
  });
  return is_right ? std::move(kernel) : nullptr;
}

}  // namespace

std::unique_ptr<Kernel> plan_conv2d(const PlanRequest& request, const Conv2DGeometry& g,
                                    bool has_bias, const ActivationCall& activation) {
  return make_checked(request, [&] {
    auto direct = make_direct_conv2d(request, g, has_bias, activation);
    if (!gains_from_winograd(g)) return direct;
    return make_winograd_conv2d(g, has_bias, activation, std::move(direct));
  });
}

std::unique_ptr<Kernel> plan_conv2d_dgrad(const PlanRequest& request, const Conv2DGeometry& g) {
  return make_checked(request, [&] {
    auto direct = make_direct_dgrad(request, g);
    if (!gains_from_winograd(g)) return direct;
    return make_winograd_dgrad(g, std::move(direct));
  });
}

std::unique_ptr<Kernel> plan_conv2d_wgrad(const PlanRequest& request, const Conv2DGeometry& g) {
  return make_checked(request, [&] {
    auto kernel = make_direct_wgrad(request, g);
    if (kernel == nullptr || !gains_from_winograd(g)) return kernel;
    return make_winograd_wgrad(g, std::move(kernel));
  });
}

std::unique_ptr<Kernel> plan_matmul(const PlanRequest& request, const MatmulSizes& sizes) {
  return make_checked(request, [&] { return make_product_kernel(request, {sizes}, {}); });
}

namespace {

// What `make` gives for a request, and the activation behind it. All but relu, which is exact, take
// float32 and are rounded afterwards.
template <typename Make>
std::unique_ptr<Kernel> make_activated(const PlanRequest& request, const ActivationCall& activation,
                                       const Make& make) {
  if (activation.kind == Activation::Linear) return make(request);
  if (activation.kind == Activation::Relu) {
    return add_activation(make(request), request.outputs[0], activation);
  }
  const std::vector<TensorSpec> outputs = in_float32(request.outputs);
  auto linear = make(PlanRequest{request.op, request.attributes, request.inputs, outputs});
  return round_results(request, add_activation(std::move(linear), outputs[0], activation));
}

// What `make` gives, if it runs on the units for tiles.
template <typename Make>
std::unique_ptr<Kernel> plan_tiles(const PlanRequest& request, const Make& make) {
  if (!uses(dnnl::cpu_isa::avx512_core_amx)) return nullptr;
  return make_checked(request, [&]() -> std::unique_ptr<Kernel> {
    std::unique_ptr<Kernel> kernel;
    try {
      kernel = make();
    } catch (const dnnl::error& error) {
      if (error.status != dnnl_unimplemented) throw;
    }
    const bool has_tiles =
        kernel != nullptr && kernel->description().find("amx") != std::string::npos;
    return has_tiles ? std::move(kernel) : nullptr;
  });
}

}  // namespace

std::unique_ptr<Kernel> plan_matmul_bfloat16(const PlanRequest& request, const MatmulSizes& sizes) {
  return plan_tiles(request, [&] {
    const Product product{sizes, type_of(request.inputs[0]), type_of(request.outputs[0])};
    return make_product_kernel(request, product, {});
  });
}

std::unique_ptr<Kernel> plan_dense_bfloat16(const PlanRequest& request) {
  const ActivationCall activation = fused_activation("dense", request.attributes);
  return plan_tiles(request, [&] {
    return make_activated(request, activation,
                          [&](const PlanRequest& linear) { return make_dense(linear, {}); });
  });
}

std::unique_ptr<Kernel> plan_conv2d_bfloat16(const PlanRequest& request, const Conv2DGeometry& g,
                                             bool has_bias, const ActivationCall& activation) {
  // oneDNN 3.2 crashes when it makes its kernel for rows of outputs that meet padding alone.
  if (has_idle_outputs(g)) return nullptr;
  return plan_tiles(request, [&] {
    return make_activated(request, activation, [&](const PlanRequest& linear) {
      return make_conv2d(linear, g, has_bias, {});
    });
  });
}

std::unique_ptr<Kernel> plan_conv2d_dgrad_bfloat16(const PlanRequest& request,
                                                   const Conv2DGeometry& g) {
  // The same. Where there are strides, it has another kernel, and inputs that nobody reads.
  const bool has_strides = g.stride_height > 1 || g.stride_width > 1;
  if (!has_strides && has_idle_inputs(g)) return nullptr;
  return plan_tiles(request, [&] { return make_direct_dgrad(request, g); });
}

std::unique_ptr<Kernel> plan_conv2d_wgrad_bfloat16(const PlanRequest& request,
                                                   const Conv2DGeometry& g) {
  return plan_tiles(request, [&] { return make_direct_wgrad(request, g); });
}

std::unique_ptr<Kernel> plan_integer_matmul(const PlanRequest& request, const MatmulSizes& sizes) {
  if (!has_vnni()) return nullptr;
  return make_checked(request, [&] {
    const Product product{sizes, memory::data_type::s8, memory::data_type::s32};
    auto kernel = make_product_kernel(request, product, {});
    const bool is_reference = kernel->description().starts_with("oneDNN ref");
    return is_reference ? nullptr : std::move(kernel);
  });
}

std::unique_ptr<Kernel> plan_dense(const PlanRequest& request) {
  const ActivationCall activation = fused_activation("dense", request.attributes);
  return make_checked(request, [&] {
    const bool hides_nan =
        activation.kind == Activation::Relu || activation.kind == Activation::ClippedRelu;
    if (!hides_nan) return make_dense(request, activation);
    // There are few outputs in comparison with the weights, so a pass over them is cheaper than a
    // look at those.
    return add_activation(make_dense(request, {}), request.outputs[0], activation);
  });
}

}  // namespace kerascnn::cpu::onednn
