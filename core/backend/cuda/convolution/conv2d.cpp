#include "core/backend/cuda/convolution/conv2d.h"

#include <algorithm>

#include "core/backend/cuda/fusions/fusions.h"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/autotune.h"
#include "core/base/error.h"

namespace kerascnn::cuda {
namespace {

Conv2DCall make_call(const PlanRequest& request) {
  Conv2DCall call;
  call.op = &request.op;
  call.geometry = conv2d_geometry(request.op, request.attributes, request.inputs);
  call.dtype = request.inputs[0].dtype;
  call.allow_tf32 = request.allow_tf32;
  if (!is_floating(call.dtype)) {
    throw TypeError(message(call.op->name, ": dtype ", dtype_name(call.dtype),
                            " is not supported on CUDA; cast to a floating dtype first"));
  }
  return call;
}

bool needs_direct(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  return call.dtype == DType::Float64 || num_elements(g.input_shape()) == 0 ||
         num_elements(g.output_shape()) == 0 || num_elements(g.kernel_shape()) == 0;
}

using PlanCall = std::unique_ptr<Kernel> (*)(const Conv2DCall&);

// The own kernels of one op.
struct OwnKernels {
  PlanCall tiled, tf32, product, direct;
};

constexpr OwnKernels kForward{plan_conv2d_tiled, plan_conv2d_tf32, plan_conv2d_product,
                              plan_conv2d_direct};
constexpr OwnKernels kDgrad{plan_conv2d_dgrad_tiled, plan_conv2d_dgrad_tf32,
                            plan_conv2d_dgrad_product, plan_conv2d_dgrad_direct};
constexpr OwnKernels kWgrad{plan_conv2d_wgrad_tiled, plan_conv2d_wgrad_tf32,
                            plan_conv2d_wgrad_product, plan_conv2d_wgrad_direct};

// The limits of the rules below were measured on an H200; docs/benchmarks.md has the times.

// With so little arithmetic a convolution is bound by memory and launches: plain cores keep up, and
// one launch beats cuDNN's, which first pads channels to the width of tensor cores.
bool suits_tiled(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  if (g.num_products() <= kFewProducts) return true;
  if (std::max(g.input_channels, g.output_channels) <= 8 && g.num_taps() <= 72) return true;
  // A first layer; its data gradient has a long sum for each of few results.
  if (g.input_channels > 4 || g.num_taps() > 64 || call.op == &op_conv2d_dgrad) return false;
  if (call.op == &op_conv2d_wgrad) return g.output_channels <= 64;
  return g.output_channels <= 32 || g.num_products() <= int64_t{1} << 27;
}

// Does a vision transformer cut up images of few channels so? Patches lie side by side, and to
// gather them copies an image once. cuDNN pads image and kernel to more channels.
bool cuts_into_patches(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  return call.op == &op_conv2d && g.kernel_height * g.kernel_width > 1 &&
         g.kernel_height == g.stride_height && g.kernel_width == g.stride_width &&
         g.input_channels % 8 != 0;
}

// Where there are results enough to fill a GPU, the time is about that of reading and writing them
// once. In 16 bits a kernel's gradient of many filters is a product sooner.
bool suits_narrow(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  if (g.input_channels > 8 || g.num_products() <= int64_t{1} << 27) return false;
  const bool is_product = call.op == &op_conv2d_wgrad && call.dtype != DType::Float32;
  return !is_product || g.output_channels <= 32;
}

// With more taps there is more arithmetic, but patches that overlap would be several times as large
// as the images, and cuDNN has no fast kernel for few channels.
bool suits_narrow_many(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  return g.input_channels <= 8 && g.num_products() > int64_t{1} << 27 && !cuts_into_patches(call);
}

// Up to this size one launch, with the bias in it, beats cuDNN's two or three; beyond it arithmetic
// counts, and cuDNN's is up to five times as fast.
bool suits_tf32(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  const int64_t channels = std::max(g.input_channels, g.output_channels);
  const int64_t taps = g.kernel_height * g.kernel_width;
  if (call.op == &op_conv2d_wgrad) {
    // Three taps in a row share what they read.
    const int64_t most = g.kernel_width % 3 == 0 ? int64_t{1} << 29 : int64_t{1} << 26;
    return channels <= 128 && g.num_products() <= most;
  }
  const int64_t depth = taps * (call.op == &op_conv2d ? g.input_channels : g.output_channels);
  const bool is_small = g.num_products() <= int64_t{1} << 28;
  // Of larger ones cuDNN's kernels are so much faster that they have the time for another pass over
  // the result, which activations but relu take.
  if (taps == 1 && has_epilogue(call)) return channels <= 128 && is_small;
  return channels <= 32 && depth <= 288 && is_small;
}

// It saves a pass over the result. A long sum is arithmetic, at which the libraries' kernels are
// faster.
bool suits_pointwise(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  return g.num_products() > int64_t{1} << 26 && g.input_channels <= 384;
}

// Smaller ones are over before a ring of stages is full.
bool suits_warpgroups(const Conv2DCall& call) {
  return call.geometry.num_products() >= int64_t{1} << 29;
}

// The same, of those that sum over 64 channels; with fewer the rest of its depth is for nothing.
bool suits_few_channels(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  const int64_t summed = call.op == &op_conv2d ? g.input_channels : g.output_channels;
  return g.num_products() >= int64_t{1} << 29 && summed > 48 &&
         g.kernel_height * g.kernel_width > 1;
}

// An engine of cuDNN with an epilogue takes as long as the convolution alone and saves a pass over
// the result. Where channels are no multiple of 8, as those of 16-bit images, the convolution alone
// has faster engines.
bool suits_epilogue(const Conv2DCall& call) {
  const bool suits_input =
      call.dtype == DType::Float32 || call.geometry.group_input_channels() % 8 == 0;
  return suits_input && call.geometry.group_output_channels() % 8 == 0;
}

// cuBLASLt's products of float32 with a kernel as it lies take longer than cuDNN's convolutions.
// An activation of a product is another pass over the result; where cuDNN need not pad channels, it
// has an engine with relu in it.
bool suits_product(const Conv2DCall& call) {
  if (call.dtype == DType::Float32) return cuts_into_patches(call);
  return call.activation.kind != Activation::Relu || call.geometry.input_channels % 8 != 0;
}

struct OwnCandidates {
  std::vector<KernelCandidate> before_cudnn, after_cudnn;
};

// The kernels in the order that the rules give.
OwnCandidates own_candidates(const Conv2DCall& call, const OwnKernels& own) {
  OwnCandidates result;
  if (needs_direct(call)) {
    result.before_cudnn.push_back({"kerascnn direct", [&] { return own.direct(call); }});
    return result;
  }
  const auto add = [&](bool suits, const char* name, PlanCall plan) {
    auto& candidates = suits ? result.before_cudnn : result.after_cudnn;
    candidates.push_back({name, [&call, plan] { return plan(call); }});
  };
  add(true, "kerascnn depthwise", plan_conv2d_depthwise);
  add(suits_narrow(call), "kerascnn narrow", plan_conv2d_narrow);
  add(suits_narrow_many(call), "kerascnn narrow, many taps", plan_conv2d_narrow_many);
  add(suits_pointwise(call), "kerascnn pointwise", plan_conv2d_pointwise);
  add(suits_tiled(call), "kerascnn tiled", own.tiled);
  add(suits_tf32(call), "kerascnn tf32", own.tf32);
  add(suits_warpgroups(call), "kerascnn warpgroups", plan_conv2d_wgrad_warpgroups);
  add(suits_few_channels(call), "kerascnn warpgroups for few channels", plan_conv2d_warpgroups);
  add(suits_product(call), "cuBLASLt", own.product);
  return result;
}

// With an epilogue, where the call has one, and without where nothing but that is added.
void add_cudnn_candidates(std::vector<KernelCandidate>& candidates, const Conv2DCall& call,
                          bool timed) {
  const int most_engines = timed ? 8 : 1;
  for (int engine = 0; engine < most_engines; ++engine) {
    const auto name = [&](const char* library) {
      return engine == 0 ? message(library, " by its heuristics")
                         : message(library, ", number ", engine + 1, " of its heuristics");
    };
    // By the rules it may be any engine from the first on that can be built.
    const std::optional<int> place = engine == 0 ? std::nullopt : std::optional(engine);
    const KernelCandidate plain{name("cuDNN"), [=] { return plan_conv2d_cudnn(call, place); }};
    const KernelCandidate epilogue{name("cuDNN with an epilogue"),
                                   [=] { return plan_conv2d_cudnn_epilogue(call, place); }};
    if (call.has_bias && suits_epilogue(call)) candidates.push_back(epilogue);
    if (call.has_addend) continue;
    candidates.push_back(plain);
    if (call.has_bias && timed && !suits_epilogue(call)) candidates.push_back(epilogue);
  }
}

// The choice of the rules comes first. The direct kernel is for whatever the others refuse, but
// groups may be too narrow for those.
std::unique_ptr<Kernel> choose(const PlanRequest& request, const Conv2DCall& call,
                               const OwnKernels& own) {
  if (needs_direct(call)) return own.direct(call);
  auto [candidates, others] = own_candidates(call, own);
  const bool timed = is_timed(request, call.geometry.num_products());
  add_cudnn_candidates(candidates, call, timed);
  candidates.insert(candidates.end(), others.begin(), others.end());
  if (!timed || call.geometry.groups > 1) {
    candidates.push_back({"kerascnn direct", [&] { return own.direct(call); }});
  }
  auto kernel = choose_fastest(request, call.geometry.num_products(), candidates);
  return kernel != nullptr ? std::move(kernel) : own.direct(call);
}

}  // namespace

std::unique_ptr<Kernel> plan_conv2d(const PlanRequest& request) {
  Conv2DCall call = make_call(request);
  call.has_bias = request.inputs.size() == 3;
  call.activation = fused_activation("conv2d", request.attributes);
  return choose(request, call, kForward);
}

std::unique_ptr<Kernel> plan_conv2d_dgrad(const PlanRequest& request) {
  return choose(request, make_call(request), kDgrad);
}

std::unique_ptr<Kernel> plan_conv2d_wgrad(const PlanRequest& request) {
  return choose(request, make_call(request), kWgrad);
}

std::unique_ptr<Kernel> plan_fused_conv2d_wgrad(const Match& match) {
  const PlanRequest whole = match.request();
  return plan_conv2d_wgrad({op_conv2d_wgrad, match.node("convolution").attributes, whole.inputs,
                            whole.outputs, whole.allow_tf32, whole.autotune});
}

std::unique_ptr<Kernel> plan_fused_conv2d_moments(const Match& match) {
  const PlanRequest whole = match.request();
  Conv2DCall call = make_call({op_conv2d, match.node("convolution").attributes, whole.inputs,
                               whole.outputs, whole.allow_tf32, whole.autotune});
  call.has_bias = match.has("bias");
  if (needs_direct(call) || !suits_few_channels(call)) return nullptr;
  return plan_conv2d_warpgroups_moments(call);
}

// Small convolutions have kernels of their own, and an addition after them takes next to no time.
std::unique_ptr<Kernel> plan_fused_conv2d_add(const Match& match) {
  const PlanRequest whole = match.request();
  Conv2DCall call = make_call({op_conv2d, match.node("convolution").attributes, whole.inputs,
                               whole.outputs, whole.allow_tf32, whole.autotune});
  call.has_bias = call.has_addend = true;
  if (match.has("relu")) call.activation.kind = Activation::Relu;
  const int64_t num_products = call.geometry.num_products();
  if (needs_direct(call) || num_products <= kFewProducts || !suits_epilogue(call)) return nullptr;
  const bool timed = is_timed(whole, num_products);
  std::vector<KernelCandidate> candidates;
  add_cudnn_candidates(candidates, call, timed);
  if (timed) candidates.push_back({"each node by itself", [&] { return match.plan_body(); }});
  return choose_fastest(whole, num_products, candidates);
}

}  // namespace kerascnn::cuda
