#include "core/backend/cuda/runtime/autotune.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <optional>
#include <random>

#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/cupti_tracer.h"
#include "core/base/build_info.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "core/tensor/tensor.h"

namespace kerascnn::cuda {
namespace {

constexpr int kRunsOfGraph = 8;
constexpr int kLaunches = 5;  // after one that warms up
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string machine_text(const Context& context) {
  return message(context.properties().name, ", compute capability ", context.properties().major,
                 ".", context.properties().minor, ", ", context.multiprocessors(),
                 " multiprocessors, kerascnn ", build_info::kVersion, ", ", library_versions());
}

Event make_timing_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "cudaEventCreate");
  return Event(event);
}

// Random multiples of 1/8 from -1 to 1, which repeat after a while. Their products are exact in
// every dtype, with TF32 too, and so are sums of up to 2^18 of these in float32. So kernels that
// are right agree whatever the order in which they add, but for the rounding of results and what
// Winograd's transforms lose.
template <typename T>
Tensor test_numbers(const TensorSpec& spec, Device device, std::minstd_rand& random) {
  constexpr int64_t kPeriod = (int64_t{1} << 20) - 3;  // a prime number: no row is like another
  std::vector<T> numbers(num_elements(spec.shape));
  const auto first = numbers.begin(), end = numbers.end();
  const auto again = first + std::min(kPeriod, end - first);
  std::generate(first, again,
                [&] { return T((static_cast<int>(random() >> 8) % 17 - 8) * 0.125f); });
  for (auto to = again; to != end;) to = std::copy(first, first + std::min(kPeriod, end - to), to);
  return Tensor::from_host(numbers.data(), spec, device);
}

// Integers are labels and places, where 0 is always a valid one.
Tensor test_numbers(const TensorSpec& spec, Device device, std::minstd_rand& random) {
  switch (spec.dtype) {
    case DType::Float16:
      return test_numbers<Half>(spec, device, random);
    case DType::BFloat16:
      return test_numbers<BFloat16>(spec, device, random);
    case DType::Float32:
      return test_numbers<float>(spec, device, random);
    case DType::Float64:
      return test_numbers<double>(spec, device, random);
    default:
      return Tensor::zeros(spec, device);
  }
}

template <typename T>
std::vector<float> on_host(const Tensor& tensor) {
  std::vector<T> numbers(tensor.size());
  tensor.copy_to_host(numbers.data());
  std::vector<float> result(numbers.size());
  std::transform(numbers.begin(), numbers.end(), result.begin(),
                 [](T number) { return static_cast<float>(number); });
  return result;
}

// Integers are left out: where numbers are equal, kernels may give other places.
std::vector<float> on_host(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::Float16:
      return on_host<Half>(tensor);
    case DType::BFloat16:
      return on_host<BFloat16>(tensor);
    case DType::Float32:
      return on_host<float>(tensor);
    case DType::Float64:
      return on_host<double>(tensor);
    default:
      return {};
  }
}

// The tolerance relative to the largest number: two units in the last place of the 16-bit types,
// and what Winograd's transforms lose in the others.
double tolerance(DType dtype, bool allow_tf32) {
  if (dtype == DType::BFloat16) return 0x1p-7;
  return dtype == DType::Float16 || (dtype == DType::Float32 && allow_tf32) ? 0x1p-10 : 0x1p-16;
}

// How long kernels take over a call, and whether they compute the same.
class KernelTrial {
 public:
  explicit KernelTrial(const PlanRequest& request)
      : context_(Context::current()),
        device_{DeviceType::Cuda, context_.index()},
        allow_tf32_(request.allow_tf32) {
    std::minstd_rand random(1);
    for (const TensorSpec& spec : request.inputs) {
      inputs_.push_back(test_numbers(spec, device_, random));
      input_data_.push_back(inputs_.back().data());
    }
    for (const TensorSpec& spec : request.outputs) {
      outputs_.push_back(Tensor::empty(spec, device_));
      output_data_.push_back(outputs_.back().data());
    }
  }

  // The seconds that a run takes in a CUDA graph of several runs, as programs run it; what launches
  // cost the host does not count. Infinity where the kernel fails, or computes other results than
  // the first one.
  double operator()(Kernel& kernel) {
    try {
      const Tensor workspace = Tensor::empty({DType::UInt8, {kernel.workspace_bytes()}}, device_);
      const CudaGraph graph = capture(kernel, workspace.data());
      for (const Tensor& output : outputs_) {
        // The output is NaN wherever the kernel does not write.
        check(cudaMemsetAsync(output.data(), 0xff, static_cast<size_t>(output.bytes()),
                              context_.stream()),
              "cudaMemsetAsync");
      }
      const double seconds = seconds_of(graph) / kRunsOfGraph;
      return computes_the_same() ? seconds : kInfinity;
    } catch (const LibraryError&) {
      return kInfinity;
    } catch (const OutOfMemoryError&) {
      if (expected_.empty()) throw;
      return kInfinity;  // other kernels may need less
    }
  }

 private:
  CudaGraph capture(Kernel& kernel, void* workspace) {
    const std::lock_guard capturing(context_.capturing());
    const cudaStream_t stream = context_.capture_stream();
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      for (int i = 0; i < kRunsOfGraph; ++i) {
        kernel.run({input_data_, output_data_, workspace, stream});
      }
    } catch (...) {
      (void)cudaStreamEndCapture(stream, &graph);
      CudaGraph abandoned(graph);
      (void)cudaGetLastError();
      throw;
    }
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    return CudaGraph(graph);
  }

  double seconds_of(const CudaGraph& graph) {
    cudaGraphExec_t raw = nullptr;
    check(cudaGraphInstantiate(&raw, graph.get(), 0), "cudaGraphInstantiate");
    const CudaGraphExec exec(raw);
    const cudaStream_t stream = context_.stream();
    const Event start = make_timing_event(), end = make_timing_event();
    float least = std::numeric_limits<float>::infinity();
    for (int i = 0; i <= kLaunches; ++i) {
      check(cudaEventRecord(start.get(), stream), "cudaEventRecord");
      check(cudaGraphLaunch(exec.get(), stream), "cudaGraphLaunch");
      check(cudaEventRecord(end.get(), stream), "cudaEventRecord");
      check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, start.get(), end.get()), "cudaEventElapsedTime");
      if (i > 0) least = std::min(least, milliseconds);
    }
    return static_cast<double>(least) * 1e-3;
  }

  bool computes_the_same() {
    std::vector<std::vector<float>> results;
    for (const Tensor& output : outputs_) results.push_back(on_host(output));
    if (expected_.empty()) {
      // A NaN equals nothing, not even itself: where it is left, something was not written.
      for (const std::vector<float>& result : results) {
        if (!agree(result, result, 0)) return false;
      }
      expected_ = std::move(results);
      return true;
    }
    for (size_t i = 0; i < results.size(); ++i) {
      if (!agree(results[i], expected_[i], tolerance(outputs_[i].dtype(), allow_tf32_)))
        return false;
    }
    return true;
  }

  Context& context_;
  Device device_;
  bool allow_tf32_;
  std::vector<Tensor> inputs_, outputs_;
  std::vector<const void*> input_data_;
  std::vector<void*> output_data_;
  std::vector<std::vector<float>> expected_;  // the results of the first kernel
};

// In profiles, launches of trials do not count as the layers' work.
CallInfoPtr trial_call(const PlanRequest& request, Device device) {
  CallInfo info = make_call_info(request.op, request.attributes, request.inputs, request.outputs);
  info.op = std::string(request.op.name);
  info.label = message(info.op, ", timing of kernels");
  info.scope = {.path = "compilation", .phases = 0};
  info.kernel = "several in turn";
  info.device = device;
  return std::make_shared<const CallInfo>(std::move(info));
}

}  // namespace

std::unique_ptr<Kernel> choose_fastest(const PlanRequest& request, int64_t num_products,
                                       const std::vector<KernelCandidate>& candidates) {
  if (!is_timed(request, num_products)) return first_of(candidates);
  std::optional<KernelTrial> trial;  // needed only if the choice is not known yet
  const auto time = [&](Kernel& kernel) {
    std::optional<TracedCall> traced;
    if (traces_calls()) {
      traced.emplace(trial_call(request, {DeviceType::Cuda, Context::current().index()}));
    }
    if (!trial) trial.emplace(request);
    return (*trial)(kernel);
  };
  try {
    auto kernel = kernel_chooser().choose(machine_text(Context::current()), call_text(request),
                                          candidates, time);
    if (kernel != nullptr) return kernel;
  } catch (const OutOfMemoryError&) {
    // Every choice is known already. The trial's memory goes back before others are planned.
  }
  trial.reset();
  return first_of(candidates);
}

}  // namespace kerascnn::cuda
