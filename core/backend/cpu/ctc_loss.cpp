// CTC loss and its gradient: forward and backward recurrences over the states of a sample's labels.
// Each thread takes one sample at a time.
//
// Both dtypes are computed in double: the recurrences add up as many logarithms as there are
// frames, and the gradient is the exponential of such sums, whose error would be that of their
// magnitude.
#include "core/ops/ctc_loss.h"

#include <cmath>
#include <limits>

#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"

namespace kerascnn::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// A state of a frame takes four logarithms and exponentials, which simple functions of an element
// don't take.
constexpr int64_t kStateGrain = kElementGrain / 16;

// The memory that a thread computes in, which is a part of the workspace.
struct Scratch {
  double* norms;  // of each frame the largest logit, and the logarithm of the sum over the others
  double* alpha;  // (frames, states)
  double* beta;   // 2 rows
  double* slope;  // (classes,)

  static int64_t size(const CtcSizes& sizes) {
    return 2 * sizes.frames + (sizes.frames + 2) * sizes.states() + sizes.classes;
  }
  Scratch(double* memory, const CtcSizes& sizes)
      : norms(memory),
        alpha(norms + 2 * sizes.frames),
        beta(alpha + sizes.frames * sizes.states()),
        slope(beta + 2 * sizes.states()) {}
};

template <typename T, typename Label>
struct Sample {
  const T* logits;
  CtcStates<Label> path;
  int64_t frames;
  int64_t states;
  int64_t classes;
  const double* norms;

  double log_probability(int64_t frame, int64_t label) const {
    const auto x = static_cast<double>(logits[frame * classes + label]);
    return x - norms[2 * frame] - norms[2 * frame + 1];
  }
  double emission(int64_t frame, int64_t state) const {
    return log_probability(frame, path.class_of(state));
  }
};

template <typename T>
void find_norms(const T* logits, int64_t frames, int64_t classes, double* norms) {
  for (int64_t frame = 0; frame < frames; ++frame) {
    const T* x = logits + frame * classes;
    double most = -kInfinity;
    for (int64_t i = 0; i < classes; ++i) most = std::max(most, static_cast<double>(x[i]));
    double sum = 0;
    for (int64_t i = 0; i < classes; ++i) sum += std::exp(static_cast<double>(x[i]) - most);
    norms[2 * frame] = most;
    norms[2 * frame + 1] = std::log(sum);
  }
}

// alpha(t, s) is the logarithm of the probability of all paths that are in s in frame t. It keeps
// all rows, or the last two in turn, and returns the logarithm of the probability of the labels.
template <typename T, typename Label>
double forward(const Sample<T, Label>& sample, double* alpha, bool keep) {
  const int64_t states = sample.states;
  if (sample.frames == 0) return states == 1 ? 0.0 : -kInfinity;
  double* row = alpha;
  for (int64_t s = 0; s < states; ++s) row[s] = s < 2 ? sample.emission(0, s) : -kInfinity;
  for (int64_t t = 1; t < sample.frames; ++t) {
    const double* before = row;
    row = alpha + (keep ? t : t % 2) * states;
    for (int64_t s = 0; s < states; ++s) {
      const double moved = s > 0 ? before[s - 1] : -kInfinity;
      const double skipped = sample.path.can_skip_to(s) ? before[s - 2] : -kInfinity;
      row[s] = log_sum_exp(before[s], moved, skipped) + sample.emission(t, s);
    }
  }
  return log_sum_exp(row[states - 1], states > 1 ? row[states - 2] : -kInfinity, -kInfinity);
}

// beta(t, s) is the logarithm of the probability of the frames after t for paths that are in s in
// frame t.
template <typename T, typename Label>
void backward_row(const Sample<T, Label>& sample, int64_t t, const double* after, double* row) {
  const int64_t states = sample.states;
  if (t == sample.frames - 1) {
    for (int64_t s = 0; s < states; ++s) row[s] = s >= states - 2 ? 0.0 : -kInfinity;
    return;
  }
  const auto through = [&](int64_t s) { return after[s] + sample.emission(t + 1, s); };
  for (int64_t s = 0; s < states; ++s) {
    const double moved = s + 1 < states ? through(s + 1) : -kInfinity;
    const bool skips = s + 2 < states && sample.path.can_skip_to(s + 2);
    row[s] = log_sum_exp(through(s), moved, skips ? through(s + 2) : -kInfinity);
  }
}

// The gradient of a frame's logits: the probability of each class, less its share in the paths.
template <typename T, typename Label>
void write_gradient(const Sample<T, Label>& sample, const Scratch& scratch, double log_likelihood,
                    T* gradient) {
  const int64_t states = sample.states;
  for (int64_t t = sample.frames - 1; t >= 0; --t) {
    double* beta = scratch.beta + t % 2 * states;
    backward_row(sample, t, scratch.beta + (t + 1) % 2 * states, beta);
    for (int64_t c = 0; c < sample.classes; ++c) {
      scratch.slope[c] = std::exp(sample.log_probability(t, c));
    }
    const double* alpha = scratch.alpha + t * states;
    for (int64_t s = 0; s < states; ++s) {
      scratch.slope[sample.path.class_of(s)] -= std::exp(alpha[s] + beta[s] - log_likelihood);
    }
    T* row = gradient + t * sample.classes;
    for (int64_t c = 0; c < sample.classes; ++c) row[c] = static_cast<T>(scratch.slope[c]);
  }
}

template <typename Label>
bool is_valid(const CtcSizes& sizes, const Label* labels, int64_t length, int64_t frames) {
  if (length < 0 || length > sizes.labels || frames < 0 || frames > sizes.frames) return false;
  return std::all_of(labels, labels + length, [&](Label label) {
    return label >= 0 && static_cast<int64_t>(label) < sizes.classes;
  });
}

template <typename T, typename Label>
void run_sample(const CtcSizes& sizes, const KernelArgs& args, int64_t index,
                const Scratch& scratch) {
  const int64_t size = sizes.frames * sizes.classes;
  const T* logits = input<T>(args, 0) + index * size;
  const Label* labels = input<Label>(args, 1) + index * sizes.labels;
  const auto length = static_cast<int64_t>(input<Label>(args, 2)[index]);
  const auto frames = static_cast<int64_t>(input<Label>(args, 3)[index]);
  T* loss = output<T>(args, 0) + index;
  T* gradient = output<T>(args, 1);
  if (gradient != nullptr) gradient += index * size;
  if (!is_valid(sizes, labels, length, frames)) {
    *loss = static_cast<T>(kNaN);
    if (gradient != nullptr) std::fill_n(gradient, size, static_cast<T>(kNaN));
    return;
  }
  find_norms(logits, frames, sizes.classes, scratch.norms);
  const Sample<T, Label> sample = {logits,         {labels, sizes.blank}, frames,
                                   2 * length + 1, sizes.classes,         scratch.norms};
  const double log_likelihood = forward(sample, scratch.alpha, gradient != nullptr);
  *loss = static_cast<T>(-log_likelihood);
  if (gradient == nullptr) return;
  const int64_t counted = frames * sizes.classes;
  if (log_likelihood == -kInfinity) {
    std::fill_n(gradient, counted, static_cast<T>(kNaN));
  } else {
    write_gradient(sample, scratch, log_likelihood, gradient);
  }
  std::fill_n(gradient + counted, size - counted, T(0));
}

template <typename T, typename Label>
std::unique_ptr<Kernel> plan(const CtcSizes& sizes) {
  const int64_t bytes = align_up(Scratch::size(sizes) * static_cast<int64_t>(sizeof(double)));
  const bool is_small = sizes.samples * sizes.frames * sizes.states() < kStateGrain;
  const int64_t threads = is_small ? 1 : num_threads();
  return make_kernel(
      "kerascnn CTC loss",
      [sizes, bytes, is_small](const KernelArgs& args) {
        const auto task = [&](int64_t index, int64_t thread) {
          auto* memory = static_cast<char*>(args.workspace) + thread * bytes;
          run_sample<T, Label>(sizes, args, index,
                               Scratch(reinterpret_cast<double*>(memory), sizes));
        };
        if (is_small) {
          for (int64_t i = 0; i < sizes.samples; ++i) task(i, 0);
        } else {
          parallel_tasks(sizes.samples, task);
        }
      },
      threads * bytes);
}

}  // namespace

// logits (n, t, c), labels (n, s), their number (n,), number of frames (n,) -> loss (n,), [gradient
// of the logits (n, t, c)]
std::unique_ptr<Kernel> plan_ctc_loss(const PlanRequest& request) {
  const CtcSizes sizes = ctc_sizes(request.attributes, request.inputs);
  const bool wide = request.inputs[1].dtype == DType::Int64;
  if (request.inputs[0].dtype == DType::Float64) {
    return wide ? plan<double, int64_t>(sizes) : plan<double, int32_t>(sizes);
  }
  return wide ? plan<float, int64_t>(sizes) : plan<float, int32_t>(sizes);
}

}  // namespace kerascnn::cpu
