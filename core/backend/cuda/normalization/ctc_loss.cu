// CTC loss and its gradient in three launches: the first normalizes each frame's logits; the second
// is the forward and the backward recurrence, with a block for each sample; the third is the
// gradient, with a warp for each frame.
//
// Every sum has one order, and no thread writes what another one adds to, so the same input gives
// the same bits. A length or a counted label that is out of range makes its sample's loss and
// gradient NaN; nothing is read out of bounds.
#include "core/ops/ctc_loss.h"

#include <limits>

#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/rows.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/movement/indices.cuh"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"

namespace kerascnn::cuda {
namespace {

constexpr int64_t kMaxThreads = 512;
// Two rows of states in shared memory; every kernel can have that much without asking.
constexpr int64_t kMaxSharedBytes = 48 * 1024;

template <typename T>
__device__ __forceinline__ T infinity() {
  return std::numeric_limits<T>::infinity();
}
template <typename T>
__device__ __forceinline__ T not_a_number() {
  return std::numeric_limits<T>::quiet_NaN();
}

// The buffers of a call. A sample's rows in `alpha`, `beta` and `rows` have sizes.states() states,
// of which its own come first.
template <typename T, typename Label>
struct CtcArguments {
  CtcSizes sizes;
  const T* logits;
  const Label* target;
  const Label* target_length;
  const Label* output_length;
  T* loss;
  T* gradient;  // null where nobody reads it, as are alpha and beta then
  T* norms;     // of each frame the largest logit, and the logarithm of the sum over all of them
  T* alpha;
  T* beta;
  T* rows;     // two rows for each block where they don't fit into shared memory, else null
  T* outcome;  // of each sample the logarithm of the likelihood; +inf for one out of range
};

template <typename T, typename Label>
struct Sample {
  int64_t index;
  int64_t frames;
  int64_t length;
  CtcStates<Label> path;
  const T* logits;
  const T* norms;
  int64_t classes;

  __device__ Sample(const CtcArguments<T, Label>& a, int64_t sample)
      : index(sample),
        frames(static_cast<int64_t>(a.output_length[sample])),
        length(static_cast<int64_t>(a.target_length[sample])),
        path{a.target + sample * a.sizes.labels, a.sizes.blank},
        logits(a.logits + sample * a.sizes.frames * a.sizes.classes),
        norms(a.norms + 2 * sample * a.sizes.frames),
        classes(a.sizes.classes) {}

  __device__ __forceinline__ int64_t states() const { return 2 * length + 1; }
  __device__ __forceinline__ T log_probability(int64_t frame, int64_t label) const {
    return logits[frame * classes + label] - norms[2 * frame] - norms[2 * frame + 1];
  }
  __device__ __forceinline__ T emission(int64_t frame, int64_t state) const {
    return log_probability(frame, path.class_of(state));
  }
};

// All of a block's threads get the same answer.
template <typename T, typename Label>
__device__ bool is_valid(const CtcArguments<T, Label>& a, const Sample<T, Label>& sample) {
  if (sample.length < 0 || sample.length > a.sizes.labels || sample.frames < 0 ||
      sample.frames > a.sizes.frames) {
    return false;
  }
  bool fits = true;
  for (int64_t i = threadIdx.x; i < sample.length; i += blockDim.x) {
    const int64_t label = static_cast<int64_t>(sample.path.labels[i]);
    fits = fits && label >= 0 && label < a.sizes.classes;
  }
  return __syncthreads_and(fits) != 0;
}

template <typename T, typename Label>
__global__ void __launch_bounds__(RowThreads<32>::kBlock)
    find_norms(const CtcArguments<T, Label> a) {
  using Threads = RowThreads<32>;
  const int64_t frames = a.sizes.samples * a.sizes.frames;
  for (int64_t row = Threads::first_row(); row < frames; row += Threads::row_step()) {
    const T* x = a.logits + row * a.sizes.classes;
    T most = -infinity<T>();
    for (int64_t i = Threads::lane(); i < a.sizes.classes; i += 32) most = Largest()(most, x[i]);
    most = Threads::reduce(most, Largest());
    T sum = 0;
    for (int64_t i = Threads::lane(); i < a.sizes.classes; i += 32) {
      sum += element::exp(x[i] - most);
    }
    sum = Threads::reduce(sum, Sum());
    if (Threads::lane() == 0) {
      a.norms[2 * row] = most;
      a.norms[2 * row + 1] = element::log(sum);
    }
  }
}

// alpha(t, s) is the logarithm of the probability of all paths that are in s in frame t. `rows` are
// two rows that are used in turn; `all` keeps every row where it is not null.
template <typename T, typename Label>
__device__ T forward(const Sample<T, Label>& sample, T* rows, T* all, int64_t stride) {
  const int64_t states = sample.states();
  if (sample.frames == 0) return states == 1 ? T(0) : -infinity<T>();
  for (int64_t t = 0; t < sample.frames; ++t) {
    T* row = rows + t % 2 * stride;
    const T* before = rows + (t + 1) % 2 * stride;
    for (int64_t s = threadIdx.x; s < states; s += blockDim.x) {
      T value = s < 2 ? T(0) : -infinity<T>();
      if (t > 0) {
        const T moved = s > 0 ? before[s - 1] : -infinity<T>();
        const T skipped = sample.path.can_skip_to(s) ? before[s - 2] : -infinity<T>();
        value = log_sum_exp(before[s], moved, skipped);
      }
      value += sample.emission(t, s);
      row[s] = value;
      if (all != nullptr) all[t * stride + s] = value;
    }
    // One barrier is enough: the row that is written next was last read before this.
    __syncthreads();
  }
  const T* last = rows + (sample.frames - 1) % 2 * stride;
  return log_sum_exp(last[states - 1], states > 1 ? last[states - 2] : -infinity<T>(),
                     -infinity<T>());
}

// beta(t, s) is the logarithm of the probability of the frames after t for paths that are in s in
// frame t. The rows hold beta with the emission of their own frame.
template <typename T, typename Label>
__device__ void backward(const Sample<T, Label>& sample, T* rows, T* all, int64_t stride) {
  const int64_t states = sample.states();
  for (int64_t t = sample.frames - 1; t >= 0; --t) {
    T* row = rows + t % 2 * stride;
    const T* after = rows + (t + 1) % 2 * stride;
    for (int64_t s = threadIdx.x; s < states; s += blockDim.x) {
      T value = s >= states - 2 ? T(0) : -infinity<T>();
      if (t < sample.frames - 1) {
        const bool skips = s + 2 < states && sample.path.can_skip_to(s + 2);
        value = log_sum_exp(after[s], s + 1 < states ? after[s + 1] : -infinity<T>(),
                            skips ? after[s + 2] : -infinity<T>());
      }
      all[t * stride + s] = value;
      row[s] = value + sample.emission(t, s);
    }
    __syncthreads();
  }
}

// There is a block for each sample and direction (blockIdx.y): forward, and backward for the
// gradient.
template <typename T, typename Label>
__global__ void __launch_bounds__(kMaxThreads) recurrences(const CtcArguments<T, Label> a) {
  extern __shared__ double shared[];
  const int64_t stride = a.sizes.states();
  const int64_t block = static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x;
  T* rows = a.rows != nullptr ? a.rows + 2 * block * stride : reinterpret_cast<T*>(shared);
  const bool is_forward = blockIdx.y == 0;
  for (int64_t index = blockIdx.x; index < a.sizes.samples; index += gridDim.x) {
    const Sample<T, Label> sample(a, index);
    const bool valid = is_valid(a, sample);
    const int64_t first = index * a.sizes.frames * stride;
    if (!is_forward) {
      if (valid) backward(sample, rows, a.beta + first, stride);
      continue;
    }
    T likelihood = infinity<T>();
    if (valid) {
      likelihood = forward(sample, rows, a.gradient == nullptr ? nullptr : a.alpha + first, stride);
    }
    if (threadIdx.x == 0) {
      a.loss[index] = valid ? -likelihood : not_a_number<T>();
      a.outcome[index] = likelihood;
    }
    __syncthreads();  // the rows have been read
  }
}

// A warp's share in the gradient of one frame: each lane adds up the states of its own classes. A
// class belongs to the first label that names it.
template <typename T, typename Label>
__device__ void subtract_paths(const Sample<T, Label>& sample, const T* alpha, const T* beta,
                               T likelihood, T* gradient) {
  const int lane = RowThreads<32>::lane();
  const Label* labels = sample.path.labels;
  const auto share = [&](int64_t s) { return element::exp(alpha[s] + beta[s] - likelihood); };
  T blanks = 0;
  for (int64_t s = lane; s < sample.states(); s += 32) {
    if (sample.path.class_of(s) == sample.path.blank) blanks += share(s);
  }
  blanks = RowThreads<32>::reduce(blanks, Sum());
  if (lane == 0) gradient[sample.path.blank] -= blanks;
  for (int64_t i = lane; i < sample.length; i += 32) {
    bool is_first = static_cast<int64_t>(labels[i]) != sample.path.blank;
    for (int64_t k = 0; is_first && k < i; ++k) is_first = labels[k] != labels[i];
    if (!is_first) continue;
    T sum = 0;
    for (int64_t k = i; k < sample.length; ++k) {
      if (labels[k] == labels[i]) sum += share(2 * k + 1);
    }
    gradient[labels[i]] -= sum;
  }
}

// A warp computes each frame: the probability of each class, less its share in the paths.
template <typename T, typename Label>
__global__ void __launch_bounds__(RowThreads<32>::kBlock)
    frame_gradients(const CtcArguments<T, Label> a) {
  using Threads = RowThreads<32>;
  const int64_t classes = a.sizes.classes;
  const int64_t count = a.sizes.samples * a.sizes.frames;
  for (int64_t row = Threads::first_row(); row < count; row += Threads::row_step()) {
    const Division at = divide(row, a.sizes.frames);
    const Sample<T, Label> sample(a, at.quotient);
    const int64_t frame = at.remainder;
    const T likelihood = a.outcome[at.quotient];
    T* gradient = a.gradient + row * classes;
    // The lengths of a sample out of range can't be relied on, so it is NaN in every frame.
    const bool is_out_of_range = likelihood == infinity<T>();
    const bool counts = is_out_of_range || frame < sample.frames;
    const bool has_paths = !is_out_of_range && likelihood > -infinity<T>();
    for (int64_t c = Threads::lane(); c < classes; c += 32) {
      T value = counts ? not_a_number<T>() : T(0);
      if (counts && has_paths) value = element::exp(sample.log_probability(frame, c));
      gradient[c] = value;
    }
    if (!counts || !has_paths) continue;
    __syncwarp();  // the lanes change what others have written
    const int64_t first = row * a.sizes.states();
    subtract_paths(sample, a.alpha + first, a.beta + first, likelihood, gradient);
  }
}

// Where the parts of the workspace begin, in elements.
struct WorkspaceLayout {
  int64_t outcome = 0, alpha = 0, beta = 0, rows = 0, total = 0;

  WorkspaceLayout(const CtcSizes& sizes, unsigned blocks, bool rows_are_shared) {
    const int64_t table = sizes.samples * sizes.frames * sizes.states();
    outcome = 2 * sizes.samples * sizes.frames;  // after the norms
    alpha = outcome + sizes.samples;
    beta = alpha + table;
    rows = beta + table;
    total = rows + (rows_are_shared ? 0 : 2 * blocks * 2 * sizes.states());
  }
};

template <typename T, typename Label>
std::unique_ptr<Kernel> plan(const CtcSizes& sizes) {
  const int64_t row_bytes = 2 * sizes.states() * static_cast<int64_t>(sizeof(T));
  const bool is_shared = row_bytes <= kMaxSharedBytes;
  const unsigned blocks = grid_for(sizes.samples, 1);
  const auto threads =
      static_cast<unsigned>(std::min<int64_t>(kMaxThreads, ceil_div(sizes.states(), 32) * 32));
  const WorkspaceLayout layout(sizes, blocks, is_shared);
  const auto run = [=](const KernelArgs& args) {
    if (sizes.samples == 0) return;
    const auto stream = static_cast<cudaStream_t>(args.stream);
    T* memory = static_cast<T*>(args.workspace);
    CtcArguments<T, Label> a = {sizes,
                                input<T>(args, 0),
                                input<Label>(args, 1),
                                input<Label>(args, 2),
                                input<Label>(args, 3),
                                output<T>(args, 0),
                                output<T>(args, 1),
                                memory,
                                memory + layout.alpha,
                                memory + layout.beta,
                                is_shared ? nullptr : memory + layout.rows,
                                memory + layout.outcome};
    // Where there are no frames or classes, there are no gradients to write either.
    const int64_t frames = sizes.samples * sizes.frames;
    const unsigned frame_grid = grid_for(frames, RowThreads<32>::kRowsPerBlock);
    if (frames > 0) {
      find_norms<T, Label><<<frame_grid, RowThreads<32>::kBlock, 0, stream>>>(a);
      check_launch("ctc_loss");
    }
    const dim3 grid(blocks, a.gradient == nullptr ? 1 : 2);
    recurrences<T, Label>
        <<<grid, threads, is_shared ? static_cast<size_t>(row_bytes) : 0, stream>>>(a);
    check_launch("ctc_loss");
    if (a.gradient == nullptr || frames == 0) return;
    frame_gradients<T, Label><<<frame_grid, RowThreads<32>::kBlock, 0, stream>>>(a);
    check_launch("ctc_loss");
  };
  return make_kernel("kerascnn CTC loss", run, layout.total * static_cast<int64_t>(sizeof(T)));
}

}  // namespace

// logits (n, t, c), labels (n, s), their number (n,), number of frames (n,) -> loss (n,), [gradient
// of the logits (n, t, c)]
std::unique_ptr<Kernel> plan_ctc_loss(const PlanRequest& request) {
  const CtcSizes sizes = ctc_sizes(request.attributes, request.inputs);
  return dispatch_label("ctc_loss", request.inputs[1].dtype, [&]<typename Label>(Type<Label>) {
    return request.inputs[0].dtype == DType::Float64 ? plan<double, Label>(sizes)
                                                     : plan<float, Label>(sizes);
  });
}

}  // namespace kerascnn::cuda
