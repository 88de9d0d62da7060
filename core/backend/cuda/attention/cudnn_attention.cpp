// Attention through cuDNN's graph API: products, softmax and their gradients go through tiles on
// the chip, so that the shares (batch, heads, T, S) never reach memory.
#include <cudnn_frontend.h>

#include <array>
#include <unordered_map>

#include "core/backend/cuda/attention/attention.h"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/initcheck.h"

namespace kerascnn::cuda {
namespace {

namespace fe = cudnn_frontend;
using TensorAttributes = std::shared_ptr<fe::graph::Tensor_attributes>;
using Buffers = std::unordered_map<TensorAttributes, void*>;

constexpr int64_t kMaxWorkspace = int64_t{4} << 30;

class CudnnAttention {
 public:
  explicit CudnnAttention(const AttentionCall& call) : call_(call), context_(Context::current()) {}

  // These return false where no engine takes the call.
  bool build_forward();
  bool build_backward();

  int64_t workspace_bytes() const { return workspace_bytes_; }
  int64_t log_sum_bytes() const { return call_.batch * call_.heads * call_.queries * 4; }
  std::string description() const;

  struct Arguments {
    const void *q = nullptr, *k = nullptr, *v = nullptr, *gy = nullptr;
    void *y = nullptr, *log_sums = nullptr;
    void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  };
  void run_forward(const Arguments& arguments, void* workspace, cudaStream_t stream) const;
  void run_backward(const Arguments& arguments, void* workspace, cudaStream_t stream) const;

 private:
  fe::DataType_t data_type() const {
    return call_.dtype == DType::Float16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16;
  }
  // Extents and strides of (batch, heads, length, size).
  fe::graph::Tensor_attributes attributes(const char* name, int64_t length, int64_t size,
                                          HeadsAt heads) const;
  fe::graph::Tensor_attributes log_sum_attributes() const;
  template <typename Attention>
  void describe(Attention& attention) const;
  void set_result(const TensorAttributes& tensor, const fe::graph::Tensor_attributes& wanted) const;
  bool build();
  void execute(Buffers& buffers, void* workspace, cudaStream_t stream) const;
  [[noreturn]] void throw_error(fe::error_t error, const char* doing) const;

  AttentionCall call_;
  Context& context_;
  mutable fe::graph::Graph graph_;
  TensorAttributes q_, k_, v_, y_, log_sums_, gy_, dq_, dk_, dv_;
  int64_t workspace_bytes_ = 0;
};

void CudnnAttention::throw_error(fe::error_t error, const char* doing) const {
  throw LibraryError(message("attention: ", doing, " failed for ", call_.batch, " x ", call_.heads,
                             " heads, ", call_.queries, " queries and ", call_.keys,
                             " keys of size ", call_.size, ", values of size ", call_.value_size,
                             ", ", dtype_name(call_.dtype), ": ", error.get_message(), ", cuDNN ",
                             cudnnGetVersion()));
}

fe::graph::Tensor_attributes CudnnAttention::attributes(const char* name, int64_t length,
                                                        int64_t size, HeadsAt heads) const {
  const int64_t per_head = heads == HeadsAt::Front ? length * size : size;
  const int64_t per_place = heads == HeadsAt::Front ? size : call_.heads * size;
  return fe::graph::Tensor_attributes()
      .set_name(name)
      .set_dim({call_.batch, call_.heads, length, size})
      .set_stride({call_.heads * length * size, per_head, per_place, 1})
      .set_data_type(data_type());
}

fe::graph::Tensor_attributes CudnnAttention::log_sum_attributes() const {
  return fe::graph::Tensor_attributes()
      .set_name("log_sums")
      .set_dim({call_.batch, call_.heads, call_.queries, 1})
      .set_stride({call_.heads * call_.queries, call_.queries, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

void CudnnAttention::set_result(const TensorAttributes& tensor,
                                const fe::graph::Tensor_attributes& wanted) const {
  tensor->set_output(true)
      .set_dim(wanted.get_dim())
      .set_stride(wanted.get_stride())
      .set_data_type(wanted.get_data_type());
}

template <typename Attention>
void CudnnAttention::describe(Attention& attention) const {
  attention.set_attn_scale(static_cast<float>(call_.scale));
  if (call_.is_causal) {
    attention.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
  }
}

bool CudnnAttention::build_forward() {
  q_ = graph_.tensor(attributes("q", call_.queries, call_.size, call_.q));
  k_ = graph_.tensor(attributes("k", call_.keys, call_.size, call_.k));
  v_ = graph_.tensor(attributes("v", call_.keys, call_.value_size, call_.v));
  fe::graph::SDPA_attributes attention;
  attention.set_name("attention")
      .set_generate_stats(true)
      .set_implementation(fe::AttentionImplementation_t::COMPOSITE);
  describe(attention);
  const std::array results = graph_.sdpa(q_, k_, v_, attention);
  y_ = results[0];
  log_sums_ = results[1];
  set_result(y_, attributes("y", call_.queries, call_.value_size, call_.y));
  set_result(log_sums_, log_sum_attributes());
  return build();
}

bool CudnnAttention::build_backward() {
  q_ = graph_.tensor(attributes("q", call_.queries, call_.size, call_.q));
  k_ = graph_.tensor(attributes("k", call_.keys, call_.size, call_.k));
  v_ = graph_.tensor(attributes("v", call_.keys, call_.value_size, call_.v));
  y_ = graph_.tensor(attributes("y", call_.queries, call_.value_size, call_.y));
  gy_ = graph_.tensor(attributes("gy", call_.queries, call_.value_size, call_.y));
  log_sums_ = graph_.tensor(log_sum_attributes());
  fe::graph::SDPA_backward_attributes attention;
  attention.set_name("attention_grad").set_deterministic_algorithm(true);
  describe(attention);
  const std::array results = graph_.sdpa_backward(q_, k_, v_, y_, gy_, log_sums_, attention);
  dq_ = results[0];
  dk_ = results[1];
  dv_ = results[2];
  set_result(dq_, attributes("dq", call_.queries, call_.size, call_.q));
  set_result(dk_, attributes("dk", call_.keys, call_.size, call_.k));
  set_result(dv_, attributes("dv", call_.keys, call_.value_size, call_.v));
  return build();
}

// Every failure means that cuDNN, or this version of it, has no engine for the call on this GPU.
bool CudnnAttention::build() {
  graph_.set_io_data_type(data_type())
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const CudnnUse cudnn = context_.use_cudnn(context_.stream());
  if (graph_.validate().is_bad() || graph_.build_operation_graph(cudnn.handle).is_bad() ||
      graph_.create_execution_plans({fe::HeurMode_t::A}).is_bad()) {
    return false;
  }
  graph_.deselect_workspace_greater_than(kMaxWorkspace);
  if (graph_.check_support().is_bad() || graph_.build_plans().is_bad()) return false;
  if (auto error = graph_.get_workspace_size(workspace_bytes_); error.is_bad()) {
    throw_error(error, "asking for the workspace size");
  }
  return true;
}

void CudnnAttention::execute(Buffers& buffers, void* workspace, cudaStream_t stream) const {
  const CudnnUse cudnn = context_.use_cudnn(stream);
  if (auto error = graph_.execute(cudnn.handle, buffers, workspace); error.is_bad()) {
    throw_error(error, "running");
  }
}

// The frontend takes all pointers as writable, but an operation writes its results only.
void CudnnAttention::run_forward(const Arguments& a, void* workspace, cudaStream_t stream) const {
  Buffers buffers = {{q_, const_cast<void*>(a.q)},
                     {k_, const_cast<void*>(a.k)},
                     {v_, const_cast<void*>(a.v)},
                     {y_, a.y},
                     {log_sums_, a.log_sums}};
  const auto bytes = static_cast<int64_t>(itemsize(call_.dtype));
  mark_written({{a.y, y_->get_volume() * bytes},
                {a.log_sums, log_sum_bytes()},
                {workspace, workspace_bytes_}},
               stream);
  execute(buffers, workspace, stream);
}

void CudnnAttention::run_backward(const Arguments& a, void* workspace, cudaStream_t stream) const {
  Buffers buffers = {{q_, const_cast<void*>(a.q)},
                     {k_, const_cast<void*>(a.k)},
                     {v_, const_cast<void*>(a.v)},
                     {y_, a.y},
                     {gy_, const_cast<void*>(a.gy)},
                     {log_sums_, a.log_sums},
                     {dq_, a.dq},
                     {dk_, a.dk},
                     {dv_, a.dv}};
  const auto bytes = static_cast<int64_t>(itemsize(call_.dtype));
  mark_written({{a.dq, dq_->get_volume() * bytes},
                {a.dk, dk_->get_volume() * bytes},
                {a.dv, dv_->get_volume() * bytes},
                {workspace, workspace_bytes_}},
               stream);
  execute(buffers, workspace, stream);
}

std::string CudnnAttention::description() const {
  std::string name;
  if (graph_.get_plan_name(name).is_bad()) name = "engine of unknown name";
  return "cuDNN " + name;
}

int64_t align(int64_t bytes) { return ceil_div(bytes, 256) * 256; }

constexpr bool kKeepsState = true;  // nothing is known of what a plan of cuDNN keeps

}  // namespace

std::unique_ptr<Kernel> plan_attention_cudnn(const AttentionCall& call,
                                             const AttentionArguments& arguments) {
  auto attention = std::make_shared<CudnnAttention>(call);
  if (!attention->build_forward()) return nullptr;
  // The workspace has room for the logarithms where nobody reads them.
  const int64_t log_sum_bytes = align(attention->log_sum_bytes());
  return make_kernel(
      attention->description(),
      [=](const KernelArgs& args) {
        char* workspace = static_cast<char*>(args.workspace);
        CudnnAttention::Arguments a;
        a.q = args.inputs[arguments.q];
        a.k = args.inputs[arguments.k];
        a.v = args.inputs[arguments.v];
        a.y = args.outputs[0];
        a.log_sums = args.outputs[1] != nullptr ? args.outputs[1] : workspace;
        attention->run_forward(a, workspace + log_sum_bytes,
                               static_cast<cudaStream_t>(args.stream));
      },
      log_sum_bytes + attention->workspace_bytes(), kKeepsState);
}

std::unique_ptr<Kernel> plan_attention_grad_cudnn(const AttentionCall& call,
                                                  const AttentionArguments& arguments) {
  auto attention = std::make_shared<CudnnAttention>(call);
  if (!attention->build_backward()) return nullptr;
  return make_kernel(
      attention->description(),
      [=](const KernelArgs& args) {
        CudnnAttention::Arguments a;
        a.q = args.inputs[arguments.q];
        a.k = args.inputs[arguments.k];
        a.v = args.inputs[arguments.v];
        a.gy = args.inputs[arguments.gy];
        a.y = const_cast<void*>(args.inputs[arguments.y]);
        a.log_sums = const_cast<void*>(args.inputs[arguments.log_sums]);
        a.dq = args.outputs[0];
        a.dk = args.outputs[1];
        a.dv = args.outputs[2];
        attention->run_backward(a, args.workspace, static_cast<cudaStream_t>(args.stream));
      },
      attention->workspace_bytes(), kKeepsState);
}

}  // namespace kerascnn::cuda
