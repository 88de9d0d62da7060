// Fourier transforms, by the functions of host_fft.h. They take complex numbers as pairs: each
// thread brings real and imaginary parts of its lines together in the workspace, and takes them
// apart there.
#include "core/ops/fft.h"

#include <array>
#include <atomic>
#include <bit>

#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/backend/host_fft.h"

namespace kerascnn::cpu {
namespace {

// A transform costs about ten times as much as a simple function of its elements.
int64_t fft_grain(const FftSizes& sizes) { return kElementGrain / 8 / sizes.length + 1; }

template <typename C>
const HostFftLoops& loops_of(std::string_view op) {
  const HostFft& functions = host_fft(op);
  if constexpr (std::is_same_v<C, double>) return functions.of_double;
  return functions.of_float;
}

// A NaN that no computation gives. If a result still has it, nothing has been computed.
template <typename C>
C untouched() {
  if constexpr (std::is_same_v<C, double>) {
    return std::bit_cast<double>(uint64_t{0x7ff8c0ffee0ff1ce});
  } else {
    return std::bit_cast<float>(uint32_t{0x7fe0ff1c});
  }
}

// Lines of `length` elements, each of `reals` numbers: 1 for real ones, 2 for complex ones.
template <typename C>
struct Lines {
  C* data;
  int64_t width;
  int reals;

  C* line(int64_t index) const { return data + index * width * reals; }
  intptr_t element_bytes() const { return static_cast<intptr_t>(sizeof(C)) * reals; }
};

// The only error that a loop can meet is a lack of memory, which it tells Python alone.
template <typename C>
bool transform(const HostFftLoop& loop, C factor, const Lines<C>& from, const Lines<C>& to,
               int64_t begin, int64_t end) {
  C* const result = to.line(begin);
  const C mark = untouched<C>();
  *result = mark;
  std::array<char*, 3> arguments = {reinterpret_cast<char*>(from.line(begin)),
                                    reinterpret_cast<char*>(&factor),
                                    reinterpret_cast<char*>(result)};
  const std::array<intptr_t, 3> sizes = {static_cast<intptr_t>(end - begin),
                                         static_cast<intptr_t>(from.width),
                                         static_cast<intptr_t>(to.width)};
  const std::array<intptr_t, 5> strides = {from.element_bytes() * sizes[1], 0,
                                           to.element_bytes() * sizes[2], from.element_bytes(),
                                           to.element_bytes()};
  loop.function(arguments.data(), sizes.data(), strides.data(), loop.data);
  return std::memcmp(result, &mark, sizeof(C)) != 0;
}

// Calls body(begin, end), which says whether it succeeded, on ranges of lines.
template <typename Body>
void for_lines(std::string_view op, const FftSizes& sizes, const Body& body) {
  if (sizes.lines == 0) return;
  std::atomic<bool> has_failed{false};
  parallel_for(sizes.lines, fft_grain(sizes), [&](int64_t begin, int64_t end) {
    if (!body(begin, end)) has_failed.store(true, std::memory_order_relaxed);
  });
  if (has_failed) {
    throw LibraryError(message(op, ": NumPy had no memory for a transform of ", sizes.length,
                               " elements; free some, or transform fewer at a time"));
  }
}

// Elements of lines between `begin` and `end`; factor(k) for element k of a line.
template <typename T, typename C, typename Factor>
void interleave(const T* real, const T* imaginary, const Lines<C>& to, int64_t begin, int64_t end,
                const Factor& factor) {
  for (int64_t line = begin; line < end; ++line) {
    C* const pairs = to.line(line);
    const int64_t first = line * to.width;
    for (int64_t k = 0; k < to.width; ++k) {
      pairs[2 * k] = factor(k) * static_cast<C>(real[first + k]);
      pairs[2 * k + 1] = factor(k) * static_cast<C>(imaginary[first + k]);
    }
  }
}

template <typename T, typename C, typename Factor>
void deinterleave(const Lines<C>& from, T* real, T* imaginary, int64_t begin, int64_t end,
                  const Factor& factor) {
  for (int64_t line = begin; line < end; ++line) {
    const C* const pairs = from.line(line);
    const int64_t first = line * from.width;
    for (int64_t k = 0; k < from.width; ++k) {
      real[first + k] = static_cast<T>(factor(k) * pairs[2 * k]);
      imaginary[first + k] = static_cast<T>(factor(k) * pairs[2 * k + 1]);
    }
  }
}

template <typename C>
auto no_factor() {
  return [](int64_t) { return C(1); };
}

// The factor `middle` of the elements of a half that stand for two.
template <typename C>
auto half_factor(const FftSizes& sizes, double middle) {
  return [sizes, middle = static_cast<C>(middle)](int64_t k) {
    return sizes.is_own(k) ? C(1) : middle;
  };
}

template <typename C>
int64_t bytes_of(int64_t numbers) {
  return align_up(numbers * static_cast<int64_t>(sizeof(C)));
}

template <typename C>
C* workspace_at(const KernelArgs& args, int64_t bytes) {
  return reinterpret_cast<C*>(static_cast<char*>(args.workspace) + bytes);
}

}  // namespace

std::unique_ptr<Kernel> plan_fft(const PlanRequest& request) {
  const TensorSpec& spec = request.inputs[0];
  const FftSizes sizes = fft_sizes(spec, spec.shape.back());
  const double scale = request.attributes.get_double("scale");
  const bool inverse = request.attributes.get_bool("inverse");
  return dispatch_floating(request, spec.dtype, [&]<typename T>(Type<T>) {
    using C = compute_t<T>;
    const HostFftLoops& loops = loops_of<C>("fft");
    const HostFftLoop loop = inverse ? loops.backward : loops.forward;
    const int64_t bytes = bytes_of<C>(2 * sizes.lines * sizes.length);
    return make_kernel(
        host_fft("fft").name,
        [=](const KernelArgs& args) {
          const Lines<C> from{workspace_at<C>(args, 0), sizes.length, 2};
          const Lines<C> to{workspace_at<C>(args, bytes), sizes.length, 2};
          for_lines("fft", sizes, [&](int64_t begin, int64_t end) {
            interleave(input<T>(args, 0), input<T>(args, 1), from, begin, end, no_factor<C>());
            if (!transform(loop, static_cast<C>(scale), from, to, begin, end)) return false;
            deinterleave(to, output<T>(args, 0), output<T>(args, 1), begin, end, no_factor<C>());
            return true;
          });
        },
        2 * bytes);
  });
}

std::unique_ptr<Kernel> plan_rfft(const PlanRequest& request) {
  const TensorSpec& spec = request.inputs[0];
  const FftSizes sizes = fft_sizes(spec, spec.shape.back());
  const double scale = request.attributes.get_double("scale");
  const double middle = request.attributes.get_double("middle");
  return dispatch_floating(request, spec.dtype, [&]<typename T>(Type<T>) {
    using C = compute_t<T>;
    const HostFftLoops& loops = loops_of<C>("rfft");
    const HostFftLoop loop = sizes.length % 2 == 0 ? loops.real_even : loops.real_odd;
    const auto factor = half_factor<C>(sizes, middle);
    const int64_t bytes = bytes_of<C>(2 * sizes.lines * sizes.half());
    const int64_t real_bytes = is_narrow_float<T> ? bytes_of<C>(sizes.lines * sizes.length) : 0;
    return make_kernel(
        host_fft("rfft").name,
        [=](const KernelArgs& args) {
          const T* const x = input<T>(args, 0);
          Lines<C> from{nullptr, sizes.length, 1};
          if constexpr (is_narrow_float<T>) {
            from.data = workspace_at<C>(args, bytes);
          } else {
            from.data = const_cast<C*>(x);  // loops only read their input
          }
          const Lines<C> to{workspace_at<C>(args, 0), sizes.half(), 2};
          for_lines("rfft", sizes, [&](int64_t begin, int64_t end) {
            if constexpr (is_narrow_float<T>) {
              for (int64_t i = begin * sizes.length; i < end * sizes.length; ++i) {
                from.data[i] = static_cast<C>(x[i]);
              }
            }
            if (!transform(loop, static_cast<C>(scale), from, to, begin, end)) return false;
            deinterleave(to, output<T>(args, 0), output<T>(args, 1), begin, end, factor);
            return true;
          });
        },
        bytes + real_bytes);
  });
}

std::unique_ptr<Kernel> plan_irfft(const PlanRequest& request) {
  const TensorSpec& spec = request.inputs[0];
  const FftSizes sizes = fft_sizes(spec, request.attributes.get_int("length"));
  const double scale = request.attributes.get_double("scale");
  const double middle = request.attributes.get_double("middle");
  return dispatch_floating(request, spec.dtype, [&]<typename T>(Type<T>) {
    using C = compute_t<T>;
    const HostFftLoop loop = loops_of<C>("irfft").to_real;
    const auto factor = half_factor<C>(sizes, middle);
    const int64_t bytes = bytes_of<C>(2 * sizes.lines * sizes.half());
    const int64_t real_bytes = is_narrow_float<T> ? bytes_of<C>(sizes.lines * sizes.length) : 0;
    return make_kernel(
        host_fft("irfft").name,
        [=](const KernelArgs& args) {
          T* const y = output<T>(args, 0);
          const Lines<C> from{workspace_at<C>(args, 0), sizes.half(), 2};
          Lines<C> to{nullptr, sizes.length, 1};
          if constexpr (is_narrow_float<T>) {
            to.data = workspace_at<C>(args, bytes);
          } else {
            to.data = y;
          }
          for_lines("irfft", sizes, [&](int64_t begin, int64_t end) {
            interleave(input<T>(args, 0), input<T>(args, 1), from, begin, end, factor);
            if (!transform(loop, static_cast<C>(scale), from, to, begin, end)) return false;
            if constexpr (is_narrow_float<T>) {
              for (int64_t i = begin * sizes.length; i < end * sizes.length; ++i) {
                y[i] = static_cast<T>(to.data[i]);
              }
            }
            return true;
          });
        },
        bytes + real_bytes);
  });
}

}  // namespace kerascnn::cpu
