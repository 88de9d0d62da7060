// Every op there is. Each name stands for one OpDef, `op_<name>`, defined in core/ops/, and for one
// function `plan_<name>` of each backend, unless the op is a view or `fused`.
//
// OP takes the name and may be given more: #define OP(name, ...).
#pragma once

#include "core/ops/element_ops.h"

// clang-format off
// Output 0 is the memory of input 0: no kernel runs (shape_ops.cpp).
#define KERASCNN_VIEW_OP_LIST(OP) OP(reshape) OP(stop_gradient) OP(barrier)

#define KERASCNN_KERNEL_OP_LIST(OP)                                                               \
  /* functions of single elements, activations among them (element_ops.h lists the ops;           \
     binary.cpp, compare.cpp, unary.cpp and activation.cpp define them) */                        \
  KERASCNN_ELEMENT_OP_LIST(OP)                                                                    \
  /* normalization along an axis (activation.cpp) */                                              \
  OP(softmax) OP(log_softmax) OP(softmax_grad) OP(log_softmax_grad)                               \
  /* reductions (reduce.cpp) */                                                                   \
  OP(reduce_sum) OP(reduce_mean) OP(reduce_max) OP(reduce_min) OP(argmax)                         \
  /* order (argsort.cpp) */                                                                       \
  OP(argsort)                                                                                     \
  /* shape (shape_ops.cpp) and indexing (indexing.cpp) */                                         \
  OP(transpose) OP(broadcast_to) OP(concatenate) OP(slice) OP(slice_grad)                         \
  OP(gather) OP(gather_grad) OP(one_hot) OP(take_batch) OP(put_batch)            \
  /* linear algebra (matmul.cpp, dense.cpp) */                                                    \
  OP(matmul) OP(integer_matmul) OP(dense)                                                         \
  /* Fourier transforms (fft.cpp) */                                                              \
  OP(fft) OP(rfft) OP(irfft)                                                                      \
  /* convolution (conv2d.cpp) and pooling (pool2d.cpp) */                                         \
  OP(conv2d) OP(conv2d_dgrad) OP(conv2d_wgrad)                                                    \
  OP(max_pool2d) OP(max_pool2d_grad) OP(avg_pool2d) OP(avg_pool2d_grad)                           \
  /* images of another size (resize2d.cpp) */                                                     \
  OP(resize2d) OP(resize2d_grad)                                                                  \
  /* normalization (batch_norm.cpp) */                                                            \
  OP(batch_norm) OP(batch_norm_grad) OP(column_moments)                                           \
  /* losses (cross_entropy.cpp) */                                                                \
  OP(sparse_cross_entropy) OP(sparse_cross_entropy_grad)                                          \
  OP(sparse_softmax_cross_entropy) OP(sparse_softmax_cross_entropy_grad)                          \
  /* alignment of sequences (ctc_loss.cpp) */                                                     \
  OP(ctc_loss)                                                                                    \
  /* layers with a state, over whole sequences (recurrent.cpp) */                                 \
  OP(lstm) OP(lstm_grad) OP(gru) OP(gru_grad)                                                     \
  /* random numbers (random.cpp) */                                                               \
  OP(random_uniform) OP(random_normal) OP(random_bernoulli) OP(dropout) OP(random_advance)        \
  /* what a pass makes of the casts of weights (cast_all.cpp) */                                  \
  OP(cast_all)                                                                                    \
  /* optimizer updates, one call for all parameters (optimizer_updates.cpp) */                    \
  OP(sgd_update) OP(adam_update)                                                                  \
  /* sums over processes (all_reduce.cpp) */                                                      \
  OP(all_reduce)                                                                                  \
  /* tensors that one process each owns (owned_tensors.cpp) */                                    \
  OP(reduce_to_owners) OP(broadcast_from_owners)                                                  \
  /* ops that own graphs (core/graph/) */                                                          \
  OP(loop) OP(switch)                                                                             \
  /* what a pass makes of memory-bound nodes (core/graph/region.cpp) */                           \
  OP(region)                                                                                      \
  /* what users define while a program runs (custom_op.cpp) */                                    \
  OP(custom_op)

// What a pass makes of nodes that one kernel of a device stands for. The kernel comes with the node
// (core/graph/fusion.cpp).
#define KERASCNN_PASS_OP_LIST(OP) OP(fused)

#define KERASCNN_OP_LIST(OP) \
  KERASCNN_VIEW_OP_LIST(OP) KERASCNN_KERNEL_OP_LIST(OP) KERASCNN_PASS_OP_LIST(OP)
// clang-format on
