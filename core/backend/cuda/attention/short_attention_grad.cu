// Plans the gradients of attention with few keys by warpgroups, for Hopper alone.
#include <algorithm>
#include <limits>

#include "core/backend/cuda/attention/attention.h"
#include "core/backend/cuda/attention/short_attention_grad.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/shared_memory.h"
#include "core/backend/cuda/runtime/tensor_map.h"

namespace kerascnn::cuda {
namespace {

bool fits(const AttentionCall& call) {
  constexpr int64_t kMost = std::numeric_limits<int>::max() / 2;
  const bool is_half = call.dtype == DType::Float16 || call.dtype == DType::BFloat16;
  const int64_t heads = call.batch * call.heads;
  return is_half && call.size == kShortSize && call.value_size == kShortSize && !call.adds() &&
         !call.is_causal && call.keys <= kShortMostGroups * kShortKeys && call.keys > 0 &&
         call.queries > 0 && heads * ceil_div(call.queries, kShortQueries) <= kMost &&
         Context::current().compute_capability() == 90;
}

ShortTensor tensor_of(HeadsAt at, int64_t heads, int64_t length) {
  if (at == HeadsAt::Front) return {length * kShortSize, kShortSize, false};
  return {kShortSize, heads * kShortSize, true};
}

template <typename Half>
std::unique_ptr<Kernel> plan(const AttentionCall& call, const AttentionArguments& at) {
  const Context& context = Context::current();
  const auto narrow = [](int64_t n) { return static_cast<int>(n); };
  ShortAttention a{};
  a.heads = narrow(call.heads);
  a.queries = narrow(call.queries);
  a.keys = narrow(call.keys);
  a.groups = narrow(ceil_div(call.keys, kShortKeys));
  a.chunks = narrow(ceil_div(call.queries, kShortQueries));
  a.total = narrow(call.batch * call.heads);
  a.scale = static_cast<float>(call.scale);
  a.q = tensor_of(call.q, call.heads, call.queries);
  a.k = tensor_of(call.k, call.heads, call.keys);
  a.v = tensor_of(call.v, call.heads, call.keys);
  a.y = tensor_of(call.y, call.heads, call.queries);
  const int bytes = ShortMemory(a).bytes;
  if (bytes > static_cast<int64_t>(context.properties().sharedMemPerBlockOptin) ||
      !can_describe_boxes()) {
    return nullptr;
  }
  const auto kernel = short_attention_grad_kernel<Half>;
  allow_most_shared_memory(kernel);
  const int blocks = std::min(a.total, context.multiprocessors());
  return make_early_kernel(
      "kerascnn short_attention_grad",
      [=, dtype = call.dtype, batch = narrow(call.batch)](const KernelArgs& args) {
        // Boxes of so many places of a head.
        const auto describe = [&](size_t input, const ShortTensor& tensor, int length, int places) {
          std::array<int, 4> extents = {kShortSize, length, a.heads, batch};
          std::array<int, 4> box = {kShortSize, places, 1, 1};
          if (tensor.heads_behind) {
            std::swap(extents[1], extents[2]);
            std::swap(box[1], box[2]);
          }
          return describe_boxes("attention", dtype, args.inputs[input], extents, box);
        };
        const int keys = a.groups * kShortKeys;
        const ShortMaps maps = {
            describe(at.q, a.q, a.queries, kShortQueries), describe(at.k, a.k, a.keys, keys),
            describe(at.v, a.v, a.keys, keys), describe(at.y, a.y, a.queries, kShortQueries),
            describe(at.gy, a.y, a.queries, kShortQueries)};
        const ShortGradients<Half> gradients = {output<Half>(args, 0), output<Half>(args, 1),
                                                output<Half>(args, 2)};
        kernel<<<blocks, a.threads(), bytes, static_cast<cudaStream_t>(args.stream)>>>(
            maps, input<float>(args, at.log_sums), gradients, a);
        check_launch("short_attention_grad");
      });
}

}  // namespace

std::unique_ptr<Kernel> plan_attention_grad_short(const AttentionCall& call,
                                                  const AttentionArguments& arguments) {
  if (!fits(call)) return nullptr;
  return call.dtype == DType::Float16 ? plan<__half>(call, arguments)
                                      : plan<__nv_bfloat16>(call, arguments);
}

}  // namespace kerascnn::cuda
