// Fourier transforms by cuFFT. It takes complex numbers as pairs, so real and imaginary parts are
// brought together and taken apart in the workspace.
#include "core/ops/fft.h"

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/cufft.h"
#include "core/backend/cuda/runtime/initcheck.h"

namespace kerascnn::cuda {
namespace {

template <typename C>
using Pair = Vector<C, 2>;

template <typename T>
constexpr bool is_narrow = !std::is_same_v<T, compute_t<T>>;

template <typename T>
constexpr bool is_double = std::is_same_v<T, double>;

// The factor of element k of a line. In a half transform, elements that stand for two have a factor
// of their own.
template <typename C>
struct Factors {
  int64_t width;   // elements of a line
  int64_t length;  // of the transform of which a line is the first half; 0 for whole transforms
  C own;
  C middle;

  __device__ bool is_own(int64_t k) const { return k == 0 || 2 * k == length; }
  __device__ C of(int64_t k) const { return length == 0 || is_own(k) ? own : middle; }
};

template <typename C>
Factors<C> whole_factors(const FftSizes& sizes, double scale) {
  return {sizes.length, 0, static_cast<C>(scale), static_cast<C>(scale)};
}

template <typename C>
Factors<C> half_factors(const FftSizes& sizes, const Attributes& attributes) {
  const double scale = attributes.get_double("scale");
  return {sizes.half(), sizes.length, static_cast<C>(scale),
          static_cast<C>(scale * attributes.get_double("middle"))};
}

// An element of a half that stands for itself alone is real; cuFFT never sees anything else there.
template <typename T>
__global__ void interleave(const T* __restrict__ real, const T* __restrict__ imaginary,
                           Pair<compute_t<T>>* __restrict__ pairs, int64_t count,
                           Factors<compute_t<T>> factors) {
  begin_kernel();
  for (int64_t i = first_item(); i < count; i += item_step()) {
    const int64_t k = divide(i, factors.width).remainder;
    const compute_t<T> factor = factors.of(k);
    const bool is_real = factors.length != 0 && factors.is_own(k);
    pairs[i] = {factor * load(real[i]), is_real ? compute_t<T>(0) : factor * load(imaginary[i])};
  }
}

template <typename T>
__global__ void deinterleave(const Pair<compute_t<T>>* __restrict__ pairs, T* __restrict__ real,
                             T* __restrict__ imaginary, int64_t count,
                             Factors<compute_t<T>> factors) {
  for (int64_t i = first_item(); i < count; i += item_step()) {
    const compute_t<T> factor = factors.of(divide(i, factors.width).remainder);
    const Pair<compute_t<T>> pair = pairs[i];
    real[i] = store<T>(factor * pair.values[0]);
    imaginary[i] = store<T>(factor * pair.values[1]);
  }
}

template <typename T>
__global__ void widen(const T* __restrict__ x, compute_t<T>* __restrict__ y, int64_t count) {
  for (int64_t i = first_item(); i < count; i += item_step()) y[i] = load(x[i]);
}

template <typename T>
__global__ void narrow(const compute_t<T>* __restrict__ x, T* __restrict__ y, int64_t count) {
  for (int64_t i = first_item(); i < count; i += item_step()) y[i] = store<T>(x[i]);
}

// A transform with its place in the workspace: pairs, then real numbers where the tensor's are of
// 16 bits, then what cuFFT asks for.
template <typename T>
struct Transform {
  using C = compute_t<T>;

  Transform(std::string op, cufftType single, cufftType twice, const FftSizes& sizes,
            int64_t num_pairs, int64_t num_reals)
      : pairs(num_pairs),
        reals(num_reals),
        pair_bytes(aligned(num_pairs * static_cast<int64_t>(sizeof(Pair<C>)))),
        real_bytes(is_narrow<T> ? aligned(num_reals * static_cast<int64_t>(sizeof(C))) : 0) {
    if (num_pairs > 0) {
      plan = std::make_shared<CufftPlan>(std::move(op), is_double<C> ? twice : single, sizes.length,
                                         sizes.lines);
    }
  }

  static int64_t aligned(int64_t bytes) { return ceil_div(bytes, 256) * 256; }
  int64_t workspace_bytes() const {
    return plan ? pair_bytes + real_bytes + plan->workspace_bytes() : 0;
  }
  Pair<C>* pairs_in(const KernelArgs& args) const { return static_cast<Pair<C>*>(args.workspace); }
  C* reals_in(const KernelArgs& args) const {
    return reinterpret_cast<C*>(static_cast<char*>(args.workspace) + pair_bytes);
  }
  void run(const KernelArgs& args, void* from, void* to, int64_t to_bytes, bool inverse) const {
    const auto stream = static_cast<cudaStream_t>(args.stream);
    char* const rest = static_cast<char*>(args.workspace) + pair_bytes + real_bytes;
    mark_written({{to, to_bytes}, {rest, plan->workspace_bytes()}}, stream);
    plan->run(from, to, inverse, rest, stream);
  }

  int64_t pairs;
  int64_t reals;
  int64_t pair_bytes;
  int64_t real_bytes;
  std::shared_ptr<CufftPlan> plan;  // null where there is nothing to transform
};

template <typename T>
void launch_interleave(const KernelArgs& args, const Transform<T>& transform,
                       const Factors<compute_t<T>>& factors) {
  interleave<T><<<grid_for(transform.pairs), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
      input<T>(args, 0), input<T>(args, 1), transform.pairs_in(args), transform.pairs, factors);
  check_launch("interleave of a Fourier transform");
}

template <typename T>
void launch_deinterleave(const KernelArgs& args, const Transform<T>& transform,
                         const Factors<compute_t<T>>& factors) {
  deinterleave<T>
      <<<grid_for(transform.pairs), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
          transform.pairs_in(args), output<T>(args, 0), output<T>(args, 1), transform.pairs,
          factors);
  check_launch("deinterleave of a Fourier transform");
}

}  // namespace

std::unique_ptr<Kernel> plan_fft(const PlanRequest& request) {
  const TensorSpec& spec = request.inputs[0];
  const FftSizes sizes = fft_sizes(spec, spec.shape.back());
  const bool inverse = request.attributes.get_bool("inverse");
  const double scale = request.attributes.get_double("scale");
  return dispatch_floating("fft", spec.dtype, [&]<typename T>(Type<T>) {
    using C = compute_t<T>;
    const Transform<T> transform("fft", CUFFT_C2C, CUFFT_Z2Z, sizes, sizes.lines * sizes.length, 0);
    return make_early_kernel(
        "cuFFT complex to complex",
        [=](const KernelArgs& args) {
          if (!transform.plan) return;
          launch_interleave(args, transform, whole_factors<C>(sizes, 1.0));
          Pair<C>* const pairs = transform.pairs_in(args);
          transform.run(args, pairs, pairs, transform.pair_bytes, inverse);
          launch_deinterleave(args, transform, whole_factors<C>(sizes, scale));
        },
        transform.workspace_bytes());
  });
}

std::unique_ptr<Kernel> plan_rfft(const PlanRequest& request) {
  const TensorSpec& spec = request.inputs[0];
  const FftSizes sizes = fft_sizes(spec, spec.shape.back());
  return dispatch_floating("rfft", spec.dtype, [&]<typename T>(Type<T>) {
    using C = compute_t<T>;
    const Factors<C> factors = half_factors<C>(sizes, request.attributes);
    const Transform<T> transform("rfft", CUFFT_R2C, CUFFT_D2Z, sizes, sizes.lines * sizes.half(),
                                 sizes.lines * sizes.length);
    return make_kernel(
        "cuFFT real to complex",
        [=](const KernelArgs& args) {
          if (!transform.plan) return;
          // cuFFT only reads real numbers.
          void* from = const_cast<T*>(input<T>(args, 0));
          if constexpr (is_narrow<T>) {
            widen<T><<<grid_for(transform.reals), kThreads, 0,
                       static_cast<cudaStream_t>(args.stream)>>>(
                input<T>(args, 0), transform.reals_in(args), transform.reals);
            check_launch("rfft");
            from = transform.reals_in(args);
          }
          transform.run(args, from, transform.pairs_in(args), transform.pair_bytes, false);
          launch_deinterleave(args, transform, factors);
        },
        transform.workspace_bytes());
  });
}

std::unique_ptr<Kernel> plan_irfft(const PlanRequest& request) {
  const TensorSpec& spec = request.inputs[0];
  const FftSizes sizes = fft_sizes(spec, request.attributes.get_int("length"));
  return dispatch_floating("irfft", spec.dtype, [&]<typename T>(Type<T>) {
    using C = compute_t<T>;
    const Factors<C> factors = half_factors<C>(sizes, request.attributes);
    const Transform<T> transform("irfft", CUFFT_C2R, CUFFT_Z2D, sizes, sizes.lines * sizes.half(),
                                 sizes.lines * sizes.length);
    return make_early_kernel(
        "cuFFT complex to real",
        [=](const KernelArgs& args) {
          if (!transform.plan) return;
          launch_interleave(args, transform, factors);
          void* const to = is_narrow<T> ? static_cast<void*>(transform.reals_in(args))
                                        : static_cast<void*>(output<T>(args, 0));
          transform.run(args, transform.pairs_in(args), to,
                        transform.reals * static_cast<int64_t>(sizeof(C)), true);
          if constexpr (is_narrow<T>) {
            narrow<T><<<grid_for(transform.reals), kThreads, 0,
                        static_cast<cudaStream_t>(args.stream)>>>(
                transform.reals_in(args), output<T>(args, 0), transform.reals);
            check_launch("irfft");
          }
        },
        transform.workspace_bytes());
  });
}

}  // namespace kerascnn::cuda
