// What the small products do with their sums. An end gets four neighbouring columns of a row at a
// time. Eight neighbouring threads, at multiples of eight, have a row's 32 columns and call it
// together. An end with `store_column_sum` also gets the sums over the rows of the second factor,
// each of them once.
#pragma once

#include <cstdint>

#include "core/backend/cuda/elementwise/activation.cuh"
#include "core/backend/cuda/normalization/cross_entropy.cuh"

namespace kerascnn::cuda {

// A product of (m, k) and (k, n) matrices.
struct ProductShape {
  int m, n, k;
  bool vector_y;  // rows of the result are multiples of 16 bytes
};

__device__ __forceinline__ void store_columns(float* __restrict__ y, const ProductShape& p, int row,
                                              int column, const float (&values)[4]) {
  float* target = y + row * p.n + column;
  if (p.vector_y) {
    if (column < p.n) {
      *reinterpret_cast<float4*>(target) = {values[0], values[1], values[2], values[3]};
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (column + j < p.n) target[j] = values[j];
  }
}

__device__ __forceinline__ void add_bias(float (&values)[4], const float* __restrict__ bias,
                                         const ProductShape& p, int column) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    values[j] += bias != nullptr && column + j < p.n ? bias[column + j] : 0.0f;
  }
}

// activation(sum + bias). The rare activations would be most of the kernel's code, in the way of
// the rest, so they have a kernel of their own (kAny).
template <bool kAny>
struct ActivationEnd {
  float* y;
  const float* bias;  // null where there is none
  Activation activation;
  float alpha;

  __device__ __forceinline__ void operator()(const ProductShape& p, int row, int column,
                                             float4 sum) const {
    if (row >= p.m) return;
    float values[4] = {sum.x, sum.y, sum.z, sum.w};
    add_bias(values, bias, p, column);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (kAny) {
        values[j] = activate(activation, values[j], alpha);
      } else if (activation == Activation::Relu) {
        values[j] = element::relu(values[j]);
      }
    }
    store_columns(y, p, row, column, values);
  }
};

// The sum is a gradient behind an activation with these outputs; y gets the gradient before it.
template <bool kAny>
struct ActivationGradientEnd {
  float* y;
  const float* outputs;
  Activation activation;
  float alpha;

  __device__ __forceinline__ void operator()(const ProductShape& p, int row, int column,
                                             float4 sum) const {
    if (row >= p.m) return;
    float values[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (column + j >= p.n) break;
      const float output = outputs[row * p.n + column + j];
      if constexpr (kAny) {
        values[j] = activation_gradient(activation, values[j], output, alpha);
      } else if (activation == Activation::Relu) {
        values[j] = element::relu_grad(values[j], output);
      }
    }
    store_columns(y, p, row, column, values);
  }
};

// The gradients of a dense layer's kernel and bias.
struct KernelAndBiasEnd {
  float* kernel;
  float* bias;

  __device__ __forceinline__ void operator()(const ProductShape& p, int row, int column,
                                             float4 sum) const {
    if (row < p.m) store_columns(kernel, p, row, column, {sum.x, sum.y, sum.z, sum.w});
  }

  __device__ __forceinline__ void store_column_sum(const ProductShape& p, int column,
                                                   float sum) const {
    if (column < p.n) bias[column] = sum;
  }
};

// The row's sums, up to 32, are logits: softmax, its cross-entropy with the row's label, and the
// gradient of the logits, as sparse_softmax_cross_entropy has them.
template <typename Label>
struct CrossEntropyEnd {
  const float* bias;  // null where there is none
  const Label* labels;
  const float* gy;
  float* loss;
  float* probabilities;
  float* gradient;
  CrossEntropy kind;

  __device__ __forceinline__ void operator()(const ProductShape& p, int row, int column,
                                             float4 sum) const {
    if (row >= p.m) return;
    const int64_t label = static_cast<int64_t>(labels[row]);
    const float g = gy[row];
    float logits[4] = {sum.x, sum.y, sum.z, sum.w};
    add_bias(logits, bias, p, column);
    const CrossEntropyColumns result = kind(logits, column, p.n, label, g);
    if (column == 0) loss[row] = result.loss;
    store_columns(probabilities, p, row, column, result.probabilities);
    store_columns(gradient, p, row, column, result.slopes);
  }
};

}  // namespace kerascnn::cuda
