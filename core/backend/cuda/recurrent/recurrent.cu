// LSTMs and GRUs over whole sequences, of any size and dtype. Each step is a launch, which computes
// the products of the step and what follows them. States are float32 also for 16-bit dtypes.
#include "core/backend/cuda/recurrent/recurrent.h"

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/ops/recurrent_cells.h"

namespace kerascnn::cuda {
namespace {

// A block computes a tile of kTile rows by kTile units, and each thread computes one element;
// products are computed in pieces of kTile summands.
constexpr int kTile = 16;

// What one step reads and writes; pointers to a batch of states are to (batch, units) numbers.
template <typename T>
struct ForwardStep {
  RecurrentSizes sizes;
  RecurrentForward<T> buffers;
  int64_t step;
  const compute_t<T>* h;  // before the step, and after it
  compute_t<T>* next;
  compute_t<T>* c;
};

template <typename T>
__global__ void __launch_bounds__(kTile* kTile)
    copy_states(int64_t count, const T* h, const T* c, compute_t<T>* to_h, compute_t<T>* to_c) {
  begin_kernel();
  for (int64_t i = first_item(); i < count; i += item_step()) {
    to_h[i] = h == nullptr ? compute_t<T>(0) : load(h[i]);
    if (to_c != nullptr) to_c[i] = c == nullptr ? compute_t<T>(0) : load(c[i]);
  }
}

template <typename T>
__global__ void __launch_bounds__(kTile* kTile)
    store_states(int64_t count, const compute_t<T>* h, const compute_t<T>* c, T* to_h, T* to_c) {
  begin_kernel();
  for (int64_t i = first_item(); i < count; i += item_step()) {
    if (to_h != nullptr) to_h[i] = store<T>(h[i]);
    if (to_c != nullptr) to_c[i] = store<T>(c[i]);
  }
}

// sums[gate] = h[row] . kernel[:, gate * units + unit], for this thread's row and unit.
template <typename T, int gates>
__device__ void multiply_states(const ForwardStep<T>& p, int64_t first_row, int64_t first_unit,
                                compute_t<T> (&sums)[4]) {
  using A = compute_t<T>;
  __shared__ A states[kTile][kTile + 1];
  __shared__ A weights[gates][kTile][kTile];
  const int column = threadIdx.x % kTile, line = threadIdx.x / kTile;
  const int64_t units = p.sizes.units;
  const int64_t row = first_row + line, unit = first_unit + column;
  for (int64_t k = 0; k < units; k += kTile) {
    states[line][column] =
        row < p.sizes.batch && k + column < units ? p.h[row * units + k + column] : A(0);
    for (int gate = 0; gate < gates; ++gate) {
      const int64_t at = (k + line) * gates * units + gate * units + unit;
      weights[gate][line][column] =
          k + line < units && unit < units ? load(p.buffers.kernel[at]) : A(0);
    }
    __syncthreads();
    for (int i = 0; i < kTile; ++i) {
      for (int gate = 0; gate < gates; ++gate) {
        sums[gate] += states[line][i] * weights[gate][i][column];
      }
    }
    __syncthreads();
  }
}

template <typename T, int gates>
__device__ void finish_step(const ForwardStep<T>& p, int64_t row, int64_t unit,
                            const compute_t<T> (&sums)[4]) {
  using A = compute_t<T>;
  const RecurrentForward<T>& b = p.buffers;
  const int64_t units = p.sizes.units, at = row * units + unit;
  const int64_t time = row * p.sizes.time + p.sizes.position(p.step);
  const T* x = b.x + time * gates * units + unit;
  const A before = p.h[at];
  A values[4];
  A c = 0, h = before;
  if constexpr (gates == 4) {
    for (int gate = 0; gate < 4; ++gate) {
      const A sum = sums[gate] + load(x[gate * units]);
      values[gate] = gate == 2 ? element::tanh(sum) : element::sigmoid(sum);
    }
    c = p.c[at];
    recurrent::lstm_state(values, c, h);
  } else {
    for (int gate = 0; gate < 2; ++gate) {
      values[gate] =
          element::sigmoid(sums[gate] + load(x[gate * units]) + load(b.bias[gate * units + unit]));
    }
    values[2] = load(x[2 * units]);
    values[3] = sums[2] + load(b.bias[2 * units + unit]);
    recurrent::gru_state(values, h);
  }
  if (b.mask != nullptr && !b.mask[time]) {
    h = before;
    if constexpr (gates == 4) c = p.c[at];
  }
  p.next[at] = h;
  if constexpr (gates == 4) p.c[at] = c;
  if (b.outputs != nullptr) b.outputs[time * units + unit] = store<T>(h);
  if (b.previous != nullptr) b.previous[time * units + unit] = store<T>(before);
  if (b.cells != nullptr) b.cells[time * units + unit] = store<T>(c);
  if (b.gates != nullptr) {
    T* to = b.gates + time * kSavedGates * units + unit;
    for (int gate = 0; gate < kSavedGates; ++gate) to[gate * units] = store<T>(values[gate]);
  }
}

template <typename T, int gates>
__global__ void __launch_bounds__(kTile* kTile) forward_step(const ForwardStep<T> p) {
  begin_kernel();
  const int64_t first_unit = static_cast<int64_t>(blockIdx.x) * kTile;
  for (int64_t first = static_cast<int64_t>(blockIdx.y) * kTile; first < p.sizes.batch;
       first += static_cast<int64_t>(gridDim.y) * kTile) {
    compute_t<T> sums[4] = {};
    multiply_states<T, gates>(p, first, first_unit, sums);
    const int64_t row = first + threadIdx.x / kTile, unit = first_unit + threadIdx.x % kTile;
    if (row < p.sizes.batch && unit < p.sizes.units) finish_step<T, gates>(p, row, unit, sums);
  }
}

// A step of the gradient: first of the states after it, from the gates of the step after it, then
// of its own gates. Step -1 stands for the first states.
template <typename T>
struct BackwardStep {
  RecurrentSizes sizes;
  RecurrentBackward<T> buffers;
  int64_t step;
  const compute_t<T>* gradients;  // (batch, gates * units), of the step after this one
  compute_t<T>* next;             // of this one
  compute_t<T>* h;                // the part that has not gone through the gates
  compute_t<T>* c;
};

// The sum over all gates of gradients[row] . kernel[unit], for this thread's row and unit.
template <typename T, int gates>
__device__ compute_t<T> multiply_gradients(const BackwardStep<T>& p, int64_t first_row,
                                           int64_t first_unit) {
  using A = compute_t<T>;
  __shared__ A gradients[kTile][kTile + 1];
  __shared__ A weights[kTile][kTile + 1];
  const int column = threadIdx.x % kTile, line = threadIdx.x / kTile;
  const int64_t units = p.sizes.units, columns = gates * units;
  const int64_t row = first_row + line, unit = first_unit + line;
  A sum = 0;
  for (int64_t k = 0; k < columns; k += kTile) {
    const int64_t at = k + column;
    gradients[line][column] =
        row < p.sizes.batch && at < columns ? p.gradients[row * columns + at] : A(0);
    weights[line][column] =
        unit < units && at < columns ? load(p.buffers.kernel[unit * columns + at]) : A(0);
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += gradients[line][i] * weights[column][i];
    __syncthreads();
  }
  return sum;
}

template <typename T, int gates>
__device__ void finish_gradient(const BackwardStep<T>& p, int64_t row, int64_t unit,
                                compute_t<T> gh) {
  using A = compute_t<T>;
  const RecurrentBackward<T>& b = p.buffers;
  const int64_t units = p.sizes.units, at = row * units + unit;
  const int64_t time = row * p.sizes.time + p.sizes.position(p.step);
  if (b.outputs != nullptr) gh += load(b.outputs[time * units + unit]);
  A gradients[4] = {};
  if (b.mask == nullptr || b.mask[time]) {
    A values[4];
    const T* from = b.gates + time * kSavedGates * units + unit;
    for (int gate = 0; gate < kSavedGates; ++gate) values[gate] = load(from[gate * units]);
    if constexpr (gates == 4) {
      const T* cell = b.cells + time * units + unit;
      const T* before = p.step == 0 ? b.c0 + at : cell + (p.sizes.reverse ? units : -units);
      A gc = p.c[at];
      recurrent::lstm_gradient(values, load(*cell), load(*before), gh, gc, gradients);
      p.c[at] = gc;
    } else {
      recurrent::gru_gradient(values, load(b.previous[time * units + unit]), gh, gradients);
    }
  }
  p.h[at] = gh;
  for (int gate = 0; gate < gates; ++gate) {
    const int64_t to = time * gates * units + gate * units + unit;
    b.x[to] = store<T>(gradients[gate]);
    const A recurrent = gradients[gates == 3 && gate == 2 ? 3 : gate];
    p.next[row * gates * units + gate * units + unit] = recurrent;
    if (b.recurrent != nullptr) b.recurrent[to] = store<T>(recurrent);
  }
}

template <typename T, int gates>
__global__ void __launch_bounds__(kTile* kTile) backward_step(const BackwardStep<T> p) {
  begin_kernel();
  const int64_t first_unit = static_cast<int64_t>(blockIdx.x) * kTile;
  for (int64_t first = static_cast<int64_t>(blockIdx.y) * kTile; first < p.sizes.batch;
       first += static_cast<int64_t>(gridDim.y) * kTile) {
    compute_t<T> gh = 0;
    if (p.step < p.sizes.time - 1) gh = multiply_gradients<T, gates>(p, first, first_unit);
    const int64_t row = first + threadIdx.x / kTile, unit = first_unit + threadIdx.x % kTile;
    if (row >= p.sizes.batch || unit >= p.sizes.units) continue;
    gh += p.h[row * p.sizes.units + unit];
    if (p.step < 0) {
      p.h[row * p.sizes.units + unit] = gh;
    } else {
      finish_gradient<T, gates>(p, row, unit, gh);
    }
  }
}

dim3 step_grid(const RecurrentSizes& s) {
  return {static_cast<unsigned>(ceil_div(s.units, kTile)), grid_for(s.batch, kTile)};
}

template <typename T, int gates>
std::unique_ptr<Kernel> plan_forward(const RecurrentSizes& s) {
  using A = compute_t<T>;
  const int64_t state = s.batch * s.units;
  const auto run = [=](const KernelArgs& args) {
    if (state == 0) return;
    const auto stream = static_cast<cudaStream_t>(args.stream);
    const auto b = recurrent_forward<T>(s, args.inputs, args.outputs);
    A* memory = static_cast<A*>(args.workspace);
    A* c = memory + 2 * state;
    copy_states<T><<<grid_for(state), kThreads, 0, stream>>>(state, b.h0, b.c0, memory, c);
    check_launch("recurrent states");
    for (int64_t step = 0; step < s.time; ++step) {
      const ForwardStep<T> p = {
          s, b, step, memory + step % 2 * state, memory + (step + 1) % 2 * state, c};
      forward_step<T, gates><<<step_grid(s), kTile * kTile, 0, stream>>>(p);
      check_launch("recurrent step");
    }
    store_states<T><<<grid_for(state), kThreads, 0, stream>>>(state, memory + s.time % 2 * state, c,
                                                              b.last_h, b.last_c);
    check_launch("recurrent states");
  };
  return make_early_kernel(gates == 4 ? "kerascnn LSTM steps" : "kerascnn GRU steps", run,
                           3 * state * static_cast<int64_t>(sizeof(A)));
}

template <typename T, int gates>
std::unique_ptr<Kernel> plan_backward(const RecurrentSizes& s,
                                      const RecurrentGradientInputs& places) {
  using A = compute_t<T>;
  const int64_t state = s.batch * s.units;
  const auto run = [=](const KernelArgs& args) {
    if (state == 0) return;
    const auto stream = static_cast<cudaStream_t>(args.stream);
    const auto b = recurrent_backward<T>(s, places, args.inputs, args.outputs);
    A* h = static_cast<A*>(args.workspace);
    A* c = h + state;
    A* gradients = c + state;
    copy_states<T><<<grid_for(state), kThreads, 0, stream>>>(state, b.last_h, b.last_c, h, c);
    check_launch("recurrent states");
    const int64_t last = b.h0 == nullptr ? 0 : -1;
    for (int64_t step = s.time - 1; step >= last; --step) {
      const int64_t size = gates * state;
      const BackwardStep<T> p = {
          s, b, step, gradients + (step + 1) % 2 * size, gradients + (step + 2) % 2 * size, h, c};
      backward_step<T, gates><<<step_grid(s), kTile * kTile, 0, stream>>>(p);
      check_launch("recurrent step");
    }
    store_states<T><<<grid_for(state), kThreads, 0, stream>>>(state, h, c, b.h0, b.c0_gradient);
    check_launch("recurrent states");
  };
  return make_early_kernel(
      gates == 4 ? "kerascnn LSTM gradient steps" : "kerascnn GRU gradient steps", run,
      (2 + 2 * gates) * state * static_cast<int64_t>(sizeof(A)));
}

std::unique_ptr<Kernel> plan_steps(const PlanRequest& request) {
  const RecurrentSizes s = recurrent_sizes(request.op, request.attributes, request.inputs);
  return dispatch_floating(request.op.name, request.outputs[0].dtype, [&]<typename T>(Type<T>) {
    return s.is_lstm ? plan_forward<T, 4>(s) : plan_forward<T, 3>(s);
  });
}

std::unique_ptr<Kernel> plan_gradient_steps(const PlanRequest& request) {
  const RecurrentSizes s = recurrent_sizes(request.op, request.attributes, request.inputs);
  const RecurrentGradientInputs places = recurrent_gradient_inputs(request.op, request.attributes);
  return dispatch_floating(request.op.name, request.outputs[0].dtype, [&]<typename T>(Type<T>) {
    return s.is_lstm ? plan_backward<T, 4>(s, places) : plan_backward<T, 3>(s, places);
  });
}

// Plans the first of them that takes the request. From 128 units on, TF32 makes up for the longer
// way of the sums through shared memory.
std::unique_ptr<Kernel> plan_first(const PlanRequest& request, PlanFunction rows,
                                   PlanFunction tiles, PlanFunction steps) {
  const RecurrentSizes s = recurrent_sizes(request.op, request.attributes, request.inputs);
  const bool tiles_first = request.allow_tf32 && s.units > 128;
  for (PlanFunction plan : {tiles_first ? tiles : rows, tiles_first ? rows : tiles}) {
    if (std::unique_ptr<Kernel> kernel = plan(request)) return kernel;
  }
  return steps(request);
}

std::unique_ptr<Kernel> plan_any(const PlanRequest& request) {
  return plan_first(request, plan_recurrent_rows, plan_recurrent_tiles, plan_steps);
}

std::unique_ptr<Kernel> plan_any_gradient(const PlanRequest& request) {
  return plan_first(request, plan_recurrent_rows_grad, plan_recurrent_tiles_grad,
                    plan_gradient_steps);
}

}  // namespace

// x (n, t, 4u), h0, c0 (n, u), kernel (u, 4u), [mask (n, t)] -> last h, last c (n, u), [outputs
// (n, t, u), gates (n, t, 4u), cells, previous (n, t, u)]
std::unique_ptr<Kernel> plan_lstm(const PlanRequest& request) { return plan_any(request); }

// x (n, t, 3u), h0 (n, u), kernel (u, 3u), bias (3u), [mask (n, t)] -> last h (n, u), [outputs
// (n, t, u), gates (n, t, 4u), previous (n, t, u)]
std::unique_ptr<Kernel> plan_gru(const PlanRequest& request) { return plan_any(request); }

// kernel, gates, cells, c0, [mask, gradients of the last h, of the last c, of the outputs] ->
// gradient of x, [of h0, of c0]
std::unique_ptr<Kernel> plan_lstm_grad(const PlanRequest& request) {
  return plan_any_gradient(request);
}

// kernel, gates, previous, [mask, gradients of the last h, of the outputs] -> gradient of x, [of
// the products with the kernel, of h0]
std::unique_ptr<Kernel> plan_gru_grad(const PlanRequest& request) {
  return plan_any_gradient(request);
}

}  // namespace kerascnn::cuda
