#include "core/backend/cpu/onednn/primitive_kernel.h"

#include <dnnl_debug.h>

#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/parallel.h"

namespace kerascnn::cpu::onednn {

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

namespace {

dnnl::stream& stream() {
  thread_local dnnl::stream in_order(engine());
  return in_order;
}

}  // namespace

std::string call_string(const PlanRequest& request) {
  std::string text = std::string(request.op.name) + " of ";
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    text += (i > 0 ? ", " : "") + spec_string(request.inputs[i]);
  }
  return text;
}

void throw_library_error(const std::string& call, const dnnl::error& error) {
  const dnnl_version_t* version = dnnl_version();
  throw LibraryError(message(call, ": oneDNN ", version->major, ".", version->minor, ".",
                             version->patch, " failed with status ", error.status, " (",
                             dnnl_status2str(error.status), "): ", error.what()));
}

dnnl::primitive_attr make_attributes(const ActivationCall& activation) {
  using dnnl::algorithm;
  dnnl::post_ops ops;
  const float alpha = static_cast<float>(activation.alpha);
  switch (activation.kind) {
    case Activation::Linear:
      break;
    case Activation::Relu:
      ops.append_eltwise(algorithm::eltwise_relu, 0.0f, 0.0f);
      break;
    case Activation::LeakyRelu:
      ops.append_eltwise(algorithm::eltwise_relu, alpha, 0.0f);
      break;
    case Activation::ClippedRelu:
      ops.append_eltwise(algorithm::eltwise_clip, 0.0f, alpha);
      break;
    case Activation::Elu:
      ops.append_eltwise(algorithm::eltwise_elu, alpha, 0.0f);
      break;
    case Activation::Sigmoid:
      ops.append_eltwise(algorithm::eltwise_logistic, 0.0f, 0.0f);
      break;
    case Activation::Tanh:
      ops.append_eltwise(algorithm::eltwise_tanh, 0.0f, 0.0f);
      break;
    case Activation::Gelu:
      ops.append_eltwise(
          activation.alpha != 0 ? algorithm::eltwise_gelu_tanh : algorithm::eltwise_gelu_erf, 0.0f,
          0.0f);
      break;
    case Activation::Silu:
      ops.append_eltwise(algorithm::eltwise_swish, 1.0f, 0.0f);
      break;
    case Activation::Softplus:
      ops.append_eltwise(algorithm::eltwise_soft_relu, 1.0f, 0.0f);
      break;
  }
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(ops);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::memory::desc plain(const dnnl::memory::dims& dims, dnnl::memory::format_tag tag,
                         dnnl::memory::data_type type) {
  return {dims, type, tag};
}

dnnl::memory::desc any_layout(const dnnl::memory::dims& dims) {
  return plain(dims, dnnl::memory::format_tag::any);
}

PrimitiveKernel::PrimitiveKernel(std::string call, std::string implementation,
                                 const dnnl::primitive& primitive,
                                 const dnnl::memory::desc& scratchpad,
                                 const std::vector<Argument>& arguments)
    : call_(std::move(call)),
      description_("oneDNN " + std::move(implementation)),
      primitive_(primitive),
      scratchpad_(scratchpad, engine(), nullptr) {
  workspace_ = align_up(static_cast<int64_t>(scratchpad.get_size()));
  map_.emplace(DNNL_ARG_SCRATCHPAD, scratchpad_);
  for (const Argument& argument : arguments) {
    Bound bound{argument.is_output,
                argument.index,
                -1,
                dnnl::memory(argument.outside, engine(), nullptr),
                {},
                {}};
    bound.inside = bound.outside;
    if (argument.inside != argument.outside) {
      bound.inside = dnnl::memory(argument.inside, engine(), nullptr);
      bound.offset = workspace_;
      workspace_ += align_up(static_cast<int64_t>(argument.inside.get_size()));
      const dnnl::memory& from = argument.is_output ? bound.inside : bound.outside;
      const dnnl::memory& to = argument.is_output ? bound.outside : bound.inside;
      bound.reorder = dnnl::reorder(from, to);
    }
    map_.emplace(argument.name, bound.inside);
    bound_.push_back(std::move(bound));
  }
}

void PrimitiveKernel::run(const KernelArgs& args) {
  const ThreadCountScope threads;
  const std::lock_guard lock(mutex_);
  try {
    char* workspace = static_cast<char*>(args.workspace);
    scratchpad_.set_data_handle(workspace);
    for (Bound& bound : bound_) {
      bound.outside.set_data_handle(bound.is_output ? args.outputs[bound.index]
                                                    : const_cast<void*>(args.inputs[bound.index]));
      if (bound.offset >= 0) {
        bound.inside.set_data_handle(workspace + bound.offset);
        if (!bound.is_output) bound.reorder.execute(stream(), bound.outside, bound.inside);
      }
    }
    primitive_.execute(stream(), map_);
    for (Bound& bound : bound_) {
      if (bound.offset >= 0 && bound.is_output) {
        bound.reorder.execute(stream(), bound.inside, bound.outside);
      }
    }
    stream().wait();
  } catch (const dnnl::error& error) {
    throw_library_error(call_, error);
  }
}

}  // namespace kerascnn::cpu::onednn
