// Users' ops on a GPU: CUDA C++ that is compiled when a call is planned.
#include "core/ops/custom_op.h"

#include <algorithm>
#include <vector>

#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/nvrtc.h"
#include "core/backend/custom_source.h"
#include "core/ops/geometry.h"

namespace kerascnn::cuda {
namespace {

// The source of element kernels is written for these sizes (kerascnn/ops/custom_source.py).
constexpr int64_t kElementThreads = 128;
constexpr int64_t kElementsOfThread = 4;
constexpr int64_t kDefaultSharedBytes = 48 * 1024;

CustomLaunch launch_of_elements(const PlanRequest& request) {
  const int64_t size = num_elements(request.outputs[0].shape);
  CustomLaunch launch;
  launch.grid[0] = size == 0 ? 0 : grid_for(size, kElementThreads * kElementsOfThread);
  launch.block[0] = kElementThreads;
  launch.sizes.push_back(size);
  for (const TensorSpec& input : request.inputs) {
    launch.sizes.push_back(num_elements(input.shape) == size ? 1 : 0);
  }
  return launch;
}

[[noreturn]] void fail(const CustomOp& op, const std::string& text) {
  throw ValueError(message(custom_op_title(op), ": ", text));
}

std::string axes_string(const std::array<int64_t, 3>& axes) {
  return message('(', axes[0], ", ", axes[1], ", ", axes[2], ')');
}

bool is_empty(const CustomLaunch& launch) {
  return std::find(launch.grid.begin(), launch.grid.end(), 0) != launch.grid.end();
}

// Says in words what the device would refuse, before anything is launched.
void check_launch_limits(const CustomOp& op, const CustomLaunch& launch,
                         const cudaFuncAttributes& attributes) {
  const cudaDeviceProp& device = Context::current().properties();
  const auto& block = launch.block;
  const int64_t threads = block[0] * block[1] * block[2];
  if (threads < 1 || threads > attributes.maxThreadsPerBlock) {
    fail(op, message("a block of ", axes_string(block), " has ", threads,
                     " threads; this kernel can have 1 to ", attributes.maxThreadsPerBlock,
                     " on this GPU"));
  }
  for (size_t axis = 0; axis < 3; ++axis) {
    if (launch.grid[axis] > device.maxGridSize[axis] || block[axis] > device.maxThreadsDim[axis]) {
      fail(op, message("the grid ", axes_string(launch.grid), " of blocks ", axes_string(block),
                       " is too large along axis ", axis, "; this GPU allows ",
                       device.maxGridSize[axis], " blocks of ", device.maxThreadsDim[axis],
                       " threads there"));
    }
  }
  const auto most = static_cast<int64_t>(device.sharedMemPerBlockOptin) -
                    static_cast<int64_t>(attributes.sharedSizeBytes);
  if (launch.shared_bytes < 0 || launch.shared_bytes > most) {
    fail(op, message(launch.shared_bytes, " bytes of shared memory were asked for; from 0 to ",
                     most, " are possible"));
  }
}

// The widths of the kernel's parameters after the pointers, which are integers of 4 or 8 bytes.
void check_parameters(const CustomOp& op, const void* kernel, size_t num_pointers,
                      const std::vector<int64_t>& sizes) {
  const size_t expected = num_pointers + sizes.size();
  for (size_t i = 0; i <= expected; ++i) {
    size_t offset = 0, bytes = 0;
    const bool exists = cudaFuncGetParamInfo(kernel, i, &offset, &bytes) == cudaSuccess;
    if (!exists) (void)cudaGetLastError();
    if (exists != (i < expected)) {
      fail(op, message("the kernel ", op.cuda.function, " must take ", expected, " arguments (",
                       num_pointers, " pointers to the inputs and outputs, then ", sizes.size(),
                       sizes.size() == 1 ? " size" : " sizes", "), and it takes ",
                       exists ? "more" : message(i)));
    }
    if (!exists) continue;
    const bool is_size = i >= num_pointers;
    if (bytes != 8 && !(is_size && bytes == 4)) {
      fail(op, message("argument ", i, " of the kernel ", op.cuda.function, " has ", bytes,
                       " bytes where ", is_size ? "an int or int64_t" : "a pointer", " is passed"));
    }
    if (is_size && bytes == 4 &&
        sizes[i - num_pointers] != static_cast<int32_t>(sizes[i - num_pointers])) {
      fail(op, message("argument ", i, " of the kernel ", op.cuda.function,
                       " is an int, and the size ", sizes[i - num_pointers], " needs int64_t"));
    }
  }
}

dim3 dim3_of(const std::array<int64_t, 3>& axes) {
  return dim3(static_cast<unsigned>(axes[0]), static_cast<unsigned>(axes[1]),
              static_cast<unsigned>(axes[2]));
}

class CustomKernel final : public Kernel {
 public:
  CustomKernel(CustomOpPtr op, const PlanRequest& request)
      : op_(std::move(op)),
        launch_(op_->is_elementwise ? launch_of_elements(request)
                                    : op_->cuda.launch(request.inputs, request.outputs)),
        num_pointers_(request.inputs.size() + request.outputs.size()),
        source_(compose_cuda_source(*op_, request.inputs, request.outputs)),
        pending_(start_compile(source_, op_->cuda.function)) {}

  void finish_planning() override {
    const RuntimeKernel& found = pending_.get();
    if (found.state == CompileState::Unavailable) {
      throw LibraryError(message(custom_op_title(*op_), ": ", found.log));
    }
    if (found.state == CompileState::Refused) {
      throw ValueError(compile_error(*op_, op_->cuda, "CUDA C++", source_, found.log));
    }
    kernel_ = reinterpret_cast<const void*>(found.kernel);
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, kernel_), "cudaFuncGetAttributes");
    check_launch_limits(*op_, launch_, attributes);
    check_parameters(*op_, kernel_, num_pointers_, launch_.sizes);
    if (launch_.shared_bytes > kDefaultSharedBytes) {
      check(cudaFuncSetAttribute(kernel_, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(launch_.shared_bytes)),
            "cudaFuncSetAttribute");
    }
    source_.clear();
  }

  void run(const KernelArgs& args) override {
    if (is_empty(launch_)) return;
    std::vector<void*> arguments;  // pointers to the arguments
    for (const void* const& input : args.inputs) arguments.push_back(const_cast<void**>(&input));
    for (void* const& output : args.outputs) arguments.push_back(const_cast<void**>(&output));
    for (const int64_t& size : launch_.sizes) arguments.push_back(const_cast<int64_t*>(&size));
    check(cudaLaunchKernel(kernel_, dim3_of(launch_.grid), dim3_of(launch_.block), arguments.data(),
                           static_cast<size_t>(launch_.shared_bytes),
                           static_cast<cudaStream_t>(args.stream)),
          custom_op_title(*op_));
  }

  // kerascnn writes the sources of element kernels, which begin with the wait.
  bool starts_early() const override { return op_->is_elementwise; }
  std::string description() const override { return message("custom ", op_->name, " (NVRTC)"); }

 private:
  CustomOpPtr op_;
  CustomLaunch launch_;
  size_t num_pointers_;
  std::string source_;  // until it is compiled
  PendingKernel pending_;
  const void* kernel_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> plan_custom_op(const PlanRequest& request) {
  const CustomOpPtr op = custom_op_of(request.attributes);
  if (op->cuda.text.empty()) {
    throw DeviceError(message(custom_op_title(*op),
                              ": it has no implementation for GPUs. Define it with an "
                              "expression or a kernel's source, or compute on the CPU"));
  }
  return std::make_unique<CustomKernel>(op, request);
}

}  // namespace kerascnn::cuda
