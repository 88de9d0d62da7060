// Users' ops on the CPU: a function of their language, or C++ that is compiled here.
#include "core/ops/custom_op.h"

#include <dlfcn.h>

#include "core/backend/cpu/host_compiler.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/backend/custom_source.h"

namespace kerascnn::cpu {
namespace {

using CallFunction = const char* (*)(const void* const*, void* const*, const int64_t*);
using ElementsFunction = void (*)(const void* const*, void* const*, const int64_t*, int64_t,
                                  int64_t);

// Parts for threads begin at multiples of this, which is more than any vector holds. So the
// elements left over at their ends, which other functions may compute, don't depend on the number
// of threads.
constexpr int64_t kElementsTogether = 64;

void* compiled_function(const CustomOp& op, const std::string& source, const char* function) {
  const CompiledLibrary& library =
      compile_and_load(source, custom_op_title(op), "or pass a NumPy function as cpu=");
  if (library.handle == nullptr) {
    throw ValueError(compile_error(op, op.cpp, "C++", source, library.log));
  }
  void* address = dlsym(library.handle, function);
  if (address == nullptr) {
    throw ValueError(message(custom_op_title(op), ": the C++ source does not define ", function));
  }
  return address;
}

std::string description_of(const CustomOp& op, const char* what) {
  return message("custom ", op.name, " (", what, ")");
}

std::unique_ptr<Kernel> plan_function(const CustomOpPtr& op, const PlanRequest& request) {
  const std::vector<TensorSpec> inputs(request.inputs.begin(), request.inputs.end());
  const std::vector<TensorSpec> outputs(request.outputs.begin(), request.outputs.end());
  return make_kernel(description_of(*op, "Python"), [op, inputs, outputs](const KernelArgs& args) {
    op->run_on_cpu(args, inputs, outputs);
  });
}

std::unique_ptr<Kernel> plan_elements(const CustomOpPtr& op, const PlanRequest& request) {
  const std::string source = compose_cpp_source(*op, request.inputs, request.outputs, 0);
  const auto function =
      reinterpret_cast<ElementsFunction>(compiled_function(*op, source, op->cpp.function.c_str()));
  const int64_t size = size_of(request.outputs[0]);
  std::vector<int64_t> sizes = {size};
  for (const TensorSpec& input : request.inputs) sizes.push_back(size_of(input) == size ? 1 : 0);
  return make_kernel(description_of(*op, "C++"), [function, size, sizes](const KernelArgs& args) {
    const int64_t parts = (size + kElementsTogether - 1) / kElementsTogether;
    parallel_for(parts, kElementGrain / kElementsTogether, [&](int64_t begin, int64_t end) {
      function(args.inputs.data(), args.outputs.data(), sizes.data(), begin * kElementsTogether,
               std::min(end * kElementsTogether, size));
    });
  });
}

std::unique_ptr<Kernel> plan_call(const CustomOpPtr& op, const PlanRequest& request) {
  const std::vector<int64_t> sizes = op->cpp.launch(request.inputs, request.outputs).sizes;
  const std::string source = compose_cpp_source(*op, request.inputs, request.outputs, sizes.size());
  const auto function =
      reinterpret_cast<CallFunction>(compiled_function(*op, source, "kerascnn_call"));
  return make_kernel(description_of(*op, "C++"), [op, function, sizes](const KernelArgs& args) {
    const char* error = function(args.inputs.data(), args.outputs.data(), sizes.data());
    if (error != nullptr) throw ValueError(message(custom_op_title(*op), ": ", error));
  });
}

}  // namespace

std::unique_ptr<Kernel> plan_custom_op(const PlanRequest& request) {
  const CustomOpPtr op = custom_op_of(request.attributes);
  if (op->run_on_cpu) return plan_function(op, request);
  if (op->cpp.text.empty()) {
    throw DeviceError(
        message(custom_op_title(*op),
                ": it has no implementation for the CPU. Define "
                "it with one (a function on arrays or C++ source), or compute on a GPU"));
  }
  return op->is_elementwise ? plan_elements(op, request) : plan_call(op, request);
}

}  // namespace kerascnn::cpu
