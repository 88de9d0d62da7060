// The CPU's own kernels of depthwise gradients, of batch normalization and of few filters, and
// products that are computed the other way around, are compared with plain sums. Under the
// sanitizers these tests find reads and writes outside the arrays.
#include <cmath>
#include <random>

#include "check.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::f32;
using testing::floats;
using Values = std::vector<Tensor>;

Values run(std::string_view op, const Values& inputs, const Attributes& attributes) {
  Graph graph;
  std::vector<ValueId> ids;
  for (const Tensor& input : inputs) ids.push_back(graph.input("input", input.spec()));
  auto program = Program::compile(graph, graph.apply(op, ids, attributes), Device{});
  program->run(inputs);
  return program->outputs();
}

void check_near(float found, double wanted, double tolerance) {
  CHECK(std::abs(static_cast<double>(found) - wanted) <= tolerance);
}

struct Depthwise {
  int64_t images, height, width, channels, kernel_height, kernel_width;
  int64_t stride, dilation, padding;

  int64_t output(int64_t side, int64_t kernel) const {
    return (side + 2 * padding - (kernel - 1) * dilation - 1) / stride + 1;
  }
  int64_t rows() const { return output(height, kernel_height); }
  int64_t columns() const { return output(width, kernel_width); }
  Attributes attributes() const {
    return {{"strides", Shape{stride, stride}},
            {"padding", Shape(4, padding)},
            {"dilations", Shape{dilation, dilation}},
            {"groups", channels},
            {"kernel_shape", Shape{kernel_height, kernel_width, 1, channels}}};
  }
  // The gradient of one tap of one channel.
  double sum(const std::vector<float>& x, const std::vector<float>& gy, int64_t i, int64_t j,
             int64_t c) const {
    double total = 0;
    for (int64_t image = 0; image < images; ++image) {
      for (int64_t row = 0; row < rows(); ++row) {
        for (int64_t column = 0; column < columns(); ++column) {
          const int64_t y = row * stride + i * dilation - padding;
          const int64_t z = column * stride + j * dilation - padding;
          if (y < 0 || y >= height || z < 0 || z >= width) continue;
          const auto from = static_cast<size_t>(((image * height + y) * width + z) * channels + c);
          const auto at =
              static_cast<size_t>(((image * rows() + row) * columns() + column) * channels + c);
          total += static_cast<double>(x[from]) * static_cast<double>(gy[at]);
        }
      }
    }
    return total;
  }
};

// Vectors and pieces that are not full, more columns than a piece has, more padding than image.
const Depthwise kDepthwise[] = {
    {3, 9, 11, 37, 7, 7, 1, 1, 3},  {2, 13, 10, 16, 5, 5, 2, 1, 2}, {1, 6, 5, 3, 4, 4, 1, 1, 0},
    {2, 5, 30, 18, 3, 17, 1, 1, 8}, {2, 19, 22, 20, 4, 5, 1, 2, 3}, {2, 3, 2, 9, 5, 5, 1, 1, 6},
    {1, 4, 5, 8, 2, 4, 5, 1, 9},    {1, 260, 41, 2, 6, 4, 3, 1, 1},
};

TEST(depthwise_gradients_are_plain_sums) {
  std::mt19937 random(5);
  for (const Depthwise& d : kDepthwise) {
    const Values inputs = {
        testing::random_tensor({d.images, d.height, d.width, d.channels}, random),
        testing::random_tensor({d.images, d.rows(), d.columns(), d.channels}, random)};
    const auto x = floats(inputs[0]), gy = floats(inputs[1]);
    const auto found = floats(run("conv2d_wgrad", inputs, d.attributes())[0]);
    const double terms = static_cast<double>(d.images * d.rows() * d.columns());
    size_t at = 0;
    for (int64_t i = 0; i < d.kernel_height; ++i) {
      for (int64_t j = 0; j < d.kernel_width; ++j) {
        for (int64_t c = 0; c < d.channels; ++c) {
          check_near(found[at++], d.sum(x, gy, i, j, c), 4e-6 * std::sqrt(terms));
        }
      }
    }
  }
}

// One column of batch normalization and its gradient.
struct Column {
  double mean = 0, variance = 0;

  Column(const std::vector<float>& x, int64_t rows, int64_t channels, int64_t c) {
    const auto at = [&](int64_t row) {
      return static_cast<double>(x[static_cast<size_t>(row * channels + c)]);
    };
    for (int64_t row = 0; row < rows; ++row) mean += at(row) / static_cast<double>(rows);
    for (int64_t row = 0; row < rows; ++row) {
      variance += (at(row) - mean) * (at(row) - mean) / static_cast<double>(rows);
    }
  }
};

TEST(batch_normalization_and_its_gradient_are_plain_sums) {
  constexpr double kEpsilon = 0.5;
  std::mt19937 random(6);
  const Shape shapes[] = {{700, 3}, {35, 37}, {18, 64}, {1, 40}, {333, 1}, {16, 130}};
  for (const Shape& shape : shapes) {
    const int64_t rows = shape[0], channels = shape[1];
    const auto columns = static_cast<size_t>(channels);
    const Tensor x = testing::random_tensor(shape, random);
    const Tensor gy = testing::random_tensor(shape, random);
    const Tensor gamma = testing::random_tensor({channels}, random);
    const Tensor beta = testing::random_tensor({channels}, random);
    const Values forward = run("batch_norm", {x, gamma, beta}, {{"epsilon", kEpsilon}});
    const auto gradients = run("batch_norm_grad", {gy, x, gamma, forward[1], forward[3]}, {});
    const auto xs = floats(x), gs = floats(gy), scale = floats(gamma), shift = floats(beta);
    const auto y = floats(forward[0]), gx = floats(gradients[0]);
    const auto ggamma = floats(gradients[1]), gbeta = floats(gradients[2]);
    for (size_t c = 0; c < columns; ++c) {
      const Column column(xs, rows, channels, static_cast<int64_t>(c));
      const double inverse = 1 / std::sqrt(column.variance + kEpsilon);
      const auto normalized = [&](size_t row) {
        return (static_cast<double>(xs[row * columns + c]) - column.mean) * inverse;
      };
      double sum = 0, product = 0;
      for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
        const double g = gs[row * columns + c];
        sum += g;
        product += g * normalized(row);
        const double wanted = normalized(row) * scale[c] + shift[c];
        check_near(y[row * columns + c], wanted, 4e-6);
      }
      const double tolerance = 4e-6 * std::sqrt(static_cast<double>(rows));
      check_near(gbeta[c], sum, tolerance);
      check_near(ggamma[c], product, tolerance);
      const double count = static_cast<double>(rows);
      for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
        const double g = gs[row * columns + c];
        const double wanted = scale[c] * inverse * (g - (sum + normalized(row) * product) / count);
        check_near(gx[row * columns + c], wanted, 8e-6);
      }
    }
  }
}

// Sums that are long beside the result, with the wider matrix on either side, in parts and whole.
TEST(products_of_long_columns_are_plain_sums) {
  std::mt19937 random(7);
  const Shape shapes[] = {{3001, 100, 33}, {2050, 17, 64}, {9, 2, 1}, {700, 130, 7}};
  for (const Shape& shape : shapes) {
    const int64_t depth = shape[0], rows = shape[1], columns = shape[2];
    const Values inputs = {testing::random_tensor({depth, rows}, random),
                           testing::random_tensor({depth, columns}, random)};
    const auto a = floats(inputs[0]), b = floats(inputs[1]);
    const auto found =
        floats(run("matmul", inputs, {{"transpose_a", true}, {"transpose_b", false}})[0]);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < depth; ++k) {
          sum += static_cast<double>(a[static_cast<size_t>(k * rows + i)]) *
                 static_cast<double>(b[static_cast<size_t>(k * columns + j)]);
        }
        check_near(found[static_cast<size_t>(i * columns + j)], sum,
                   8e-6 * std::sqrt(static_cast<double>(depth)));
      }
    }
  }
}

struct FewFilters {
  Shape image, kernel;  // (n, h, w, c), (kh, kw, c, k)
  int64_t padding;

  Shape result() const {
    return {image[0], image[1] + 2 * padding - kernel[0] + 1,
            image[2] + 2 * padding - kernel[1] + 1, kernel[3]};
  }
  Attributes attributes() const {
    return {{"strides", Shape{1, 1}},
            {"padding", Shape(4, padding)},
            {"dilations", Shape{1, 1}},
            {"groups", int64_t{1}}};
  }
  // Calls body(image, kernel, result) with the positions of all three factors' elements.
  template <typename Body>
  void for_each_product(const Body& body) const {
    const Shape y = result();
    for (int64_t at = 0; at < num_elements(y) / y[3]; ++at) {
      const int64_t n = at / (y[1] * y[2]), row = at / y[2] % y[1], column = at % y[2];
      for (int64_t tap = 0; tap < kernel[0] * kernel[1]; ++tap) {
        const int64_t i = row + tap / kernel[1] - padding, j = column + tap % kernel[1] - padding;
        if (i < 0 || i >= image[1] || j < 0 || j >= image[2]) continue;
        for (int64_t c = 0; c < image[3]; ++c) {
          const int64_t from = ((n * image[1] + i) * image[2] + j) * image[3] + c;
          for (int64_t k = 0; k < y[3]; ++k) {
            body(static_cast<size_t>(from), static_cast<size_t>((tap * image[3] + c) * y[3] + k),
                 static_cast<size_t>(at * y[3] + k));
          }
        }
      }
    }
  }
};

// Groups of one to four filters, vectors that are not full at the end of all arrays, more padding
// than image.
const FewFilters kFewFilters[] = {
    {{2, 5, 9, 17}, {3, 3, 17, 1}, 1}, {{1, 4, 13, 16}, {1, 1, 16, 2}, 0},
    {{2, 6, 8, 21}, {5, 5, 21, 7}, 2}, {{3, 2, 3, 19}, {3, 3, 19, 5}, 4},
    {{1, 7, 7, 6}, {3, 3, 6, 3}, 0},
};

TEST(convolutions_with_few_filters_are_plain_sums) {
  std::mt19937 random(8);
  for (const FewFilters& f : kFewFilters) {
    const Tensor x = testing::random_tensor(f.image, random);
    const Tensor kernel = testing::random_tensor(f.kernel, random);
    const Tensor gy = testing::random_tensor(f.result(), random);
    const auto xs = floats(x), ks = floats(kernel), gs = floats(gy);
    std::vector<double> y(gs.size()), gkernel(ks.size());
    f.for_each_product([&](size_t i, size_t w, size_t o) {
      y[o] += static_cast<double>(xs[i]) * static_cast<double>(ks[w]);
      gkernel[w] += static_cast<double>(xs[i]) * static_cast<double>(gs[o]);
    });
    Attributes forward = f.attributes();
    forward.set("activation", std::string("linear"));
    forward.set("activation_alpha", 0.0);
    Attributes backward = f.attributes();
    backward.set("kernel_shape", f.kernel);
    const auto found = floats(run("conv2d", {x, kernel}, forward)[0]);
    const auto found_gradient = floats(run("conv2d_wgrad", {x, gy}, backward)[0]);
    // Sums of up to 525 products of numbers of about 1.
    for (size_t o = 0; o < y.size(); ++o) check_near(found[o], y[o], 1e-4);
    for (size_t w = 0; w < gkernel.size(); ++w) check_near(found_gradient[w], gkernel[w], 1e-4);
  }
}

}  // namespace
}  // namespace kerascnn
