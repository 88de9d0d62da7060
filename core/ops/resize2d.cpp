// Images of another size: resize2d(x; size, method, antialias), x (n, height, width, channels), and
// its gradient resize2d_grad(gy; input_shape, size, method, antialias). Both are linear and each
// is the other's transpose.
#include "core/ops/resize2d.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

// Positions of "nearest" are float32, which counts so far.
constexpr int64_t kLongestAxis = int64_t{1} << 24;

// The weight of a pixel at a distance; 0 from `radius` on.
struct Window {
  double radius;
  double (*weight)(double distance);
};

double triangle(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

// Keys' cubic: 1 at 0, 0 at the other integers, 0 from 2 on.
double cubic(double x, double a) {
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  return x < 2.0 ? ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a : 0.0;
}

double sinc(double x) {
  x *= std::numbers::pi;
  return x == 0.0 ? 1.0 : std::sin(x) / x;
}

template <int radius>
double lanczos(double x) {
  return std::abs(x) < radius ? sinc(x) * sinc(x / radius) : 0.0;
}

Window window_of(std::string_view method) {
  if (method == "bilinear") return {1.0, triangle};
  if (method == "bicubic") return {2.0, [](double x) { return cubic(x, -0.5); }};
  if (method == "lanczos3") return {3.0, lanczos<3>};
  return {5.0, lanczos<5>};
}

bool is_method(std::string_view name) {
  return name == "bilinear" || name == "nearest" || name == "bicubic" || name == "lanczos3" ||
         name == "lanczos5";
}

// Beyond the border lies the border's pixel.
bool repeats_border(std::string_view method, bool antialias) {
  return !antialias && (method == "bilinear" || method == "bicubic");
}

// The axis while it is made: the shares of one new pixel after another.
class AxisMaker {
 public:
  AxisMaker(int64_t old_size, int64_t size) {
    axis_.old_size = old_size, axis_.size = size;
    axis_.firsts.reserve(static_cast<size_t>(size));
    axis_.counts.reserve(static_cast<size_t>(size));
  }

  // The shares of the old pixels from `first` on. Those at the ends that are 0 are left out.
  void add(int64_t first, const std::vector<double>& shares) {
    const auto is_there = [](double share) { return share != 0.0; };
    const auto begin = std::find_if(shares.begin(), shares.end(), is_there);
    const auto end = std::find_if(shares.rbegin(), shares.rend(), is_there).base();
    const int64_t count = std::max<int64_t>(end - begin, 0);
    axis_.firsts.push_back(count == 0 ? 0 : static_cast<int32_t>(first + (begin - shares.begin())));
    axis_.counts.push_back(static_cast<int32_t>(count));
    axis_.most = std::max(axis_.most, count);
    if (count > 0) packed_.insert(packed_.end(), begin, end);
  }

  ResizeAxis result() {
    ResizeAxis& a = axis_;
    a.shares.resize(static_cast<size_t>(a.size * a.most));
    auto from = packed_.begin();
    a.keeps = a.size == a.old_size && a.most == 1;
    for (size_t i = 0; i < a.counts.size(); ++i) {
      std::copy_n(from, a.counts[i], a.shares.begin() + static_cast<int64_t>(i) * a.most);
      from += a.counts[i];
      a.keeps = a.keeps && a.counts[i] == 1 && a.firsts[i] == static_cast<int32_t>(i);
      a.is_full = a.is_full && a.counts[i] > 0;
    }
    a.sums = std::all_of(packed_.begin(), packed_.end(), [](double share) { return share == 1.0; });
    a.keeps = a.keeps && a.sums;
    return std::move(axis_);
  }

 private:
  ResizeAxis axis_;
  std::vector<double> packed_;
};

ResizeAxis nearest_axis(int64_t old_size, int64_t size) {
  AxisMaker maker(old_size, size);
  // As in PyTorch, positions are float32, so that both choose the same one of two equally near
  // pixels.
  const float step = static_cast<float>(old_size) / static_cast<float>(size);
  for (int64_t i = 0; i < size; ++i) {
    const auto at = static_cast<int64_t>(std::floor((static_cast<float>(i) + 0.5f) * step));
    maker.add(std::min(at, old_size - 1), {1.0});
  }
  return maker.result();
}

ResizeAxis axis_with_border(int64_t old_size, int64_t size, std::string_view method) {
  AxisMaker maker(old_size, size);
  const double scale = static_cast<double>(old_size) / static_cast<double>(size);
  const int64_t reach = method == "bilinear" ? 1 : 2;
  std::vector<double> shares;
  for (int64_t i = 0; i < size; ++i) {
    const double place = (static_cast<double>(i) + 0.5) * scale - 0.5;
    const auto below = static_cast<int64_t>(std::floor(place));
    const auto inside = [&](int64_t at) { return std::clamp<int64_t>(at, 0, old_size - 1); };
    const int64_t first = inside(below + 1 - reach);
    shares.assign(static_cast<size_t>(inside(below + reach) - first + 1), 0.0);
    for (int64_t at = below + 1 - reach; at <= below + reach; ++at) {
      const double distance = place - static_cast<double>(at);
      shares[static_cast<size_t>(inside(at) - first)] +=
          reach == 1 ? triangle(distance) : cubic(distance, -0.75);
    }
    maker.add(first, shares);
  }
  return maker.result();
}

// Beyond the border lies nothing, and the weights of what is inside are scaled to sum 1.
ResizeAxis axis_of_window(int64_t old_size, int64_t size, const Window& window, bool antialias) {
  AxisMaker maker(old_size, size);
  const double scale = static_cast<double>(old_size) / static_cast<double>(size);
  const double stretch = antialias ? std::max(scale, 1.0) : 1.0;
  std::vector<double> shares;
  for (int64_t i = 0; i < size; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const double reach = window.radius * stretch;
    const auto first = std::max<int64_t>(static_cast<int64_t>(std::floor(center - reach)) - 1, 0);
    const auto end =
        std::min<int64_t>(static_cast<int64_t>(std::ceil(center + reach)) + 1, old_size);
    shares.clear();
    double total = 0.0;
    for (int64_t at = first; at < end; ++at) {
      const double distance = (static_cast<double>(at) + 0.5 - center) / stretch;
      shares.push_back(std::abs(distance) <= window.radius ? window.weight(distance) : 0.0);
      total += shares.back();
    }
    for (double& share : shares) share /= total;
    maker.add(first, shares);
  }
  return maker.result();
}

}  // namespace

ResizeAxis resize_axis(int64_t old_size, int64_t size, std::string_view method, bool antialias) {
  if (method == "nearest" || old_size == size) return nearest_axis(old_size, size);
  if (repeats_border(method, antialias)) return axis_with_border(old_size, size, method);
  return axis_of_window(old_size, size, window_of(method), antialias);
}

ResizeAxis transposed(const ResizeAxis& axis) {
  // Windows move on with the pixels that they make, so those that hold an old pixel are neighbours.
  const auto old_size = static_cast<size_t>(axis.old_size);
  std::vector<int64_t> firsts(old_size, axis.size), ends(old_size, 0);
  for (int64_t i = 0; i < axis.size; ++i) {
    const auto first = static_cast<size_t>(axis.firsts[static_cast<size_t>(i)]);
    const auto count = static_cast<size_t>(axis.counts[static_cast<size_t>(i)]);
    for (size_t at = first; at < first + count; ++at) {
      firsts[at] = std::min(firsts[at], i), ends[at] = i + 1;
    }
  }
  AxisMaker maker(axis.size, axis.old_size);
  std::vector<double> shares;
  for (int64_t at = 0; at < axis.old_size; ++at) {
    shares.clear();
    const int64_t begin = firsts[static_cast<size_t>(at)];
    for (int64_t i = begin; i < ends[static_cast<size_t>(at)]; ++i) {
      const int64_t t = at - axis.firsts[static_cast<size_t>(i)];
      const bool is_inside = t >= 0 && t < axis.counts[static_cast<size_t>(i)];
      shares.push_back(is_inside ? axis.shares[static_cast<size_t>(i * axis.most + t)] : 0.0);
    }
    maker.add(begin, shares);
  }
  return maker.result();
}

Resize2DGeometry resize2d_geometry(const OpDef& op, const Attributes& attributes, Specs inputs) {
  const bool is_gradient = &op == &op_resize2d_grad;
  const Shape& shape = is_gradient ? attributes.get_ints("input_shape") : inputs[0].shape;
  const auto& size = attributes.get_ints("size");
  const std::string& method = attributes.get_string("method");
  const bool antialias = attributes.get_bool("antialias");
  Resize2DGeometry g{shape[0], shape[3], resize_axis(shape[1], size[0], method, antialias),
                     resize_axis(shape[2], size[1], method, antialias)};
  if (is_gradient) g.rows = transposed(g.rows), g.columns = transposed(g.columns);
  return g;
}

namespace {

// What an image of this shape becomes.
Shape resized_shape(std::string_view op, const Attributes& attributes, const Shape& shape) {
  const auto& size = check_ints(op, attributes, "size", 2, 1);
  const std::string& method = attributes.get_string("method");
  if (!is_method(method)) {
    throw ValueError(message(op,
                             ": method must be bilinear, nearest, bicubic, lanczos3 or lanczos5, "
                             "received ",
                             method));
  }
  attributes.get_bool("antialias");
  for (const int64_t n : {shape[1], shape[2], size[0], size[1]}) {
    if (n < 1 || n > kLongestAxis) {
      throw ValueError(message(op, ": heights and widths must be from 1 to ", kLongestAxis,
                               ", received images ", shape_string(shape), " and size ",
                               ints_string(size)));
    }
  }
  return {shape[0], size[0], size[1], shape[3]};
}

std::vector<TensorSpec> infer_resize2d(const Attributes& attributes, Specs inputs) {
  check_num_inputs("resize2d", inputs, 1);
  check_floating("resize2d", "the input", inputs[0]);
  check_rank("resize2d", "the input", inputs[0], 4);
  return {{inputs[0].dtype, resized_shape("resize2d", attributes, inputs[0].shape)}};
}

std::vector<TensorSpec> infer_resize2d_grad(const Attributes& attributes, Specs inputs) {
  check_num_inputs("resize2d_grad", inputs, 1);
  check_floating("resize2d_grad", "the gradient", inputs[0]);
  const Shape& shape = check_ints("resize2d_grad", attributes, "input_shape", 4, 0);
  check_shape("resize2d_grad", "the gradient", inputs[0],
              resized_shape("resize2d_grad", attributes, shape));
  return {{inputs[0].dtype, shape}};
}

std::vector<ValueId> resize2d_gradient(GradientContext& context) {
  return {context.apply_with_input_shape("resize2d_grad")};
}

std::vector<ValueId> resize2d_grad_gradient(GradientContext& context) {
  const Attributes& attributes = context.attributes();
  return {context.apply("resize2d", {context.output_gradient()},
                        {{"size", attributes.get_ints("size")},
                         {"method", attributes.get_string("method")},
                         {"antialias", attributes.get_bool("antialias")}})};
}

// So many old pixels make a new one, without what borders change.
int64_t pixels_of_window(int64_t old_size, int64_t size, std::string_view method, bool antialias) {
  if (old_size == size || method == "nearest") return 0;
  const double scale = static_cast<double>(old_size) / static_cast<double>(size);
  const double stretch = antialias ? std::max(scale, 1.0) : 1.0;
  return static_cast<int64_t>(2.0 * window_of(method).radius * stretch);
}

// Rows are weighted first, and then columns of what that gives.
OpCost cost_of_resizing(const Attributes& attributes, Specs inputs, Specs, OpCost usual) {
  const auto& size = attributes.get_ints("size");
  const Shape& shape =
      attributes.has("input_shape") ? attributes.get_ints("input_shape") : inputs[0].shape;
  const std::string& method = attributes.get_string("method");
  const bool antialias = attributes.get_bool("antialias");
  const int64_t down = pixels_of_window(shape[1], size[0], method, antialias);
  const int64_t across = pixels_of_window(shape[2], size[1], method, antialias);
  const int64_t rows = shape[0] * size[0] * shape[3];
  return {2 * rows * (down * shape[2] + across * size[1]), usual.bytes};
}

}  // namespace

const OpDef op_resize2d = {
    .name = "resize2d",
    .infer = infer_resize2d,
    .gradient = resize2d_gradient,
    .cost = cost_of_resizing,
};

const OpDef op_resize2d_grad = {
    .name = "resize2d_grad",
    .infer = infer_resize2d_grad,
    .gradient = resize2d_grad_gradient,
    .cost = cost_of_resizing,
};

}  // namespace kerascnn
