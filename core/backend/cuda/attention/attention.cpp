// Which calls of attention run in one kernel.
#include "core/backend/cuda/attention/attention.h"

#include <optional>

#include "core/backend/cuda/fusions/fusions.h"

namespace kerascnn::cuda {
namespace {

// cuDNN compiles a kernel for half a second when the first program of a process asks for it. Below
// this number of products separate kernels take a few microseconds each.
constexpr int64_t kLeastProducts = int64_t{1} << 19;

HeadsAt swapped_heads(const Match& match, std::string_view transpose) {
  return match.has(transpose) ? HeadsAt::Back : HeadsAt::Front;
}

// Does the mask hide the keys behind each query, and no others? Whether it does is known of
// constants only.
bool is_causal_mask(const Match& match) {
  const Tensor* mask = match.constant_tensor("mask");
  const Shape& shares = match.spec("shares").shape;
  const int64_t queries = shares[2], keys = shares[3];
  if (mask == nullptr || mask->dtype() != DType::Bool || mask->size() != queries * keys) {
    return false;
  }
  // Its last two axes are those of the products.
  const Shape& shape = match.spec("mask").shape;
  if (shape.size() < 2 || shape[shape.size() - 2] != queries || shape.back() != keys) return false;
  std::vector<uint8_t> sees(static_cast<size_t>(mask->size()));
  mask->copy_to_host(sees.data());
  for (int64_t i = 0; i < queries; ++i) {
    for (int64_t j = 0; j < keys; ++j) {
      if ((sees[static_cast<size_t>(i * keys + j)] != 0) != (j <= i)) return false;
    }
  }
  return true;
}

// Where the input's element for each product is; nothing where it does not broadcast to them.
std::optional<ProductStrides> product_strides(const Match& match, std::string_view input,
                                              DType dtype) {
  const TensorSpec& spec = match.spec(input);
  const Shape& shares = match.spec("shares").shape;
  if (spec.dtype != dtype || spec.shape.size() > shares.size()) return std::nullopt;
  ProductStrides strides{};
  int64_t stride = 1;
  for (size_t i = shares.size(), j = spec.shape.size(); j-- > 0;) {
    --i;
    if (spec.shape[j] != 1) strides[i] = stride;
    stride *= spec.shape[j];
  }
  return strides;
}

// Is what hidden products are replaced by so low that its share is 0?
bool hides(const Match& match) {
  const std::optional<double> lowest = match.constant("lowest");
  return lowest && *lowest < -1e4;
}

// What the pattern's first part says; nothing where no kernel computes it.
std::optional<AttentionCall> attention_call(const Match& match) {
  AttentionCall call;
  call.dtype = match.spec("q").dtype;
  const bool is_half = call.dtype == DType::Float16 || call.dtype == DType::BFloat16;
  if (!is_half && call.dtype != DType::Float32) return std::nullopt;
  call.q = swapped_heads(match, "queries");
  call.v = swapped_heads(match, "values");
  const std::vector<int64_t>& turn = match.node("keys").attributes.get_ints("permutation");
  call.k = turn[1] == 2 ? HeadsAt::Back : HeadsAt::Front;
  const Shape& q = match.spec("q").shape;
  const Shape& k = match.spec("k").shape;
  const Shape& v = match.spec("v").shape;
  if (q.size() != 4 || k.size() != 4 || v.size() != 4) return std::nullopt;
  const auto heads = [](const Shape& shape, HeadsAt at) {
    return shape[at == HeadsAt::Front ? 1 : 2];
  };
  const auto length = [](const Shape& shape, HeadsAt at) {
    return shape[at == HeadsAt::Front ? 2 : 1];
  };
  call.batch = q[0];
  call.heads = heads(q, call.q);
  call.queries = length(q, call.q);
  call.keys = length(k, call.k);
  call.size = q[3];
  call.value_size = v[3];
  // Products and masks may broadcast, and a reshape may join other axes than batch and heads.
  const Shape shares = {call.batch, call.heads, call.queries, call.keys};
  const Shape joined = {call.batch * call.heads, call.queries, call.keys};
  const Shape keys = {call.batch, call.heads, call.keys};
  const Shape& products = match.spec("products").shape;
  const bool fits = match.spec("shares").shape == shares &&
                    (products == shares || products == joined) &&
                    Shape{k[0], heads(k, call.k), length(k, call.k)} == keys && k[3] == q[3] &&
                    Shape{v[0], heads(v, call.v), length(v, call.v)} == keys;
  if (!fits || num_elements(shares) < kLeastProducts || call.size % 8 != 0 ||
      call.value_size % 8 != 0) {
    return std::nullopt;
  }
  if (match.has("scale")) {
    const std::optional<double> scale = match.constant("scale");
    if (!scale) return std::nullopt;
    call.scale = *scale;
  }
  if (match.has("bias")) {
    call.bias = product_strides(match, "bias", call.dtype);
    if (!call.bias) return std::nullopt;
  }
  if (match.has("mask")) {
    if (!hides(match)) return std::nullopt;
    call.is_causal = is_causal_mask(match);
    if (!call.is_causal) call.mask = product_strides(match, "mask", DType::Bool);
    if (!call.is_causal && !call.mask) return std::nullopt;
  }
  return call;
}

AttentionArguments attention_arguments(const Match& match) {
  AttentionArguments arguments;
  arguments.q = match.input("q");
  arguments.k = match.input("k");
  arguments.v = match.input("v");
  if (match.has("bias")) arguments.bias = match.input("bias");
  if (match.has("mask")) arguments.mask = match.input("mask");
  return arguments;
}

}  // namespace

std::unique_ptr<Kernel> plan_fused_attention(const Match& match) {
  std::optional<AttentionCall> call = attention_call(match);
  if (!call) return nullptr;
  call->y = swapped_heads(match, "result");
  const Shape y = {call->batch, call->heads, call->queries, call->value_size};
  if (match.spec("y by heads").shape != y) return nullptr;
  if (call->dtype != DType::Float32) {
    return plan_attention_cudnn(*call, attention_arguments(match));
  }
  // Without transposes the nodes one by one have one launch for each product.
  const bool transposes = call->q == HeadsAt::Back || call->k == HeadsAt::Back ||
                          call->v == HeadsAt::Back || call->y == HeadsAt::Back;
  if (!transposes || call->adds() || call->is_causal) return nullptr;
  return plan_attention_products(*call, attention_arguments(match), match.allow_tf32());
}

std::unique_ptr<Kernel> plan_fused_attention_grad(const Match& match) {
  std::optional<AttentionCall> call = attention_call(match);
  if (!call || call->dtype == DType::Float32) return nullptr;
  call->y = swapped_heads(match, "result");
  if (match.has("mask") && match.constant("zero") != 0.0) return nullptr;
  const bool fits = match.spec("dq") == match.spec("q") && match.spec("dk") == match.spec("k") &&
                    match.spec("dv") == match.spec("v") && match.spec("gy") == match.spec("y");
  if (!fits) return nullptr;
  // The result lies as the kernel of the forward pass wrote it.
  if (swapped_heads(match.giver(), "result") != call->y) return nullptr;
  AttentionArguments arguments = attention_arguments(match);
  arguments.y = match.input("y");
  arguments.log_sums = match.input("log_sums");
  arguments.gy = match.input("gy");
  if (auto kernel = plan_attention_grad_short(*call, arguments)) return kernel;
  return plan_attention_grad_cudnn(*call, arguments);
}

}  // namespace kerascnn::cuda
