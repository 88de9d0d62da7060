// Matrix products in plain C++ for float and double. They run where neither oneDNN nor a vector
// kernel fits, and tests compare with the float64 ones.
#pragma once

#include <algorithm>
#include <cstdint>

namespace kerascnn::cpu {

// A matrix in memory: element (i, j) is at data[i * row_step + j * column_step].
template <typename T>
struct MatrixView {
  const T* data;
  int64_t row_step;
  int64_t column_step;

  const T& at(int64_t i, int64_t j) const { return data[i * row_step + j * column_step]; }
};

// c (m, n) = a (m, k) b (k, n), or += where `accumulate`; rows of c are c_step apart. It runs on a
// single thread. Blocks of b are packed, so that the inner loop runs along contiguous memory
// whatever b's steps are.
template <typename T>
void gemm(int64_t m, int64_t n, int64_t k, MatrixView<T> a, MatrixView<T> b, T* c, int64_t c_step,
          bool accumulate) {
  constexpr int64_t kColumns = 32;
  constexpr int64_t kDepth = 128;
  constexpr int64_t kRows = 4;
  T packed[kDepth * kColumns];
  if (k == 0 && !accumulate) {
    for (int64_t i = 0; i < m; ++i) std::fill(c + i * c_step, c + i * c_step + n, T(0));
  }
  for (int64_t column = 0; column < n; column += kColumns) {
    const int64_t width = std::min(kColumns, n - column);
    for (int64_t depth = 0; depth < k; depth += kDepth) {
      const int64_t length = std::min(kDepth, k - depth);
      for (int64_t p = 0; p < length; ++p) {
        for (int64_t j = 0; j < width; ++j) packed[p * kColumns + j] = b.at(depth + p, column + j);
        std::fill(packed + p * kColumns + width, packed + (p + 1) * kColumns, T(0));
      }
      const bool add = accumulate || depth > 0;
      for (int64_t row = 0; row < m; row += kRows) {
        const int64_t rows = std::min(kRows, m - row);
        T sums[kRows][kColumns] = {};
        for (int64_t p = 0; p < length; ++p) {
          for (int64_t i = 0; i < rows; ++i) {
            const T factor = a.at(row + i, depth + p);
            for (int64_t j = 0; j < kColumns; ++j) {
              sums[i][j] += factor * packed[p * kColumns + j];
            }
          }
        }
        for (int64_t i = 0; i < rows; ++i) {
          T* to = c + (row + i) * c_step + column;
          for (int64_t j = 0; j < width; ++j) to[j] = add ? to[j] + sums[i][j] : sums[i][j];
        }
      }
    }
  }
}

}  // namespace kerascnn::cpu
