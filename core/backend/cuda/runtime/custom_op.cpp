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

// Of kernels of elements, as their source is written (kerascnn/ops/custom_source.py).
constexpr int64_t kElementThreads = 128;
constexpr int64_t kElementsOfThread = 4;
constexpr int64_t kDefaultSharedBytes = 48 * 1024;

cudaKernel_t compiled_kernel(const CustomOp& op, const PlanRequest& request) {
  const std::string source = compose_cuda_source(op, request.inputs, request.outputs);
  const RuntimeKernel* found = nullptr;
  try {
    found = &compile_kernel(source, op.cuda.function);
  } catch (const LibraryError& error) {
    throw LibraryError(message(custom_op_title(op), ": ", error.what()));
  }
  if (found->kernel == nullptr) {
    throw ValueError(compile_error(op, op.cuda, "CUDA C++", source, found->log));
  }
  return found->kernel;
}

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

// Before anything is launched: what the device would refuse, in words.
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

// The widths of the kernel's parameters after the pointers: of integers of 4 or 8 bytes.
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

}  // namespace

std::unique_ptr<Kernel> plan_custom_op(const PlanRequest& request) {
  const CustomOpPtr op = custom_op_of(request.attributes);
  if (op->cuda.text.empty()) {
    throw DeviceError(message(custom_op_title(*op),
                              ": it has no implementation for GPUs. Pass an expression or a "
                              "KernelSource to ops.custom_op, or compute on the CPU"));
  }
  const cudaKernel_t compiled = compiled_kernel(*op, request);
  const void* kernel = reinterpret_cast<const void*>(compiled);
  const CustomLaunch launch = op->is_elementwise ? launch_of_elements(request)
                                                 : op->cuda.launch(request.inputs, request.outputs);
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  check_launch_limits(*op, launch, attributes);
  check_parameters(*op, kernel, request.inputs.size() + request.outputs.size(), launch.sizes);
  if (launch.shared_bytes > kDefaultSharedBytes) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(launch.shared_bytes)),
          "cudaFuncSetAttribute");
  }
  const auto run = [op, kernel, launch](const KernelArgs& args) {
    if (is_empty(launch)) return;
    std::vector<void*> arguments;  // pointers to the arguments
    for (const void* const& input : args.inputs) arguments.push_back(const_cast<void**>(&input));
    for (void* const& output : args.outputs) arguments.push_back(const_cast<void**>(&output));
    for (const int64_t& size : launch.sizes) arguments.push_back(const_cast<int64_t*>(&size));
    const auto axes = [](const std::array<int64_t, 3>& of) {
      return dim3(static_cast<unsigned>(of[0]), static_cast<unsigned>(of[1]),
                  static_cast<unsigned>(of[2]));
    };
    check(cudaLaunchKernel(kernel, axes(launch.grid), axes(launch.block), arguments.data(),
                           static_cast<size_t>(launch.shared_bytes),
                           static_cast<cudaStream_t>(args.stream)),
          custom_op_title(*op));
  };
  const std::string description = message("custom ", op->name, " (NVRTC)");
  return op->is_elementwise ? make_early_kernel(description, run) : make_kernel(description, run);
}

}  // namespace kerascnn::cuda
