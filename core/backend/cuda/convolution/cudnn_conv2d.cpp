// Convolution through cuDNN's graph API. Activations are channels-last, as everywhere; the kernel
// is (kh, kw, c, k) here and (k, kh, kw, c) in cuDNN's engines, so it is transposed before (or its
// gradient after) the convolution, through the workspace or, in a program, by a kernel of its own.
#include <cudnn_frontend.h>

#include <unordered_map>

#include "core/backend/cuda/convolution/conv2d.h"
#include "core/backend/cuda/convolution/cudnn_engines.h"
#include "core/backend/cuda/convolution/kernel_transpose.h"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/products/bias_activation.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/initcheck.h"

namespace kerascnn::cuda {
namespace {

namespace fe = cudnn_frontend;
using TensorAttributes = std::shared_ptr<fe::graph::Tensor_attributes>;

constexpr int64_t kMaxWorkspace = int64_t{1} << 30;
constexpr int64_t kMostEngines = 8;  // of the heuristics' list, for the rules

fe::DataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return fe::DataType_t::HALF;
    case DType::BFloat16:
      return fe::DataType_t::BFLOAT16;
    default:
      return fe::DataType_t::FLOAT;
  }
}

// cuDNN lists extents as (n, c, h, w) whatever the layout; the strides say channels-last.
std::vector<int64_t> channels_last_strides(const std::vector<int64_t>& extents) {
  return {extents[1] * extents[2] * extents[3], 1, extents[1] * extents[3], extents[1]};
}

// What the kernel takes in a workspace.
int64_t kernel_bytes(const Conv2DCall& call) {
  const int64_t bytes =
      num_elements(call.geometry.kernel_shape()) * static_cast<int64_t>(itemsize(call.dtype));
  return ceil_div(bytes, 256) * 256;
}

class CudnnConvolution {
 public:
  // Where `has_epilogue` says so, the engine adds addend and bias and applies the activation.
  CudnnConvolution(const Conv2DCall& call, bool has_epilogue);

  // Returns false where no engine takes the call, or not the one at this place of the heuristics'
  // list.
  bool build(std::optional<int> place);
  // `bias` and `addend` are only for an engine with an epilogue.
  void run(const void* x, const void* kernel, const void* y, void* workspace, cudaStream_t stream,
           const void* bias = nullptr, const void* addend = nullptr) const;
  int64_t workspace_bytes() const { return workspace_bytes_; }
  std::string description() const;

 private:
  TensorAttributes tensor(const char* name, std::vector<int64_t> extents);
  template <typename ConvolutionAttributes>
  ConvolutionAttributes attributes() const;
  void add_operation();
  // Takes an engine that the rules say is faster than the first that can be built.
  void use_faster_engine(int64_t count);
  TensorAttributes add_epilogue(TensorAttributes y, const std::vector<int64_t>& extents);
  [[noreturn]] void throw_error(fe::error_t error, const char* call) const;

  Conv2DCall call_;
  bool has_epilogue_;
  Context& context_;
  mutable fe::graph::Graph graph_;
  TensorAttributes x_, kernel_, y_, result_;  // the result is one of the three
  TensorAttributes bias_, addend_;            // null where the engine adds none
  int64_t plan_ = 0;                          // in the heuristics' list
  int64_t workspace_bytes_ = 0;
};

CudnnConvolution::CudnnConvolution(const Conv2DCall& call, bool has_epilogue)
    : call_(call), has_epilogue_(has_epilogue), context_(Context::current()) {}

void CudnnConvolution::throw_error(fe::error_t error, const char* call) const {
  throw LibraryError(message(
      call_.op->name, ": ", call, " failed for input ", shape_string(call_.geometry.input_shape()),
      ", kernel ", shape_string(call_.geometry.kernel_shape()), ", ", dtype_name(call_.dtype), ": ",
      error.get_message(), ", cuDNN ", cudnnGetVersion()));
}

TensorAttributes CudnnConvolution::tensor(const char* name, std::vector<int64_t> extents) {
  return graph_.tensor(fe::graph::Tensor_attributes()
                           .set_name(name)
                           .set_dim(extents)
                           .set_stride(channels_last_strides(extents))
                           .set_data_type(data_type(call_.dtype)));
}

template <typename ConvolutionAttributes>
ConvolutionAttributes CudnnConvolution::attributes() const {
  const Conv2DGeometry& g = call_.geometry;
  return ConvolutionAttributes()
      .set_pre_padding({g.pad_top, g.pad_left})
      .set_post_padding({g.pad_bottom, g.pad_right})
      .set_stride({g.stride_height, g.stride_width})
      .set_dilation({g.dilation_height, g.dilation_width});
}

// Between the nodes numbers are float32, so only the result is rounded. Compiled engines add in
// this order.
TensorAttributes CudnnConvolution::add_epilogue(TensorAttributes y,
                                                const std::vector<int64_t>& extents) {
  const auto put = [&](TensorAttributes& value) {
    value->set_dim(extents).set_stride(channels_last_strides(extents));
  };
  const auto pointwise = [](fe::PointwiseMode_t mode) {
    return fe::graph::Pointwise_attributes().set_mode(mode).set_compute_data_type(
        fe::DataType_t::FLOAT);
  };
  put(y);
  if (call_.has_addend) {
    addend_ = tensor("addend", extents);
    y = graph_.pointwise(y, addend_, pointwise(fe::PointwiseMode_t::ADD));
    put(y);
  }
  bias_ = tensor("bias", {1, extents[1], 1, 1});
  y = graph_.pointwise(y, bias_, pointwise(fe::PointwiseMode_t::ADD));
  if (call_.activation.kind == Activation::Relu) {
    put(y);
    y = graph_.pointwise(y, pointwise(fe::PointwiseMode_t::RELU_FWD));
  }
  return y;
}

void CudnnConvolution::add_operation() {
  const Conv2DGeometry& g = call_.geometry;
  const std::vector<int64_t> input = {g.batch, g.input_channels, g.input_height, g.input_width};
  const std::vector<int64_t> kernel = {g.output_channels, g.group_input_channels(), g.kernel_height,
                                       g.kernel_width};
  const std::vector<int64_t> output = {g.batch, g.output_channels, g.output_height, g.output_width};
  std::vector<int64_t> extents;
  if (call_.op == &op_conv2d) {
    x_ = tensor("x", input);
    kernel_ = tensor("kernel", kernel);
    y_ = graph_.conv_fprop(x_, kernel_, attributes<fe::graph::Conv_fprop_attributes>());
    if (has_epilogue_) y_ = add_epilogue(y_, output);
    result_ = y_;
    extents = output;
  } else if (call_.op == &op_conv2d_dgrad) {
    y_ = tensor("gy", output);
    kernel_ = tensor("kernel", kernel);
    result_ = x_ = graph_.conv_dgrad(y_, kernel_, attributes<fe::graph::Conv_dgrad_attributes>());
    extents = input;
  } else {
    y_ = tensor("gy", output);
    x_ = tensor("x", input);
    result_ = kernel_ = graph_.conv_wgrad(y_, x_, attributes<fe::graph::Conv_wgrad_attributes>());
    extents = kernel;
  }
  result_->set_output(true)
      .set_data_type(data_type(call_.dtype))
      .set_dim(extents)
      .set_stride(channels_last_strides(extents));
}

bool CudnnConvolution::build(std::optional<int> place) {
  graph_.set_io_data_type(data_type(call_.dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  add_operation();
  if (auto error = graph_.validate(); error.is_bad()) throw_error(error, "validating the graph");
  // From here on failures mean that cuDNN has no engine for this call.
  const CudnnUse cudnn = context_.use_cudnn(context_.stream());
  if (graph_.build_operation_graph(cudnn.handle).is_bad()) return false;
  if (graph_.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}).is_bad()) {
    return false;
  }
  std::vector<fe::NumericalNote_t> unwanted = {fe::NumericalNote_t::NONDETERMINISTIC,
                                               fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION,
                                               fe::NumericalNote_t::DOWN_CONVERT_INPUTS};
  if (call_.dtype == DType::Float32 && !call_.allow_tf32) {
    unwanted.insert(
        unwanted.end(),
        {fe::NumericalNote_t::TENSOR_CORE, fe::NumericalNote_t::FFT, fe::NumericalNote_t::WINOGRAD,
         fe::NumericalNote_t::WINOGRAD_TILE_4x4, fe::NumericalNote_t::WINOGRAD_TILE_6x6,
         fe::NumericalNote_t::WINOGRAD_TILE_13x13});
  }
  graph_.deselect_numeric_notes(unwanted);
  // These engines take half a second to compile for each call, and are slower than two kernels.
  if (has_epilogue_) graph_.deselect_behavior_notes({fe::BehaviorNote_t::RUNTIME_COMPILATION});
  const Conv2DGeometry& g = call_.geometry;
  std::vector<std::string> unwanted_engines;  // of cuDNN 9.19
  if (call_.op == &op_conv2d_wgrad) {
    // This engine takes the padding before for the padding after as well.
    if (g.pad_top != g.pad_bottom || g.pad_left != g.pad_right) unwanted_engines.push_back("eng1_");
    // This engine says that it computes in float32, but it is off by up to 6e-3 of the largest
    // result with 5x5 kernels, by 2.5e-5 with 3x3 ones; others are off by some 1e-6.
    if (call_.dtype == DType::Float32) unwanted_engines.push_back("eng17_");
  }
  graph_.deselect_engines(unwanted_engines);
  graph_.deselect_workspace_greater_than(kMaxWorkspace);
  if (graph_.check_support().is_bad()) return false;
  const int64_t count = graph_.get_execution_plan_count();
  const int64_t end = place ? std::min<int64_t>(*place + 1, count) : count;
  plan_ = place.value_or(0);
  while (plan_ < end && graph_.build_plan_at_index(plan_).is_bad()) ++plan_;
  if (plan_ >= end) return false;
  if (!place) use_faster_engine(count);
  if (auto error = graph_.get_workspace_size_plan_at_index(plan_, workspace_bytes_);
      error.is_bad()) {
    throw_error(error, "asking for the workspace size");
  }
  return true;
}

void CudnnConvolution::use_faster_engine(int64_t count) {
  std::vector<std::string> names(std::min(count, kMostEngines));
  if (plan_ >= std::ssize(names)) return;
  for (int64_t i = 0; i < std::ssize(names); ++i) {
    if (graph_.get_plan_name_at_index(i, names[i]).is_bad()) return;
  }
  const auto faster = faster_engine(call_, names, plan_, context_.multiprocessors());
  if (faster && graph_.build_plan_at_index(*faster).is_good()) {
    plan_ = static_cast<int64_t>(*faster);
  }
}

void CudnnConvolution::run(const void* x, const void* kernel, const void* y, void* workspace,
                           cudaStream_t stream, const void* bias, const void* addend) const {
  // The frontend takes all pointers as writable, but the operation writes its result only.
  std::unordered_map<TensorAttributes, void*> buffers = {
      {x_, const_cast<void*>(x)}, {kernel_, const_cast<void*>(kernel)}, {y_, const_cast<void*>(y)}};
  if (bias_ != nullptr) buffers[bias_] = const_cast<void*>(bias);
  if (addend_ != nullptr) buffers[addend_] = const_cast<void*>(addend);
  const int64_t result_bytes = result_->get_volume() * static_cast<int64_t>(itemsize(call_.dtype));
  mark_written({{buffers.at(result_), result_bytes}, {workspace, workspace_bytes_}}, stream);
  const CudnnUse cudnn = context_.use_cudnn(stream);
  if (auto error = graph_.execute_plan_at_index(cudnn.handle, buffers, workspace, plan_);
      error.is_bad()) {
    throw_error(error, "running");
  }
}

std::string CudnnConvolution::description() const {
  std::string name;
  if (graph_.get_plan_name_at_index(plan_, name).is_bad()) name = "engine of unknown name";
  return "cuDNN " + name;
}

// A convolution, or the gradient of its input. Its kernel comes as it is, or as one more input in
// cuDNN's order.
class ForwardOrDgrad final : public Kernel {
 public:
  ForwardOrDgrad(const Conv2DCall& call, std::shared_ptr<const CudnnConvolution> convolution,
                 bool in_epilogue, bool is_prepared)
      : call_(call),
        convolution_(std::move(convolution)),
        in_epilogue_(in_epilogue),
        is_prepared_(is_prepared) {}

  void run(const KernelArgs& args) override {
    const auto stream = static_cast<cudaStream_t>(args.stream);
    // The workspace holds the kernel in cuDNN's order, then what cuDNN itself needs.
    auto* workspace = static_cast<char*>(args.workspace);
    const void* kernel = is_prepared_ ? args.inputs.back() : workspace;
    if (!is_prepared_) {
      transpose(call_, args.inputs[1], workspace, stream, settled_loads(args, {{1}}));
      workspace += kernel_bytes(call_);
    }
    if (call_.op == &op_conv2d_dgrad) {
      convolution_->run(args.outputs[0], kernel, args.inputs[0], workspace, stream);
      return;
    }
    const void* bias = call_.has_bias ? args.inputs[2] : nullptr;
    const void* addend = call_.has_addend ? args.inputs[3] : nullptr;
    convolution_->run(args.inputs[0], kernel, args.outputs[0], workspace, stream, bias, addend);
    if (!in_epilogue_ && has_epilogue(call_)) {
      const Conv2DGeometry& g = call_.geometry;
      launch_bias_activation(call_.dtype, args.outputs[0], bias,
                             g.batch * g.output_height * g.output_width, g.output_channels,
                             call_.activation, stream);
    }
  }

  int64_t workspace_bytes() const override {
    return (is_prepared_ ? 0 : kernel_bytes(call_)) + convolution_->workspace_bytes();
  }
  bool keeps_state() const override { return true; }  // nothing is known of a plan of cuDNN
  bool starts_early() const override { return !is_prepared_; }  // with the transposition
  std::string description() const override { return convolution_->description(); }

  std::optional<PreparedKernel> prepared() const override {
    if (is_prepared_) return std::nullopt;
    const auto first = [call = call_](const KernelArgs& args) {
      transpose(call, args.inputs[0], args.outputs[0], static_cast<cudaStream_t>(args.stream),
                settled_loads(args, {{0}}));
    };
    return PreparedKernel{
        make_early_kernel("kerascnn transposes the kernel for cuDNN", first), 1,
        kernel_bytes(call_),
        std::make_unique<ForwardOrDgrad>(call_, convolution_, in_epilogue_, true)};
  }

 private:
  static void transpose(const Conv2DCall& call, const void* kernel, void* result,
                        cudaStream_t stream, uint32_t settled) {
    const Conv2DGeometry& g = call.geometry;
    launch_transpose(call.dtype, kernel, result, g.num_taps(), g.output_channels, stream, settled);
  }

  Conv2DCall call_;
  std::shared_ptr<const CudnnConvolution> convolution_;
  bool in_epilogue_;
  bool is_prepared_;
};

std::unique_ptr<Kernel> plan(const Conv2DCall& call, bool in_epilogue, std::optional<int> place) {
  auto convolution = std::make_shared<CudnnConvolution>(call, in_epilogue);
  if (!convolution->build(place)) return nullptr;
  if (call.op != &op_conv2d_wgrad) {
    return std::make_unique<ForwardOrDgrad>(call, std::move(convolution), in_epilogue, false);
  }
  constexpr bool keeps_state = true;  // nothing is known of a plan of cuDNN
  return make_kernel(
      convolution->description(),
      [=](const KernelArgs& args) {
        const auto stream = static_cast<cudaStream_t>(args.stream);
        char* const kernel = static_cast<char*>(args.workspace);
        convolution->run(args.inputs[0], kernel, args.inputs[1], kernel + kernel_bytes(call),
                         stream);
        launch_transpose(call.dtype, kernel, args.outputs[0], call.geometry.output_channels,
                         call.geometry.num_taps(), stream);
      },
      kernel_bytes(call) + convolution->workspace_bytes(), keeps_state);
}

}  // namespace

std::unique_ptr<Kernel> plan_conv2d_cudnn(const Conv2DCall& call, std::optional<int> place) {
  return plan(call, false, place);
}

std::unique_ptr<Kernel> plan_conv2d_cudnn_epilogue(const Conv2DCall& call,
                                                   std::optional<int> place) {
  const Activation activation = call.activation.kind;
  const bool is_known = activation == Activation::Linear || activation == Activation::Relu;
  return call.has_bias && is_known ? plan(call, true, place) : nullptr;
}

}  // namespace kerascnn::cuda
