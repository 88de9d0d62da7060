// Images of another size, and their gradient, whose axes are the transposed ones. A row of new
// pixels is made in two steps: the old rows that it needs become one line, which stays in a core's
// cache, and the line's pixels become those of the row. Images are cut into tiles of some columns
// and channels for that.
#include "core/ops/resize2d.h"

#include <algorithm>
#include <cstring>

#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/backend/cpu/resize_kernels.h"
#include "core/backend/cpu/widen.h"

namespace kerascnn::cpu {
namespace {

// So many numbers of a line are made at a time, where windows are not larger.
constexpr int64_t kLineNumbers = 6144;
// Channels are taken in blocks, so that a line has room for several windows.
constexpr int64_t kMostLineChannels = 256;
constexpr int64_t kLeastLineChannels = 32;
// Old pixels that nobody needs are made too where that is less than a piece of its own.
constexpr int64_t kGapNumbers = 32;

// Columns [begin, end) of the image, of which the first is number `place` in a line.
struct LineRun {
  int64_t begin, end, place;
};

// Neighbouring new pixels of a row, and which columns of the image their line has.
struct ResizeTile {
  int64_t begin = 0, end = 0;
  std::vector<LineRun> runs;

  int64_t columns() const { return runs.empty() ? 0 : columns_until(runs.back().end); }
  // How many there are with columns [first, last), which neither begin nor end before others.
  int64_t columns_with(int64_t first, int64_t last, int64_t gap) const {
    return joins(first, gap) ? columns_until(last) : columns() + last - first;
  }
  void take(int64_t first, int64_t last, int64_t gap) {
    if (joins(first, gap)) {
      runs.back().end = last;
    } else {
      runs.push_back({first, last, columns()});
    }
  }

 private:
  bool joins(int64_t first, int64_t gap) const {
    return !runs.empty() && first <= runs.back().end + gap;
  }
  int64_t columns_until(int64_t last) const { return runs.back().place + last - runs.back().begin; }
};

// The work of threads on whole rows of the new images: body(first row, last row, thread).
template <typename Body>
void share_rows(int64_t rows, int64_t work, const Body& body) {
  const int64_t most = std::max<int64_t>(1, rows / grain_of(work));
  const int64_t pieces = std::min<int64_t>(most, num_threads() * kPiecesOfThread);
  run_pieces(pieces, [&](int64_t piece, int64_t thread) {
    body(rows * piece / pieces, rows * (piece + 1) / pieces, thread);
  });
}

template <typename T>
class ResizeKernel final : public Kernel {
 public:
  explicit ResizeKernel(const Resize2DGeometry& g)
      : g_(g),
        kernels_(resize_kernels()),
        loops_(kernels_.loops(T{})),
        row_shares_(g.rows.shares.begin(), g.rows.shares.end()),
        column_shares_(g.columns.shares.begin(), g.columns.shares.end()) {
    const int64_t several = 4 * g.columns.most;
    channels_ = std::min(g.channels, std::clamp(kLineNumbers / several / kLineRoom * kLineRoom,
                                                kLeastLineChannels, kMostLineChannels));
    cut(std::max(kLineNumbers / std::max<int64_t>(channels_, 1), several));
  }

  int64_t workspace_bytes() const override { return num_threads() * line_bytes(); }
  std::string description() const override {
    return message("kerascnn image resizing:", kernels_.name);
  }

  void run(const KernelArgs& args) override {
    if (g_.batch * g_.channels == 0) return;
    const int64_t work =
        (columns_of_lines_ * g_.rows.most + g_.columns.size * g_.columns.most) * g_.channels / 2;
    share_rows(g_.batch * g_.rows.size, work, [&](int64_t begin, int64_t end, int64_t thread) {
      T* line = reinterpret_cast<T*>(static_cast<char*>(args.workspace) + thread * line_bytes());
      for (int64_t row = begin; row < end; ++row) {
        make_row(input<T>(args, 0), row, line, output<T>(args, 0));
      }
    });
  }

 private:
  int64_t line_bytes() const {
    const int64_t numbers = longest_ * channels_ + kLineRoom;
    return g_.columns.keeps ? 0 : align_up(numbers * static_cast<int64_t>(sizeof(T)));
  }

  // Cuts the new columns into tiles whose lines have up to `most` columns, if they make more than
  // one pixel.
  void cut(int64_t most) {
    const ResizeAxis& a = g_.columns;
    const int64_t gap = kGapNumbers / std::max<int64_t>(g_.channels, 1);
    places_.assign(a.firsts.size(), 0);
    tiles_.emplace_back();
    // A window whose outer shares are 0 can begin after the next one, or end before the last one.
    std::vector<int64_t> begins(a.firsts.begin(), a.firsts.end());
    for (size_t i = begins.size(), next = begins.size(); i-- > 0;) {
      if (a.counts[i] == 0) continue;
      if (next < begins.size()) begins[i] = std::min(begins[i], begins[next]);
      next = i;
    }
    int64_t end = 0;
    for (size_t i = 0; i < begins.size(); ++i) {
      const auto pixel = static_cast<int64_t>(i);
      const bool is_sum = a.counts[i] > 0;
      if (is_sum) end = std::max<int64_t>(end, a.firsts[i] + a.counts[i]);
      if (is_sum && tiles_.back().columns() > 0 &&
          tiles_.back().columns_with(begins[i], end, gap) > most) {
        tiles_.push_back({.begin = pixel, .end = pixel, .runs = {}});
      }
      ResizeTile& tile = tiles_.back();
      tile.end = pixel + 1;
      if (!is_sum) continue;
      tile.take(begins[i], end, gap);
      const LineRun& run = tile.runs.back();
      places_[i] = static_cast<int32_t>(run.place + a.firsts[i] - run.begin);
    }
    for (const ResizeTile& tile : tiles_) {
      longest_ = std::max(longest_, tile.columns());
      columns_of_lines_ += tile.columns();
    }
  }

  void make_row(const T* x, int64_t row, T* line, T* y) const {
    const auto at = static_cast<size_t>(row % g_.rows.size);
    const int64_t step = g_.columns.old_size * g_.channels;
    const int64_t size = g_.columns.size * g_.channels;
    y += row * size;
    const int64_t count = g_.rows.counts[at];
    if (count == 0) {
      std::fill(y, y + size, T(0));
      return;
    }
    const T* shares = row_shares_.data() + row % g_.rows.size * g_.rows.most;
    x += (row / g_.rows.size * g_.rows.old_size + g_.rows.firsts[at]) * step;
    if (g_.columns.keeps) {
      loops_.weigh_rows(x, step, shares, count, size, y);
      return;
    }
    for (int64_t channel = 0; channel < g_.channels; channel += channels_) {
      const int64_t channels = std::min(channels_, g_.channels - channel);
      for (const ResizeTile& tile : tiles_) {
        for (const LineRun& run : tile.runs) {
          const T* from = x + run.begin * g_.channels + channel;
          T* to = line + run.place * channels;
          if (channels == g_.channels) {
            loops_.weigh_rows(from, step, shares, count, (run.end - run.begin) * channels, to);
            continue;
          }
          for (int64_t i = run.begin; i < run.end; ++i, from += g_.channels, to += channels) {
            loops_.weigh_rows(from, step, shares, count, channels, to);
          }
        }
        const LinePixels<T> pixels = {tile.end - tile.begin,
                                      places_.data() + tile.begin,
                                      g_.columns.counts.data() + tile.begin,
                                      column_shares_.data() + tile.begin * g_.columns.most,
                                      g_.columns.most,
                                      channels,
                                      g_.channels,
                                      size - tile.begin * g_.channels};
        loops_.weigh_pixels(pixels, line, y + tile.begin * g_.channels + channel);
      }
    }
  }

  Resize2DGeometry g_;
  const ResizeKernels& kernels_;
  const ResizeLoops<T>& loops_;
  std::vector<T> row_shares_, column_shares_;
  int64_t channels_ = 1;  // at a time
  std::vector<ResizeTile> tiles_;
  std::vector<int32_t> places_;  // where the line has the first column of each new pixel
  int64_t longest_ = 0;          // of the lines, in columns
  int64_t columns_of_lines_ = 0;
};

// Pixels of kSize bytes; of `size` bytes where kSize is 0.
template <int64_t kSize>
void copy_pixels(const char* from, const std::vector<int32_t>& columns, int64_t size, char* to) {
  const int64_t bytes = kSize > 0 ? kSize : size;
  for (const int32_t column : columns) {
    std::memcpy(to, from + column * bytes, static_cast<size_t>(bytes));
    to += bytes;
  }
}

auto copy_function(int64_t size) {
  switch (size) {
    case 2:
      return copy_pixels<2>;
    case 4:
      return copy_pixels<4>;
    case 6:
      return copy_pixels<6>;
    case 8:
      return copy_pixels<8>;
    case 12:
      return copy_pixels<12>;
    case 16:
      return copy_pixels<16>;
    default:
      return copy_pixels<0>;
  }
}

// The nearest pixels, as they are. Equal rows are made once by each thread.
std::unique_ptr<Kernel> make_copies(const Resize2DGeometry& g, int64_t itemsize) {
  const int64_t pixel = g.channels * itemsize;
  return make_kernel(
      "kerascnn nearest pixels", [g, pixel, copy = copy_function(pixel)](const KernelArgs& args) {
        if (g.batch * pixel == 0) return;
        const auto* x = input<char>(args, 0);
        auto* y = output<char>(args, 0);
        const int64_t from_row = g.columns.old_size * pixel, to_row = g.columns.size * pixel;
        share_rows(g.batch * g.rows.size, to_row / 8, [&](int64_t begin, int64_t end, int64_t) {
          int64_t before = -1;
          for (int64_t row = begin; row < end; ++row) {
            const int64_t source = row / g.rows.size * g.rows.old_size +
                                   g.rows.firsts[static_cast<size_t>(row % g.rows.size)];
            char* to = y + row * to_row;
            if (source == before) {
              std::memcpy(to, to - to_row, static_cast<size_t>(to_row));
            } else if (g.columns.keeps) {
              std::memcpy(to, x + source * from_row, static_cast<size_t>(to_row));
            } else {
              copy(x + source * from_row, g.columns.firsts, pixel, to);
            }
            before = source;
          }
        });
      });
}

std::unique_ptr<Kernel> plan_resizing(const PlanRequest& request, PlanFunction plan) {
  const DType dtype = request.inputs[0].dtype;
  const bool is_forward = !request.attributes.has("input_shape");
  if (is_forward && request.attributes.get_string("method") == "nearest") {
    return make_copies(resize2d_geometry(request.op, request.attributes, request.inputs),
                       itemsize(dtype));
  }
  if (is_narrow(dtype)) return plan_in_float32(request, plan);
  return dispatch<float, double>(
      request, dtype, [&]<typename T>(Type<T>) -> std::unique_ptr<Kernel> {
        return std::make_unique<ResizeKernel<T>>(
            resize2d_geometry(request.op, request.attributes, request.inputs));
      });
}

}  // namespace

std::unique_ptr<Kernel> plan_resize2d(const PlanRequest& request) {
  return plan_resizing(request, plan_resize2d);
}

std::unique_ptr<Kernel> plan_resize2d_grad(const PlanRequest& request) {
  return plan_resizing(request, plan_resize2d_grad);
}

}  // namespace kerascnn::cpu
