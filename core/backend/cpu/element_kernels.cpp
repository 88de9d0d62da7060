#include "core/backend/cpu/element_kernels.h"

#include "core/backend/cpu/broadcast.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/memory_ahead.h"
#include "core/backend/cpu/parallel.h"

namespace kerascnn::cpu {

namespace {

const char* at(const void* data, int64_t bytes) { return static_cast<const char*>(data) + bytes; }
char* at(void* data, int64_t bytes) { return static_cast<char*>(data) + bytes; }

class FloatBinary {
 public:
  FloatBinary(BinaryLoop loop, ElementLoop contiguous, double parameter)
      : loop_(loop), contiguous_(contiguous), parameter_(parameter) {}

  void operator()(const float* a, int64_t a_step, const float* b, int64_t b_step, void* out,
                  int64_t count) const {
    const bool is_pair = a_step == 1 && b_step == 1;
    const bool is_with_one = a_step + b_step == 1 && (a_step == 0 || b_step == 0);
    if (contiguous_ == nullptr || !(is_pair || (is_with_one && count >= kFewest))) {
      return loop_(a, a_step, b, b_step, out, count, parameter_);
    }
    auto* const to = static_cast<float*>(out);
    const auto p = static_cast<float>(parameter_);
    if (is_pair) return run_element_loop(contiguous_, a, b, to, count, p, 0.0f);
    float one[kBlock];
    std::fill_n(one, std::min(kBlock, count), a_step == 0 ? *a : *b);
    for (int64_t i = 0; i < count; i += kBlock) {
      contiguous_(a_step == 0 ? one : a + i, b_step == 0 ? one : b + i, to + i,
                  std::min(kBlock, count - i), p, 0.0f);
    }
  }

 private:
  // One number for all elements becomes a block of them, where that is worth it.
  static constexpr int64_t kBlock = 512, kFewest = 32;

  BinaryLoop loop_;
  ElementLoop contiguous_;
  double parameter_;
};

// Brings a block of an operand side by side as float32; it is one element where the step is 0.
template <typename T>
void widen_block(const T* from, int64_t step, float* to, int64_t count) {
  if (step == 1) {
    widen(from, to, count);
  } else {
    const int64_t elements = step == 0 ? 1 : count;
    for (int64_t i = 0; i < elements; ++i) to[i] = static_cast<float>(from[i * step]);
  }
}

template <typename T>
void run_widened(const FloatBinary& binary, const T* a, int64_t a_step, const T* b, int64_t b_step,
                 void* out, bool out_is_bool, int64_t count) {
  const T* const asked_a = a_step == 1 ? a : nullptr;
  const T* const asked_b = b_step == 1 ? b : nullptr;
  T* const asked_out = out_is_bool ? nullptr : static_cast<T*>(out);
  for_each_block_ahead(count, asked_a, asked_b, asked_out, [&](int64_t i, int64_t some) {
    float wide_a[kAheadBlock], wide_b[kAheadBlock], wide_out[kAheadBlock];
    widen_block(a + i * a_step, a_step, wide_a, some);
    widen_block(b + i * b_step, b_step, wide_b, some);
    void* to = out_is_bool ? static_cast<void*>(static_cast<bool*>(out) + i) : wide_out;
    binary(wide_a, a_step != 0, wide_b, b_step != 0, to, some);
    if (!out_is_bool) narrow(wide_out, static_cast<T*>(out) + i, some);
  });
}

// Calls run(a, a_step, b, b_step, out, count), with steps in elements, for each piece of the
// output that needs no other steps.
template <typename Run>
std::unique_ptr<Kernel> make_broadcasting_kernel(const PlanRequest& request, Run run) {
  const BroadcastGeometry geometry = broadcast_geometry(request.outputs[0].shape, request.inputs);
  const int64_t in_bytes = itemsize(request.inputs[0].dtype);
  const int64_t out_bytes = itemsize(request.outputs[0].dtype);
  return make_kernel("kerascnn elementwise", [=](const KernelArgs& args) {
    const int64_t a_step = geometry.strides[0].back();
    const int64_t b_step = geometry.strides[1].back();
    parallel_for(geometry.size, kElementGrain, [&](int64_t begin, int64_t end) {
      for_each_run<2>(geometry, begin, end,
                      [&](int64_t position, const auto& offsets, int64_t count) {
                        run(at(args.inputs[0], offsets[0] * in_bytes), a_step,
                            at(args.inputs[1], offsets[1] * in_bytes), b_step,
                            at(args.outputs[0], position * out_bytes), count);
                      });
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_unary_kernel(const PlanRequest& request, UnaryLoop loop, double p0,
                                          double p1, const char* description) {
  const int64_t size = size_of(request.outputs[0]);
  const int64_t in_bytes = itemsize(request.inputs[0].dtype);
  const int64_t out_bytes = itemsize(request.outputs[0].dtype);
  return make_kernel(description, [=](const KernelArgs& args) {
    parallel_for(size, kElementGrain, [&](int64_t begin, int64_t end) {
      loop(at(args.inputs[0], begin * in_bytes), at(args.outputs[0], begin * out_bytes),
           end - begin, p0, p1);
    });
  });
}

std::unique_ptr<Kernel> make_float_unary_kernel(const PlanRequest& request, ElementLoop loop,
                                                double p0, double p1) {
  const int64_t size = size_of(request.outputs[0]);
  const float narrow_p0 = static_cast<float>(p0), narrow_p1 = static_cast<float>(p1);
  auto plan = [&]<typename T>(Type<T>) {
    return make_kernel("kerascnn elementwise", [=](const KernelArgs& args) {
      parallel_for(size, kElementGrain, [&](int64_t begin, int64_t end) {
        run_element_loop<T>(loop, input<T>(args, 0) + begin, nullptr, output<T>(args, 0) + begin,
                            end - begin, narrow_p0, narrow_p1);
      });
    });
  };
  return dispatch<Half, BFloat16, float>(request, request.inputs[0].dtype, plan);
}

std::unique_ptr<Kernel> make_binary_kernel(const PlanRequest& request, BinaryLoop loop,
                                           double parameter) {
  return make_broadcasting_kernel(
      request, [=](const void* a, int64_t a_step, const void* b, int64_t b_step, void* out,
                   int64_t count) { loop(a, a_step, b, b_step, out, count, parameter); });
}

std::unique_ptr<Kernel> make_float_binary_kernel(const PlanRequest& request, BinaryLoop loop,
                                                 ElementLoop contiguous, double parameter) {
  const FloatBinary binary(loop, contiguous, parameter);
  const bool out_is_bool = request.outputs[0].dtype == DType::Bool;
  auto plan = [&]<typename T>(Type<T>) {
    return make_broadcasting_kernel(request, [=](const void* a, int64_t a_step, const void* b,
                                                 int64_t b_step, void* out, int64_t count) {
      const T* typed_a = static_cast<const T*>(a);
      const T* typed_b = static_cast<const T*>(b);
      if constexpr (std::is_same_v<T, float>) {
        binary(typed_a, a_step, typed_b, b_step, out, count);
      } else {
        run_widened(binary, typed_a, a_step, typed_b, b_step, out, out_is_bool, count);
      }
    });
  };
  return dispatch<Half, BFloat16, float>(request, request.inputs[0].dtype, plan);
}

}  // namespace kerascnn::cpu
