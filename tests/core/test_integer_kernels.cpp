// Products of int8 matrices with every instruction set of this machine are compared with plain
// sums.
#include <random>
#include <vector>

#include "check.h"
#include "core/backend/cpu/cpu_features.h"
#include "core/backend/cpu/integer_kernels.h"

using namespace kerascnn;
using cpu::IntegerKernels;
using cpu::MatrixView;

namespace {

std::vector<const IntegerKernels*> all_kernels() {
  std::vector<const IntegerKernels*> all = {&cpu::plain::kIntegerKernels};
#ifdef KERASCNN_X86_DISPATCH
  const cpu::InstructionSet set = cpu::instruction_set();
  if (set >= cpu::InstructionSet::Avx2) all.push_back(&cpu::avx2::kIntegerKernels);
  if (set >= cpu::InstructionSet::Avx512) all.push_back(&cpu::avx512::kIntegerKernels);
#endif
  return all;
}

std::vector<int8_t> random_bytes(int64_t count, std::mt19937& random) {
  std::uniform_int_distribution<int> byte(-128, 127);
  std::vector<int8_t> bytes(count);
  for (int8_t& value : bytes) value = static_cast<int8_t>(byte(random));
  return bytes;
}

MatrixView<int8_t> view(const std::vector<int8_t>& data, int64_t rows, int64_t columns,
                        bool transposed) {
  if (transposed) return {data.data(), 1, rows};
  return {data.data(), columns, 1};
}

void check_product(const IntegerKernels& kernels, int64_t m, int64_t k, int64_t n, bool turned_a,
                   bool turned_b, std::mt19937& random) {
  const std::vector<int8_t> a_data = random_bytes(m * k, random);
  const std::vector<int8_t> b_data = random_bytes(k * n, random);
  const MatrixView<int8_t> a = view(a_data, m, k, turned_a), b = view(b_data, k, n, turned_b);
  const int64_t pairs = (k + 1) / 2, panels = (n + kernels.panel - 1) / kernels.panel;
  std::vector<uint32_t> left(m * pairs), right(panels * kernels.panel * pairs);
  kernels.pack_rows(a, k, left.data(), 0, m);
  kernels.pack_panels(b, k, n, right.data(), 0, panels);
  constexpr int32_t kUntouched = -7;
  std::vector<int32_t> c(m * n + kernels.panel, kUntouched);
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t column = panel * kernels.panel;
    kernels.multiply(left.data(), right.data() + column * pairs, m,
                     std::min(kernels.panel, n - column), pairs, c.data() + column, n);
  }
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      int32_t sum = 0;
      for (int64_t x = 0; x < k; ++x) sum += a.at(i, x) * b.at(x, j);
      CHECK_EQUAL(c[i * n + j], sum);
    }
  }
  for (int64_t i = m * n; i < static_cast<int64_t>(c.size()); ++i) CHECK_EQUAL(c[i], kUntouched);
}

}  // namespace

TEST(integer_products_are_exact) {
  std::mt19937 random(std::random_device{}());
  const int64_t sizes[][3] = {{1, 1, 1},   {3, 7, 5}, {37, 129, 43}, {96, 64, 33},
                              {13, 1, 70}, {2, 0, 3}, {7, 255, 32}};
  for (const IntegerKernels* kernels : all_kernels()) {
    for (const auto& [m, k, n] : sizes) {
      for (const bool turned_a : {false, true}) {
        for (const bool turned_b : {false, true}) {
          check_product(*kernels, m, k, n, turned_a, turned_b, random);
        }
      }
    }
  }
}

// These are the largest sums that fit: (-128)^2, added 2^17 - 1 times.
TEST(integer_products_do_not_saturate) {
  const int64_t k = (int64_t{1} << 17) - 1;
  const std::vector<int8_t> lowest(k, int8_t{-128});
  for (const IntegerKernels* kernels : all_kernels()) {
    const int64_t pairs = (k + 1) / 2;
    std::vector<uint32_t> left(pairs), right(pairs * kernels->panel);
    kernels->pack_rows({lowest.data(), k, 1}, k, left.data(), 0, 1);
    kernels->pack_panels({lowest.data(), 1, 1}, k, 1, right.data(), 0, 1);
    int32_t c = 0;
    kernels->multiply(left.data(), right.data(), 1, 1, pairs, &c, 1);
    CHECK_EQUAL(c, static_cast<int32_t>(k * 16384));
  }
}
