// Attention through cuDNN's graph API: products, softmax and their gradients go through tiles on
// the chip, so that the shares (batch, heads, T, S) never reach memory.
#include <cudnn_frontend.h>

#include <array>
#include <exception>
#include <map>
#include <mutex>
#include <sstream>
#include <tuple>
#include <unordered_map>

#include "core/backend/code_store.h"
#include "core/backend/cuda/attention/attention.h"
#include "core/backend/cuda/attention/masks.h"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/initcheck.h"

namespace kerascnn::cuda {
namespace {

namespace fe = cudnn_frontend;
using TensorAttributes = std::shared_ptr<fe::graph::Tensor_attributes>;
using Buffers = std::unordered_map<int64_t, void*>;

constexpr int64_t kMaxWorkspace = int64_t{4} << 30;

// The numbers of a graph's tensors. A graph that was read from the store knows its tensors by these
// alone.
enum Number : int64_t { kQ = 1, kK, kV, kAdded, kY, kLogSums, kGy, kDq, kDk, kDv };

class CudnnAttention {
 public:
  explicit CudnnAttention(const AttentionCall& call) : call_(call), context_(Context::current()) {}

  // These take the kernels from the store, or let cuDNN compile them and keep them there, and
  // return false where no engine takes the call.
  bool prepare_forward() { return prepare("attention", &CudnnAttention::build_forward); }
  bool prepare_backward() { return prepare("attention_grad", &CudnnAttention::build_backward); }

  int64_t workspace_bytes() const { return workspace_bytes_; }
  int64_t log_sum_bytes() const { return call_.batch * call_.heads * call_.queries * 4; }
  const std::string& description() const { return description_; }

  struct Arguments {
    const void *q = nullptr, *k = nullptr, *v = nullptr, *gy = nullptr, *added = nullptr;
    void *y = nullptr, *log_sums = nullptr;
    void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  };
  void run_forward(const Arguments& arguments, void* workspace, cudaStream_t stream) const;
  void run_backward(const Arguments& arguments, void* workspace, cudaStream_t stream) const;

 private:
  fe::DataType_t data_type() const {
    return call_.dtype == DType::Float16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16;
  }
  bool prepare(const char* operation, bool (CudnnAttention::*build)());
  // cuDNN may give other kernels where any of this differs.
  Digest key_of(const char* operation) const;
  bool read_stored(const Digest& key);
  void store(const Digest& key) const;

  bool build_forward();
  bool build_backward();
  bool build();
  // Extents and strides of (batch, heads, length, size).
  fe::graph::Tensor_attributes attributes(Number number, const char* name, int64_t length,
                                          int64_t size, HeadsAt heads) const;
  fe::graph::Tensor_attributes log_sum_attributes() const;
  template <typename Attention>
  void describe(Attention& attention);
  void set_result(const TensorAttributes& tensor, const fe::graph::Tensor_attributes& wanted) const;
  // Of a tensor with a row of `size` elements for each of so many places of a head.
  int64_t bytes(int64_t length, int64_t size) const {
    return call_.batch * call_.heads * length * size * static_cast<int64_t>(itemsize(call_.dtype));
  }
  void execute(Buffers& buffers, void* workspace, cudaStream_t stream) const;
  [[noreturn]] void throw_error(fe::error_t error, const char* doing) const;

  AttentionCall call_;
  Context& context_;
  std::unique_ptr<fe::graph::Graph> graph_;
  TensorAttributes q_, k_, v_;  // of a graph that is being built
  int64_t workspace_bytes_ = 0;
  std::string description_;
};

void CudnnAttention::throw_error(fe::error_t error, const char* doing) const {
  throw LibraryError(message("attention: ", doing, " failed for ", call_.batch, " x ", call_.heads,
                             " heads, ", call_.queries, " queries and ", call_.keys,
                             " keys of size ", call_.size, ", values of size ", call_.value_size,
                             ", ", dtype_name(call_.dtype), ": ", error.get_message(), ", cuDNN ",
                             cudnnGetVersion()));
}

fe::graph::Tensor_attributes CudnnAttention::attributes(Number number, const char* name,
                                                        int64_t length, int64_t size,
                                                        HeadsAt heads) const {
  const int64_t per_head = heads == HeadsAt::Front ? length * size : size;
  const int64_t per_place = heads == HeadsAt::Front ? size : call_.heads * size;
  return fe::graph::Tensor_attributes()
      .set_name(name)
      .set_uid(number)
      .set_dim({call_.batch, call_.heads, length, size})
      .set_stride({call_.heads * length * size, per_head, per_place, 1})
      .set_data_type(data_type());
}

fe::graph::Tensor_attributes CudnnAttention::log_sum_attributes() const {
  return fe::graph::Tensor_attributes()
      .set_name("log_sums")
      .set_uid(kLogSums)
      .set_dim({call_.batch, call_.heads, call_.queries, 1})
      .set_stride({call_.heads * call_.queries, call_.queries, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

void CudnnAttention::set_result(const TensorAttributes& tensor,
                                const fe::graph::Tensor_attributes& wanted) const {
  tensor->set_output(true)
      .set_uid(wanted.get_uid())
      .set_dim(wanted.get_dim())
      .set_stride(wanted.get_stride())
      .set_data_type(wanted.get_data_type());
}

template <typename Attention>
void CudnnAttention::describe(Attention& attention) {
  attention.set_attn_scale(static_cast<float>(call_.scale));
  if (call_.adds()) {
    const int64_t batches = call_.added_batches(), heads = call_.added_heads();
    const int64_t products = call_.queries * call_.keys;
    attention.set_bias(graph_->tensor(fe::graph::Tensor_attributes()
                                          .set_name("added")
                                          .set_uid(kAdded)
                                          .set_dim({batches, heads, call_.queries, call_.keys})
                                          .set_stride({heads * products, products, call_.keys, 1})
                                          .set_data_type(data_type())));
  }
  if (call_.is_causal) {
    attention.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
  }
}

bool CudnnAttention::build_forward() {
  fe::graph::SDPA_attributes attention;
  attention.set_name("attention")
      .set_generate_stats(true)
      .set_implementation(fe::AttentionImplementation_t::COMPOSITE);
  describe(attention);
  const auto [y, log_sums] = graph_->sdpa(q_, k_, v_, attention);
  set_result(y, attributes(kY, "y", call_.queries, call_.value_size, call_.y));
  set_result(log_sums, log_sum_attributes());
  return build();
}

bool CudnnAttention::build_backward() {
  const TensorAttributes y =
      graph_->tensor(attributes(kY, "y", call_.queries, call_.value_size, call_.y));
  const TensorAttributes gy =
      graph_->tensor(attributes(kGy, "gy", call_.queries, call_.value_size, call_.y));
  const TensorAttributes log_sums = graph_->tensor(log_sum_attributes());
  fe::graph::SDPA_backward_attributes attention;
  attention.set_name("attention_grad").set_deterministic_algorithm(true);
  describe(attention);
  const auto [dq, dk, dv] = graph_->sdpa_backward(q_, k_, v_, y, gy, log_sums, attention);
  set_result(dq, attributes(kDq, "dq", call_.queries, call_.size, call_.q));
  set_result(dk, attributes(kDk, "dk", call_.keys, call_.size, call_.k));
  set_result(dv, attributes(kDv, "dv", call_.keys, call_.value_size, call_.v));
  return build();
}

bool CudnnAttention::build() {
  // The frontend knows what cuDNN does not support; other errors are faults of this file.
  if (auto error = graph_->validate(); error.is_bad()) {
    if (error.get_code() == fe::error_code_t::GRAPH_NOT_SUPPORTED) return false;
    throw_error(error, "validating the graph");
  }
  // From here on failures mean that cuDNN has no engine for this call on this GPU.
  const CudnnUse cudnn = context_.use_cudnn(context_.stream());
  if (graph_->build_operation_graph(cudnn.handle).is_bad() ||
      graph_->create_execution_plans({fe::HeurMode_t::A}).is_bad()) {
    return false;
  }
  graph_->deselect_workspace_greater_than(kMaxWorkspace);
  if (graph_->check_support().is_bad() || graph_->build_plans().is_bad()) return false;
  if (graph_->get_plan_name(description_).is_bad()) description_ = "engine of unknown name";
  if (auto error = graph_->get_workspace_size(workspace_bytes_); error.is_bad()) {
    throw_error(error, "asking for the workspace size");
  }
  return true;
}

bool CudnnAttention::prepare(const char* operation, bool (CudnnAttention::*build)()) {
  const Digest key = key_of(operation);
  if (read_stored(key)) return true;
  graph_ = std::make_unique<fe::graph::Graph>();
  // An operation copies these when it is added.
  graph_->set_io_data_type(data_type())
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  q_ = graph_->tensor(attributes(kQ, "q", call_.queries, call_.size, call_.q));
  k_ = graph_->tensor(attributes(kK, "k", call_.keys, call_.size, call_.k));
  v_ = graph_->tensor(attributes(kV, "v", call_.keys, call_.value_size, call_.v));
  if (!(this->*build)()) return false;
  store(key);
  return true;
}

Digest CudnnAttention::key_of(const char* operation) const {
  std::ostringstream text;
  const cudaDeviceProp& device = context_.properties();
  text << "cuDNN plan 1, " << operation << ", cuDNN " << cudnnGetVersion() << ", frontend "
       << CUDNN_FRONTEND_VERSION << ", " << library_versions() << ", " << device.name << ", "
       << context_.compute_capability() << ", " << context_.multiprocessors() << ", "
       << dtype_name(call_.dtype) << std::hexfloat << ", scale " << call_.scale
       << (call_.is_causal ? ", causal" : "") << ", sizes";
  for (int64_t size : {call_.batch, call_.heads, call_.queries, call_.keys, call_.size,
                       call_.value_size, call_.added_batches(), call_.added_heads()}) {
    text << ' ' << size;
  }
  text << (call_.adds() ? ", added" : "") << ", heads at";
  for (HeadsAt heads : {call_.q, call_.k, call_.v, call_.y}) text << ' ' << static_cast<int>(heads);
  return sha256(text.str());
}

bool CudnnAttention::read_stored(const Digest& key) {
  const std::optional<StoredCode> stored = code_store().read(key);
  if (!stored) return false;
  const CudnnUse cudnn = context_.use_cudnn(context_.stream());
  graph_ = std::make_unique<fe::graph::Graph>();
  try {
    const std::vector<uint8_t> bytes(stored->code.begin(), stored->code.end());
    if (graph_->deserialize(cudnn.handle, bytes).is_bad() ||
        graph_->get_workspace_size(workspace_bytes_).is_bad()) {
      return false;
    }
  } catch (const std::exception&) {
    return false;  // the frontend's JSON throws where it does not find what it looks for
  }
  description_ = stored->name;
  return true;
}

// What cuDNN can't write down is compiled again in the next process.
void CudnnAttention::store(const Digest& key) const {
  std::vector<uint8_t> bytes;
  if (graph_->serialize(bytes).is_bad()) return;
  code_store().write(key, {description_, std::string(bytes.begin(), bytes.end())});
}

void CudnnAttention::execute(Buffers& buffers, void* workspace, cudaStream_t stream) const {
  const CudnnUse cudnn = context_.use_cudnn(stream);
  if (auto error = graph_->execute(cudnn.handle, buffers, workspace); error.is_bad()) {
    throw_error(error, "running");
  }
}

// The frontend takes all pointers as writable, but an operation writes its results only.
void CudnnAttention::run_forward(const Arguments& a, void* workspace, cudaStream_t stream) const {
  Buffers buffers = {{kQ, const_cast<void*>(a.q)},
                     {kK, const_cast<void*>(a.k)},
                     {kV, const_cast<void*>(a.v)},
                     {kY, a.y},
                     {kLogSums, a.log_sums}};
  if (call_.adds()) buffers[kAdded] = const_cast<void*>(a.added);
  mark_written({{a.y, bytes(call_.queries, call_.value_size)},
                {a.log_sums, log_sum_bytes()},
                {workspace, workspace_bytes_}},
               stream);
  execute(buffers, workspace, stream);
}

void CudnnAttention::run_backward(const Arguments& a, void* workspace, cudaStream_t stream) const {
  Buffers buffers = {{kQ, const_cast<void*>(a.q)},
                     {kK, const_cast<void*>(a.k)},
                     {kV, const_cast<void*>(a.v)},
                     {kY, a.y},
                     {kGy, const_cast<void*>(a.gy)},
                     {kLogSums, a.log_sums},
                     {kDq, a.dq},
                     {kDk, a.dk},
                     {kDv, a.dv}};
  if (call_.adds()) buffers[kAdded] = const_cast<void*>(a.added);
  mark_written({{a.dq, bytes(call_.queries, call_.size)},
                {a.dk, bytes(call_.keys, call_.size)},
                {a.dv, bytes(call_.keys, call_.value_size)},
                {workspace, workspace_bytes_}},
               stream);
  execute(buffers, workspace, stream);
}

int64_t align(int64_t bytes) { return ceil_div(bytes, 256) * 256; }

// The parts of a kernel's workspace. What belongs to a bias or a mask is empty without one.
struct Workspace {
  explicit Workspace(const AttentionCall& call, int64_t log_sum_bytes, int64_t library_bytes) {
    log_sums = add(log_sum_bytes);
    const auto item = static_cast<int64_t>(itemsize(call.dtype));
    if (call.adds()) {
      added = add(call.added_rows() * call.keys * item);
      is_blind = add(call.added_rows());
    }
    if (call.mask) q = add(call.batch * call.heads * call.queries * call.size * item);
    library = add(library_bytes);
  }
  int64_t add(int64_t bytes) {
    const int64_t place = size;
    size += align(bytes);
    return place;
  }

  int64_t log_sums = 0, added = 0, is_blind = 0, q = 0, library = 0;
  int64_t size = 0;
};

// Queries, keys and values, and what is added to products in the form that cuDNN takes.
CudnnAttention::Arguments first_arguments(const AttentionCall& call,
                                          const AttentionArguments& arguments,
                                          const Workspace& places, const KernelArgs& args) {
  CudnnAttention::Arguments a;
  a.q = args.inputs[arguments.q];
  a.k = args.inputs[arguments.k];
  a.v = args.inputs[arguments.v];
  if (!call.adds()) return a;
  const auto stream = static_cast<cudaStream_t>(args.stream);
  char* workspace = static_cast<char*>(args.workspace);
  bool* is_blind = reinterpret_cast<bool*>(workspace + places.is_blind);
  const void* bias = call.bias ? args.inputs[arguments.bias] : nullptr;
  const void* mask = call.mask ? args.inputs[arguments.mask] : nullptr;
  launch_added(call, bias, static_cast<const bool*>(mask), workspace + places.added, is_blind,
               stream);
  a.added = workspace + places.added;
  if (!call.mask) return a;
  launch_blind_zeros(call, a.q, is_blind, workspace + places.q, stream);
  a.q = workspace + places.q;
  return a;
}

// Equal calls, such as the blocks of a network have, share what cuDNN built: that takes 40 ms each
// time, and half a second or more where it has to compile a kernel. Its plans don't change once
// they are built, and what a run writes is in its workspace.
std::shared_ptr<const CudnnAttention> prepare_attention(const AttentionCall& call,
                                                        bool (CudnnAttention::*prepare)()) {
  static std::mutex mutex;
  static std::map<std::tuple<int, bool, AttentionCall>, std::weak_ptr<const CudnnAttention>> known;
  const bool is_forward = prepare == &CudnnAttention::prepare_forward;
  const std::tuple key(Context::current().index(), is_forward, call);
  const std::lock_guard lock(mutex);
  if (auto attention = known[key].lock()) return attention;
  auto attention = std::make_shared<CudnnAttention>(call);
  if (!(*attention.*prepare)()) return nullptr;
  known[key] = attention;
  return attention;
}

}  // namespace

std::unique_ptr<Kernel> plan_attention_cudnn(const AttentionCall& call,
                                             const AttentionArguments& arguments) {
  const auto attention = prepare_attention(call, &CudnnAttention::prepare_forward);
  if (attention == nullptr) return nullptr;
  // There is room for the logarithms where nobody reads them.
  const Workspace places(call, attention->log_sum_bytes(), attention->workspace_bytes());
  return make_kernel(
      attention->description(),
      [=](const KernelArgs& args) {
        CudnnAttention::Arguments a = first_arguments(call, arguments, places, args);
        char* workspace = static_cast<char*>(args.workspace);
        a.y = args.outputs[0];
        a.log_sums = args.outputs[1] != nullptr ? args.outputs[1] : workspace + places.log_sums;
        attention->run_forward(a, workspace + places.library,
                               static_cast<cudaStream_t>(args.stream));
      },
      places.size);
}

std::unique_ptr<Kernel> plan_attention_grad_cudnn(const AttentionCall& call,
                                                  const AttentionArguments& arguments) {
  const auto attention = prepare_attention(call, &CudnnAttention::prepare_backward);
  if (attention == nullptr) return nullptr;
  const Workspace places(call, 0, attention->workspace_bytes());
  return make_kernel(
      attention->description(),
      [=](const KernelArgs& args) {
        const auto stream = static_cast<cudaStream_t>(args.stream);
        CudnnAttention::Arguments a = first_arguments(call, arguments, places, args);
        char* workspace = static_cast<char*>(args.workspace);
        a.gy = args.inputs[arguments.gy];
        a.y = const_cast<void*>(args.inputs[arguments.y]);
        a.log_sums = const_cast<void*>(args.inputs[arguments.log_sums]);
        a.dq = args.outputs[0];
        a.dk = args.outputs[1];
        a.dv = args.outputs[2];
        attention->run_backward(a, workspace + places.library, stream);
        if (!call.mask) return;
        launch_blind_zeros(call, a.dq, reinterpret_cast<bool*>(workspace + places.is_blind), a.dq,
                           stream);
      },
      places.size);
}

}  // namespace kerascnn::cuda
