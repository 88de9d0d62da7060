// These kernels run LSTMs and GRUs over whole sequences. Each thread has its own rows of the batch.
#include "core/ops/recurrent.h"

#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/backend/cpu/recurrent_generic.h"
#include "core/backend/cpu/recurrent_kernels.h"
#include "core/backend/cpu/widen.h"

namespace kerascnn::cpu {
namespace {

// So many products are worth a thread of their own.
constexpr int64_t kProductGrain = 1 << 17;

int64_t row_grain(const RecurrentSizes& s) {
  const int64_t products = s.time * s.units * s.units * s.gates();
  return kProductGrain / std::max<int64_t>(products, 1) + 1;
}

// Where the parts of the workspace begin, in floats.
struct ScratchLayout {
  int64_t states = 0, gradients = 0, total = 0;

  ScratchLayout(const RecurrentSizes& s, bool is_gradient)
      : states(aligned(s.gates() * s.units * padded_units(s))),
        gradients(states + 3 * s.batch * padded_units(s)),
        total(gradients + (is_gradient ? s.batch * gradient_row(s) : 0)) {}

  static int64_t aligned(int64_t floats) {
    return align_up(floats * static_cast<int64_t>(sizeof(float))) /
           static_cast<int64_t>(sizeof(float));
  }
  RecurrentScratch scratch(void* workspace, const RecurrentSizes& s) const {
    auto* memory = static_cast<float*>(workspace);
    const int64_t state = s.batch * padded_units(s);
    float* first = memory + states;
    return {memory, {first, first + state}, first + 2 * state, memory + gradients};
  }
};

// `pack` and `steps` are members of RecurrentKernels; `buffers` gives the buffers of the steps for
// those of a call.
template <typename Pack, typename Steps, typename Buffers>
std::unique_ptr<Kernel> plan_vectors(const RecurrentSizes& s, bool is_gradient, Pack pack,
                                     Steps steps, const Buffers& buffers) {
  const ScratchLayout layout(s, is_gradient);
  const RecurrentKernels& kernels = recurrent_kernels();
  const auto run = [=, &kernels](const KernelArgs& args) {
    const auto b = buffers(args);
    const RecurrentScratch scratch = layout.scratch(args.workspace, s);
    auto* packed = static_cast<float*>(args.workspace);
    const int64_t block = s.gates() * s.units * kUnitAlignment;
    parallel_for(
        padded_units(s) / kUnitAlignment, kElementGrain / block + 1,
        [&](int64_t first, int64_t last) { (kernels.*pack)(s, b.kernel, packed, first, last); });
    parallel_for(s.batch, row_grain(s), [&](int64_t first, int64_t last) {
      (kernels.*steps)(s, b, scratch, first, last);
    });
  };
  return make_kernel(std::string("kerascnn ") + (s.is_lstm ? "LSTM " : "GRU ") + kernels.name, run,
                     layout.total * static_cast<int64_t>(sizeof(float)));
}

template <typename Steps>
std::unique_ptr<Kernel> plan_generic(const RecurrentSizes& s, const Steps& steps) {
  const int64_t row_bytes = align_up(GenericRecurrence::scratch_size(s) * 8);
  const auto run = [=](const KernelArgs& args) {
    parallel_for(s.batch, row_grain(s), [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        auto* memory = static_cast<char*>(args.workspace) + row * row_bytes;
        steps(args, row, reinterpret_cast<double*>(memory));
      }
    });
  };
  return make_kernel(s.is_lstm ? "kerascnn LSTM" : "kerascnn GRU", run, s.batch * row_bytes);
}

std::unique_ptr<Kernel> plan_forward(const PlanRequest& request) {
  const RecurrentSizes s = recurrent_sizes(request.op, request.attributes, request.inputs);
  if (request.outputs[0].dtype == DType::Float64) {
    return plan_generic(s, [s](const KernelArgs& args, int64_t row, double* memory) {
      GenericRecurrence(s, memory).forward(recurrent_forward<double>(s, args.inputs, args.outputs),
                                           row);
    });
  }
  return plan_vectors(s, false, &RecurrentKernels::pack, &RecurrentKernels::forward,
                      [s](const KernelArgs& args) {
                        return recurrent_forward<float>(s, args.inputs, args.outputs);
                      });
}

std::unique_ptr<Kernel> plan_backward(const PlanRequest& request) {
  const RecurrentSizes s = recurrent_sizes(request.op, request.attributes, request.inputs);
  const RecurrentGradientInputs places = recurrent_gradient_inputs(request.op, request.attributes);
  if (request.outputs[0].dtype == DType::Float64) {
    return plan_generic(s, [s, places](const KernelArgs& args, int64_t row, double* memory) {
      GenericRecurrence(s, memory).backward(
          recurrent_backward<double>(s, places, args.inputs, args.outputs), row);
    });
  }
  return plan_vectors(s, true, &RecurrentKernels::pack_transposed, &RecurrentKernels::backward,
                      [s, places](const KernelArgs& args) {
                        return recurrent_backward<float>(s, places, args.inputs, args.outputs);
                      });
}

std::unique_ptr<Kernel> plan_any(const PlanRequest& request, PlanFunction plan) {
  return is_narrow(request.outputs[0].dtype) ? plan_in_float32(request, plan) : plan(request);
}

}  // namespace

// x (n, t, 4u), h0, c0 (n, u), kernel (u, 4u), [mask (n, t)] -> last h, last c (n, u), [outputs
// (n, t, u), gates (n, t, 4u), cells, previous (n, t, u)]
std::unique_ptr<Kernel> plan_lstm(const PlanRequest& request) {
  return plan_any(request, plan_forward);
}

// x (n, t, 3u), h0 (n, u), kernel (u, 3u), bias (3u), [mask (n, t)] -> last h (n, u), [outputs
// (n, t, u), gates (n, t, 4u), previous (n, t, u)]
std::unique_ptr<Kernel> plan_gru(const PlanRequest& request) {
  return plan_any(request, plan_forward);
}

// kernel, gates, cells, c0, [mask, gradients of the last h, of the last c, of the outputs] ->
// gradient of x, [of h0, of c0]
std::unique_ptr<Kernel> plan_lstm_grad(const PlanRequest& request) {
  return plan_any(request, plan_backward);
}

// kernel, gates, previous, [mask, gradients of the last h, of the outputs] -> gradient of x, [of
// the products with the kernel, of h0]
std::unique_ptr<Kernel> plan_gru_grad(const PlanRequest& request) {
  return plan_any(request, plan_backward);
}

}  // namespace kerascnn::cpu
