// Every op there is. Each name stands for one OpDef, `op_<name>`, defined in core/ops/.
#pragma once

// clang-format off
#define KERASCNN_OP_LIST(OP)                                                                      \
  /* arithmetic with broadcasting (binary.cpp) */                                                 \
  OP(add) OP(subtract) OP(multiply) OP(divide) OP(power) OP(maximum) OP(minimum)                  \
  OP(arctan2) OP(mod) OP(floor_divide) OP(bitwise_and) OP(bitwise_or) OP(bitwise_xor)             \
  OP(left_shift) OP(right_shift)                                                                  \
  /* comparison with broadcasting, bool results (compare.cpp) */                                  \
  OP(equal) OP(not_equal) OP(less) OP(less_equal) OP(greater) OP(greater_equal)                   \
  OP(logical_and) OP(logical_or) OP(logical_not) OP(where)                                        \
  /* functions of one element (unary.cpp) */                                                      \
  OP(negative) OP(absolute) OP(sign) OP(reciprocal) OP(square) OP(sqrt) OP(rsqrt)                 \
  OP(exp) OP(log) OP(log1p) OP(floor) OP(clip) OP(isfinite) OP(cast)                              \
  OP(sin) OP(cos) OP(tan) OP(arcsin) OP(arccos) OP(arctan) OP(sinh) OP(cosh) OP(arcsinh)          \
  OP(arccosh) OP(arctanh) OP(expm1) OP(erf) OP(erfc) OP(erfinv) OP(ceil) OP(round)                \
  /* activations and their gradients (activation.cpp) */                                          \
  OP(relu) OP(leaky_relu) OP(clipped_relu) OP(elu) OP(sigmoid) OP(tanh) OP(gelu) OP(silu)         \
  OP(softplus)                                                                                    \
  OP(relu_grad) OP(leaky_relu_grad) OP(clipped_relu_grad) OP(elu_grad) OP(sigmoid_grad)           \
  OP(tanh_grad) OP(gelu_grad) OP(silu_grad) OP(softplus_grad)                                     \
  OP(softmax) OP(log_softmax) OP(softmax_grad) OP(log_softmax_grad)                               \
  /* what the fusion pass makes of several element functions (fused_elementwise.cpp) */           \
  OP(fused_elementwise)                                                                           \
  /* reductions (reduce.cpp) */                                                                   \
  OP(reduce_sum) OP(reduce_mean) OP(reduce_max) OP(reduce_min) OP(argmax)                         \
  /* what a pass makes of a classifier's accuracy (count_matches.cpp) */                          \
  OP(count_matches)                                                                               \
  /* order (argsort.cpp) */                                                                       \
  OP(argsort)                                                                                     \
  /* shape (shape_ops.cpp) and indexing (indexing.cpp) */                                         \
  OP(reshape) OP(transpose) OP(broadcast_to) OP(concatenate) OP(slice) OP(slice_grad)             \
  OP(gather) OP(gather_grad) OP(one_hot) OP(take_batch) OP(take_batches) OP(put_batch)            \
  OP(stop_gradient) OP(barrier)                                                                   \
  /* linear algebra (matmul.cpp, dense.cpp) */                                                    \
  OP(matmul) OP(integer_matmul) OP(dense)                                                         \
  /* what passes make of a product and what follows it (fused_products.cpp) */                    \
  OP(matmul_activation_grad) OP(dense_sparse_softmax_cross_entropy) OP(dense_wgrad)               \
  OP(dense_sparse_softmax_cross_entropy_dgrad)                                                    \
  /* Fourier transforms (fft.cpp) */                                                              \
  OP(fft) OP(rfft) OP(irfft)                                                                      \
  /* convolution (conv2d.cpp) and pooling (pool2d.cpp) */                                         \
  OP(conv2d) OP(conv2d_dgrad) OP(conv2d_wgrad)                                                    \
  OP(max_pool2d) OP(max_pool2d_grad) OP(avg_pool2d) OP(avg_pool2d_grad)                           \
  /* what a pass makes of a convolution and the pooling after it (conv2d_max_pool2d.cpp) */       \
  OP(conv2d_max_pool2d) OP(conv2d_max_pool2d_dgrad) OP(conv2d_max_pool2d_wgrad)                   \
  /* normalization (batch_norm.cpp) */                                                            \
  OP(batch_norm) OP(batch_norm_grad)                                                              \
  /* losses (cross_entropy.cpp) */                                                                \
  OP(sparse_cross_entropy) OP(sparse_cross_entropy_grad)                                          \
  OP(sparse_softmax_cross_entropy) OP(sparse_softmax_cross_entropy_grad)                          \
  /* alignment of sequences (ctc_loss.cpp) */                                                     \
  OP(ctc_loss)                                                                                    \
  /* layers with a state, over whole sequences (recurrent.cpp) */                                 \
  OP(lstm) OP(lstm_grad) OP(gru) OP(gru_grad)                                                     \
  /* random numbers (random.cpp) */                                                               \
  OP(random_uniform) OP(random_normal) OP(random_bernoulli) OP(dropout) OP(random_advance)        \
  /* optimizer updates, one call for all parameters (optimizer_updates.cpp) */                    \
  OP(sgd_update) OP(adam_update)                                                                  \
  /* ops that own graphs (loop.cpp) */                                                            \
  OP(loop) OP(switch)                                                                             \
  /* what users define while a program runs (custom_op.cpp) */                                    \
  OP(custom_op)
// clang-format on
