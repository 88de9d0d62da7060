// Attention in float32, for which cuDNN has no kernel: two products and the softmax between them.
// What is won is that nothing is transposed: a product reads the heads of its operands where they
// are.
#include <utility>
#include <vector>

#include "core/backend/cuda/attention/attention.h"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/products/cublaslt_gemm.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/ops/definitions.h"

namespace kerascnn::cuda {
namespace {

constexpr int64_t kItem = sizeof(float);

// How a tensor (batch, heads, length, size) is walked through, in elements.
struct HeadStrides {
  int64_t batch = 0, head = 0, row = 0;
};

HeadStrides strides_of(HeadsAt at, int64_t heads, int64_t length, int64_t size) {
  if (at == HeadsAt::Front) return {heads * length * size, length * size, size};
  return {length * heads * size, size, heads * size};
}

// One of batch and heads is the batch of each product, which has one stride; products go over the
// other one.
struct Walk {
  int64_t launches = 0, batch = 0;
  bool over_heads = false;

  Walk(int64_t batches, int64_t heads)
      : launches(heads <= batches ? heads : batches),
        batch(heads <= batches ? batches : heads),
        over_heads(heads <= batches) {}

  MatrixStrides strides(const HeadStrides& s) const {
    return {.row = s.row, .matrix = over_heads ? s.batch : s.head, .start = step(s)};
  }
  int64_t step(const HeadStrides& s) const { return over_heads ? s.head : s.batch; }
};

const float* advance(const void* data, int64_t elements) {
  return static_cast<const float*>(data) + elements;
}
float* advance(void* data, int64_t elements) { return static_cast<float*>(data) + elements; }

}  // namespace

std::unique_ptr<Kernel> plan_attention_products(const AttentionCall& call,
                                                const AttentionArguments& arguments,
                                                bool allow_tf32) {
  const HeadStrides q = strides_of(call.q, call.heads, call.queries, call.size);
  const HeadStrides k = strides_of(call.k, call.heads, call.keys, call.size);
  const HeadStrides v = strides_of(call.v, call.heads, call.keys, call.value_size);
  const HeadStrides y = strides_of(call.y, call.heads, call.queries, call.value_size);
  const HeadStrides shares = strides_of(HeadsAt::Front, call.heads, call.queries, call.keys);
  const Walk walk(call.batch, call.heads);
  const GemmShape first{.batch = walk.batch,
                        .m = call.queries,
                        .n = call.keys,
                        .k = call.size,
                        .transpose_b = true,
                        .a = walk.strides(q),
                        .b = walk.strides(k),
                        .c = walk.strides(shares)};
  const GemmShape second{.batch = walk.batch,
                         .m = call.queries,
                         .n = call.value_size,
                         .k = call.keys,
                         .a = walk.strides(shares),
                         .b = walk.strides(v),
                         .c = walk.strides(y)};
  const auto plan = [&](const GemmShape& shape) {
    return std::make_shared<CublasLtGemm>("attention", Context::current(), call.dtype, shape,
                                          GemmEpilogue::None, allow_tf32);
  };
  const auto logits = plan(first), values = plan(second);
  const Attributes rows = {{"axis", int64_t{-1}}};
  const TensorSpec lines{call.dtype, {call.batch * call.heads * call.queries, call.keys}};
  const std::vector<TensorSpec> all_lines = {lines};
  const std::shared_ptr<Kernel> softmax =
      plan_softmax(PlanRequest{op_softmax, rows, all_lines, all_lines});
  // The shares come first in the workspace, then what the products need, one after the other.
  const int64_t share_bytes = ceil_div(num_elements(lines.shape) * kItem, int64_t{256}) * 256;
  return make_kernel(
      "two products of " + logits->description(),
      [=, scale = call.scale](const KernelArgs& args) {
        const auto stream = static_cast<cudaStream_t>(args.stream);
        void* const shared = args.workspace;
        void* const workspace = static_cast<char*>(shared) + share_bytes;
        for (int64_t i = 0; i < walk.launches; ++i) {
          logits->run(advance(args.inputs[arguments.q], i * walk.step(q)),
                      advance(args.inputs[arguments.k], i * walk.step(k)), nullptr,
                      advance(shared, i * walk.step(shares)), workspace, stream, scale);
        }
        const void* const in[] = {shared};
        void* const out[] = {shared};
        softmax->run({.inputs = in, .outputs = out, .stream = args.stream});
        for (int64_t i = 0; i < walk.launches; ++i) {
          values->run(advance(std::as_const(shared), i * walk.step(shares)),
                      advance(args.inputs[arguments.v], i * walk.step(v)), nullptr,
                      advance(args.outputs[0], i * walk.step(y)), workspace, stream);
        }
      },
      share_bytes + std::max(logits->workspace_bytes(), values->workspace_bytes()));
}

}  // namespace kerascnn::cuda
