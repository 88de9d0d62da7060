#include "core/backend/cpu/kernel_table.h"

#include "core/backend/cpu/kernels.h"

namespace kerascnn {

std::span<const KernelTableRow> cpu_kernel_table() {
#define ROW(op) {#op, cpu::plan_##op},
  static constexpr KernelTableRow rows[] = {
      // binary.cpp
      ROW(add) ROW(subtract) ROW(multiply) ROW(divide) ROW(power) ROW(maximum) ROW(minimum)
          ROW(arctan2) ROW(mod) ROW(floor_divide) ROW(bitwise_and) ROW(bitwise_or) ROW(bitwise_xor)
              ROW(left_shift) ROW(right_shift)
      // compare.cpp
      ROW(equal) ROW(not_equal) ROW(less) ROW(less_equal) ROW(greater) ROW(greater_equal)
          ROW(logical_and) ROW(logical_or) ROW(logical_not) ROW(where)
      // unary.cpp
      ROW(negative) ROW(absolute) ROW(sign) ROW(reciprocal) ROW(square) ROW(sqrt) ROW(rsqrt)
          ROW(exp) ROW(log) ROW(log1p) ROW(floor) ROW(clip) ROW(isfinite) ROW(cast) ROW(sin)
              ROW(cos) ROW(tan) ROW(arcsin) ROW(arccos) ROW(arctan) ROW(sinh) ROW(cosh) ROW(arcsinh)
                  ROW(arccosh) ROW(arctanh) ROW(expm1) ROW(erf) ROW(erfc) ROW(erfinv) ROW(ceil)
                      ROW(round)
      // activation.cpp
      ROW(relu) ROW(leaky_relu) ROW(clipped_relu) ROW(elu) ROW(sigmoid) ROW(tanh) ROW(gelu)
          ROW(silu) ROW(softplus) ROW(relu_grad) ROW(leaky_relu_grad) ROW(clipped_relu_grad)
              ROW(elu_grad) ROW(sigmoid_grad) ROW(tanh_grad) ROW(gelu_grad) ROW(silu_grad)
                  ROW(softplus_grad)
      // softmax.cpp
      ROW(softmax) ROW(log_softmax) ROW(softmax_grad) ROW(log_softmax_grad)
      // fused_elementwise.cpp
      ROW(fused_elementwise)
      // reduce.cpp
      ROW(reduce_sum) ROW(reduce_mean) ROW(reduce_max) ROW(reduce_min) ROW(argmax)
      // count_matches.cpp
      ROW(count_matches)
      // argsort.cpp
      ROW(argsort)
      // shape_ops.cpp, indexing.cpp
      ROW(transpose) ROW(broadcast_to) ROW(concatenate) ROW(slice) ROW(slice_grad) ROW(gather)
          ROW(gather_grad) ROW(one_hot) ROW(take_batch) ROW(take_batches) ROW(put_batch)
      // matmul.cpp, integer_matmul.cpp, dense.cpp
      ROW(matmul) ROW(integer_matmul) ROW(dense)
      // fused_products.cpp
      ROW(matmul_activation_grad) ROW(dense_sparse_softmax_cross_entropy) ROW(dense_wgrad)
          ROW(dense_sparse_softmax_cross_entropy_dgrad)
      // fft.cpp
      ROW(fft) ROW(rfft) ROW(irfft)
      // conv2d.cpp, pool2d.cpp
      ROW(conv2d) ROW(conv2d_dgrad) ROW(conv2d_wgrad) ROW(max_pool2d) ROW(max_pool2d_grad)
          ROW(avg_pool2d) ROW(avg_pool2d_grad)
      // conv2d_max_pool2d.cpp
      ROW(conv2d_max_pool2d) ROW(conv2d_max_pool2d_dgrad) ROW(conv2d_max_pool2d_wgrad)
      // batch_norm.cpp
      ROW(batch_norm) ROW(batch_norm_grad)
      // cross_entropy.cpp
      ROW(sparse_cross_entropy) ROW(sparse_cross_entropy_grad) ROW(sparse_softmax_cross_entropy)
          ROW(sparse_softmax_cross_entropy_grad)
      // ctc_loss.cpp
      ROW(ctc_loss)
      // recurrent.cpp
      ROW(lstm) ROW(lstm_grad) ROW(gru) ROW(gru_grad)
      // random.cpp
      ROW(random_uniform) ROW(random_normal) ROW(random_bernoulli) ROW(dropout) ROW(random_advance)
      // optimizer_updates.cpp
      ROW(sgd_update) ROW(adam_update)
      // loop.cpp
      ROW(loop) ROW(switch)
      // custom_op.cpp
      ROW(custom_op)};
#undef ROW
  return rows;
}

}  // namespace kerascnn
