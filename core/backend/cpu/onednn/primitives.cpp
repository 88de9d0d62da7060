#include "core/backend/cpu/onednn/primitives.h"

#include <string_view>

#include "core/backend/cpu/onednn/nan_safe_activation.h"
#include "core/backend/cpu/onednn/primitive_kernel.h"

namespace kerascnn::cpu::onednn {

namespace {

using dnnl::memory;
using Argument = PrimitiveKernel::Argument;
using Tag = memory::format_tag;

// Runs `make`, which creates a primitive descriptor and the kernel, and turns oneDNN's errors into
// ours.
template <typename Make>
std::unique_ptr<Kernel> make_checked(const PlanRequest& request, const Make& make) {
  try {
    return make();
  } catch (const dnnl::error& error) {
    throw_library_error(call_string(request), error);
  }
}

template <typename Primitive, typename Descriptor>
std::unique_ptr<Kernel> make_primitive_kernel(const PlanRequest& request,
                                              const Descriptor& descriptor,
                                              const std::vector<Argument>& arguments) {
  return std::make_unique<PrimitiveKernel>(call_string(request), descriptor.impl_info_str(),
                                           Primitive(descriptor), descriptor.scratchpad_desc(),
                                           arguments);
}

// oneDNN's sizes of a convolution. Its images are logically NCHW and its kernels OIHW or GOIHW,
// whatever the memory layout, and its dilation counts the gaps.
struct ConvolutionSizes {
  memory::dims strides, dilations, pad_begin, pad_end;
  memory::desc x, y;        // as they are in memory: channels last
  memory::desc kernel;      // as it is in memory: HWIO
  memory::desc any_kernel;  // for oneDNN to choose
  memory::desc bias;

  explicit ConvolutionSizes(const Conv2DGeometry& g)
      : strides{g.stride_height, g.stride_width},
        dilations{g.dilation_height - 1, g.dilation_width - 1},
        pad_begin{g.pad_top, g.pad_left},
        pad_end{g.pad_bottom, g.pad_right},
        x(plain({g.batch, g.input_channels, g.input_height, g.input_width}, Tag::nhwc)),
        y(plain({g.batch, g.output_channels, g.output_height, g.output_width}, Tag::nhwc)),
        bias(plain({g.output_channels}, Tag::x)) {
    const int64_t c = g.group_input_channels();
    const int64_t k = g.group_output_channels();
    if (g.groups == 1) {
      const memory::dims dims{k, c, g.kernel_height, g.kernel_width};
      kernel = plain(dims, Tag::hwio);
      any_kernel = any_layout(dims);
    } else {
      // The dimensions are those of (kh, kw, c / groups, groups * k): the group is the slower half
      // of the last axis.
      const memory::dims dims{g.groups, k, c, g.kernel_height, g.kernel_width};
      const int64_t row = g.output_channels;
      const memory::dims steps{k, 1, row, g.kernel_width * c * row, c * row};
      kernel = memory::desc(dims, memory::data_type::f32, steps);
      any_kernel = any_layout(dims);
    }
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

std::unique_ptr<Kernel> make_conv2d(const PlanRequest& request, const ConvolutionSizes& sizes,
                                    bool has_bias, const ActivationCall& activation) {
  const auto descriptor = forward_descriptor(sizes, has_bias, activation);
  std::vector<Argument> arguments{
      {DNNL_ARG_SRC, false, 0, sizes.x, descriptor.src_desc()},
      {DNNL_ARG_WEIGHTS, false, 1, sizes.kernel, descriptor.weights_desc()},
      {DNNL_ARG_DST, true, 0, sizes.y, descriptor.dst_desc()}};
  if (has_bias) {
    arguments.push_back({DNNL_ARG_BIAS, false, 2, sizes.bias, descriptor.bias_desc()});
  }
  return make_primitive_kernel<dnnl::convolution_forward>(request, descriptor, arguments);
}

std::unique_ptr<Kernel> make_dense(const PlanRequest& request, const ActivationCall& activation) {
  const int64_t rows = request.outputs[0].shape[0];
  const int64_t columns = request.outputs[0].shape[1];
  const int64_t depth = request.inputs[1].shape[0];
  const bool has_bias = request.inputs.size() > 2;
  const memory::desc x = plain({rows, depth}, Tag::ab);
  const memory::desc weights = plain({depth, columns}, Tag::ab);
  const memory::desc bias = has_bias ? plain({1, columns}, Tag::ab) : memory::desc();
  const memory::desc out = plain({rows, columns}, Tag::ab);
  const dnnl::matmul::primitive_desc descriptor(engine(), x, weights, bias, out,
                                                make_attributes(activation));
  std::vector<Argument> arguments{{DNNL_ARG_SRC, false, 0, x, descriptor.src_desc()},
                                  {DNNL_ARG_WEIGHTS, false, 1, weights, descriptor.weights_desc()},
                                  {DNNL_ARG_DST, true, 0, out, descriptor.dst_desc()}};
  if (has_bias) arguments.push_back({DNNL_ARG_BIAS, false, 2, bias, bias});
  return make_primitive_kernel<dnnl::matmul>(request, descriptor, arguments);
}

// A product's matrices as they are in memory.
struct ProductLayouts {
  memory::desc a, b, out;

  ProductLayouts(const MatmulSizes& sizes, memory::data_type from, memory::data_type to) {
    const auto [batch, m, n, k, transpose_a, transpose_b] = sizes;
    a = plain({batch, m, k}, transpose_a ? Tag::acb : Tag::abc, from);
    b = plain({batch, k, n}, transpose_b ? Tag::acb : Tag::abc, from);
    out = plain({batch, m, n}, Tag::abc, to);
  }

  dnnl::matmul::primitive_desc descriptor() const {
    return {engine(), a, b, out, make_attributes({})};
  }
};

std::unique_ptr<Kernel> make_matmul(const PlanRequest& request, const ProductLayouts& at,
                                    const dnnl::matmul::primitive_desc& descriptor) {
  return make_primitive_kernel<dnnl::matmul>(
      request, descriptor,
      {{DNNL_ARG_SRC, false, 0, at.a, descriptor.src_desc()},
       {DNNL_ARG_WEIGHTS, false, 1, at.b, descriptor.weights_desc()},
       {DNNL_ARG_DST, true, 0, at.out, descriptor.dst_desc()}});
}

// Does oneDNN use the instructions that add products of bytes in 32 bits? Each of its sets has the
// bits of those that it contains.
bool has_vnni() {
  const auto set = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto contains = [&](dnnl::cpu_isa other) {
    return (set & static_cast<unsigned>(other)) == static_cast<unsigned>(other);
  };
  return contains(dnnl::cpu_isa::avx512_core_vnni) || contains(dnnl::cpu_isa::avx2_vnni);
}

}  // namespace

std::unique_ptr<Kernel> plan_conv2d(const PlanRequest& request, const Conv2DGeometry& g,
                                    bool has_bias, const ActivationCall& activation) {
  return make_checked(request, [&] {
    const ConvolutionSizes sizes(g);
    auto kernel = make_conv2d(request, sizes, has_bias, activation);
    if (activation.kind == Activation::Linear) return kernel;
    auto linear = make_conv2d(request, sizes, has_bias, {});
    std::vector<int64_t> input_sizes;
    for (const TensorSpec& input : request.inputs) input_sizes.push_back(num_elements(input.shape));
    return choose_by_range(
        std::move(kernel),
        add_activation(std::move(linear), num_elements(request.outputs[0].shape), activation),
        std::move(input_sizes), g.num_taps());
  });
}

std::unique_ptr<Kernel> plan_conv2d_dgrad(const PlanRequest& request, const Conv2DGeometry& g) {
  return make_checked(request, [&] {
    const ConvolutionSizes sizes(g);
    const dnnl::convolution_backward_data::primitive_desc descriptor(
        engine(), dnnl::algorithm::convolution_direct, sizes.x, sizes.any_kernel, sizes.y,
        sizes.strides, sizes.dilations, sizes.pad_begin, sizes.pad_end,
        forward_descriptor(sizes, false, {}), make_attributes({}));
    return make_primitive_kernel<dnnl::convolution_backward_data>(
        request, descriptor,
        {{DNNL_ARG_DIFF_DST, false, 0, sizes.y, descriptor.diff_dst_desc()},
         {DNNL_ARG_WEIGHTS, false, 1, sizes.kernel, descriptor.weights_desc()},
         {DNNL_ARG_DIFF_SRC, true, 0, sizes.x, descriptor.diff_src_desc()}});
  });
}

std::unique_ptr<Kernel> plan_conv2d_wgrad(const PlanRequest& request, const Conv2DGeometry& g) {
  return make_checked(request, [&] {
    const ConvolutionSizes sizes(g);
    const dnnl::convolution_backward_weights::primitive_desc descriptor(
        engine(), dnnl::algorithm::convolution_direct, sizes.x, sizes.any_kernel, sizes.y,
        sizes.strides, sizes.dilations, sizes.pad_begin, sizes.pad_end,
        forward_descriptor(sizes, false, {}), make_attributes({}));
    // oneDNN 3.2's kernels for 1 x 1 kernels read past the channels where strides skip pixels.
    const bool skips = g.stride_height > 1 || g.stride_width > 1;
    if (skips && std::string_view(descriptor.impl_info_str()).starts_with("jit_1x1")) {
      return std::unique_ptr<Kernel>();
    }
    return make_primitive_kernel<dnnl::convolution_backward_weights>(
        request, descriptor,
        {{DNNL_ARG_SRC, false, 0, sizes.x, descriptor.src_desc()},
         {DNNL_ARG_DIFF_DST, false, 1, sizes.y, descriptor.diff_dst_desc()},
         {DNNL_ARG_DIFF_WEIGHTS, true, 0, sizes.kernel, descriptor.diff_weights_desc()}});
  });
}

std::unique_ptr<Kernel> plan_matmul(const PlanRequest& request, const MatmulSizes& sizes) {
  return make_checked(request, [&] {
    const ProductLayouts at(sizes, memory::data_type::f32, memory::data_type::f32);
    return make_matmul(request, at, at.descriptor());
  });
}

std::unique_ptr<Kernel> plan_integer_matmul(const PlanRequest& request, const MatmulSizes& sizes) {
  if (!has_vnni()) return nullptr;
  return make_checked(request, [&] {
    const ProductLayouts at(sizes, memory::data_type::s8, memory::data_type::s32);
    const auto descriptor = at.descriptor();
    if (std::string_view(descriptor.impl_info_str()).starts_with("ref")) {
      return std::unique_ptr<Kernel>();
    }
    return make_matmul(request, at, descriptor);
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
    return add_activation(make_dense(request, {}), num_elements(request.outputs[0].shape),
                          activation);
  });
}

}  // namespace kerascnn::cpu::onednn
