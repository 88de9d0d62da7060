// Every op on one element at a time, and fused groups of them: an interpreter of element programs.
// A program whose numbers all fit float runs on four elements a thread with registers of float; any
// other runs on one element a thread with registers of any dtype. Single ops on float32 have
// kernels of their own (elementwise_single.cu).
#include "core/backend/cuda/elementwise/elementwise.h"

#include <algorithm>
#include <array>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/elementwise/elements.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/movement/copy.cuh"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/ops/geometry.h"

namespace kerascnn::cuda {
namespace {

constexpr int kElementThreads = 128;
constexpr int kWarp = 32;

// These ops take a few machine instructions. A kernel that knows only these is small enough to stay
// in the instruction cache, which is worth more to a short program than anything else: the full
// interpreter's code is fetched anew between the other kernels of a training step.
KERASCNN_HOST_DEVICE constexpr bool is_compact(ElementOp op) {
  switch (op) {
    case ElementOp::add:
    case ElementOp::subtract:
    case ElementOp::multiply:
    case ElementOp::equal:
    case ElementOp::not_equal:
    case ElementOp::less:
    case ElementOp::greater:
    case ElementOp::where:
    case ElementOp::isfinite:
    case ElementOp::cast:
    case ElementOp::square:
    case ElementOp::relu:
    case ElementOp::relu_grad:
      return true;
    default:
      return false;
  }
}

template <bool kCompact>
__device__ __forceinline__ Floats apply_floats(const FloatInstruction& instruction, const Floats& a,
                                               const Floats& b, const Floats& c) {
  Floats result;
  switch (instruction.op) {
#define KERASCNN_CASE(name, operands, parameters_count, is_bool)                     \
  case ElementOp::name:                                                              \
    if constexpr (!kCompact || is_compact(ElementOp::name)) {                        \
      _Pragma("unroll") for (int k = 0; k < kWidth; ++k) {                           \
        result.values[k] = static_cast<float>(element_apply<ElementOp::name, float>( \
            a.values[k], b.values[k], c.values[k], instruction.parameters[0],        \
            instruction.parameters[1]));                                             \
      }                                                                              \
    }                                                                                \
    break;
    KERASCNN_ELEMENT_OP_LIST(KERASCNN_CASE)
#undef KERASCNN_CASE
    default:
      result = a;
  }
  const DType dtype = instruction.result_dtype;
  if (dtype == DType::Float32) return result;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    float& value = result.values[k];
    value = dtype == DType::Bool ? (value != 0.0f ? 1.0f : 0.0f)
                                 : round_element<DeviceRounding>(dtype, value);
  }
  return result;
}

template <bool kCompact>
__global__ void __launch_bounds__(kElementThreads)
    interpret_floats(const __grid_constant__ FloatParams params) {
  begin_kernel();
  Floats registers[kMaxElementRegisters];
  for (int i = 0; i < params.num_constants; ++i) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      registers[params.num_inputs + i].values[k] = params.constants[i];
    }
  }
  const int first_result = params.num_inputs + params.num_constants;
  for (int64_t at = first_item() * kWidth; at < params.size; at += item_step() * kWidth) {
    const int count = static_cast<int>(min(params.size - at, int64_t{kWidth}));
    Packed packed[kMaxElementInputs];
#pragma unroll
    for (int i = 0; i < kMaxElementInputs; ++i) {
      if (i < params.num_inputs) packed[i] = load_input(params, i, at, count);
    }
#pragma unroll
    for (int i = 0; i < kMaxElementInputs; ++i) {
      if (i >= params.num_inputs) continue;
      registers[i] = to_floats(params.inputs[i].dtype, packed[i]);
    }
    Floats result;
    for (int i = 0; i < params.num_instructions; ++i) {
      const FloatInstruction& instruction = params.instructions[i];
      // Most instructions use the last one's result, which need not come from memory.
      const int latest = i > 0 ? first_result + i - 1 : -1;
      const auto fetch = [&](int operand) {
        const int source = instruction.operands[operand];
        return source == latest ? result : registers[source];
      };
      const Floats a = fetch(0);
      Floats b = a, c = a;
      if (instruction.num_operands > 1) b = fetch(1);
      if (instruction.num_operands > 2) c = fetch(2);
      result = apply_floats<kCompact>(instruction, a, b, c);
      registers[first_result + i] = result;
    }
    for (int i = 0; i < params.num_outputs; ++i) {
      store_floats(params.outputs[i], at, count, params.vectorized,
                   registers[params.outputs[i].source]);
    }
  }
}

template <typename T>
__device__ __forceinline__ T apply_compact(ElementOp op, T a, T b) {
  switch (op) {
#define KERASCNN_CASE(name, operands, parameters, is_bool)            \
  case ElementOp::name:                                               \
    if constexpr (is_compact(ElementOp::name)) {                      \
      return static_cast<T>(element_apply<ElementOp::name, T>(a, b)); \
    }                                                                 \
    break;
    KERASCNN_ELEMENT_OP_LIST(KERASCNN_CASE)
#undef KERASCNN_CASE
    default:
      break;
  }
  return T();
}

// This is evaluate_element for programs of compact ops without float64.
__device__ __forceinline__ ElementValue evaluate_compact(const ElementInstruction& instruction,
                                                         const ElementValue* registers) {
  const ElementValue a = registers[instruction.operands[0]];
  const ElementValue b = registers[instruction.operands[1]];
  if (instruction.op == ElementOp::where) {
    return a.i != 0 ? b : registers[instruction.operands[2]];
  }
  if (instruction.operand_dtype >= DType::Float16) {
    return make_element<DeviceRounding>(instruction.result_dtype,
                                        apply_compact<float>(instruction.op, a.f, b.f));
  }
  return make_element<DeviceRounding>(instruction.result_dtype,
                                      apply_compact<int64_t>(instruction.op, a.i, b.i));
}

template <bool kCompact>
__global__ void __launch_bounds__(kElementThreads)
    interpret_any(const __grid_constant__ GeneralParams params) {
  begin_kernel();
  ElementValue registers[kMaxElementRegisters];
  for (int i = 0; i < params.num_constants; ++i) {
    registers[params.num_inputs + i] = params.constants[i];
  }
  const int first_result = params.num_inputs + params.num_constants;
  for (int64_t at = first_item(); at < params.size; at += item_step()) {
    for (int i = 0; i < params.num_inputs; ++i) {
      const ElementInput& from = params.inputs[i];
      int64_t offset = 0;
      if (from.reading == Reading::InOrder) offset = at;
      if (from.reading == Reading::Strided) offset = params.offset(i, at);
      registers[i] = load_value(from.dtype, from.data, offset);
    }
    for (int i = 0; i < params.num_instructions; ++i) {
      registers[first_result + i] =
          kCompact ? evaluate_compact(params.instructions[i], registers)
                   : evaluate_element<DeviceRounding>(params.instructions[i], registers);
    }
    for (int i = 0; i < params.num_outputs; ++i) {
      const ElementOutput& to = params.outputs[i];
      store_value(to.dtype, to.data, at, registers[to.source]);
    }
  }
}

// Programs on single elements, such as metrics and losses end with. Each lane of one warp takes an
// input, an instruction and an output, so that these come together, and the code is short: the
// interpreters above would spend more time on jumps through their code than on one element.
__global__ void __launch_bounds__(kWarp)
    interpret_scalars(const __grid_constant__ GeneralParams params) {
  static_assert(std::max({kMaxElementInputs, kMaxElementConstants, kMaxElementInstructions,
                          kMaxElementOutputs}) <= kWarp);
  __shared__ ElementValue registers[kMaxElementRegisters];
  __shared__ ElementInstruction code[kMaxElementInstructions];
  const int lane = threadIdx.x;
  const int first_result = params.num_inputs + params.num_constants;
  // Nothing writes a kernel's arguments, so reading them need not wait.
  if (lane < params.num_instructions) code[lane] = params.instructions[lane];
  if (lane < params.num_constants) registers[params.num_inputs + lane] = params.constants[lane];
  begin_kernel();
  if (lane < params.num_inputs) {
    registers[lane] = load_value(params.inputs[lane].dtype, params.inputs[lane].data, 0);
  }
  __syncwarp();
  if (lane == 0) {
    for (int i = 0; i < params.num_instructions; ++i) {
      registers[first_result + i] = evaluate_compact(code[i], registers);
    }
  }
  __syncwarp();
  if (lane < params.num_outputs) {
    const ElementOutput& to = params.outputs[lane];
    store_value(to.dtype, to.data, 0, registers[to.source]);
  }
}

bool fits_float(DType dtype) {
  return dtype == DType::Bool || dtype == DType::Float16 || dtype == DType::BFloat16 ||
         dtype == DType::Float32;
}

// An integer input may be read as float where it is only cast: the cast would round it the same
// way.
bool is_only_cast(const ElementProgram& program, int input) {
  for (int i = 0; i < program.num_outputs; ++i) {
    if (program.outputs[i] == input) return false;
  }
  for (int i = 0; i < program.num_instructions; ++i) {
    const ElementInstruction& instruction = program.instructions[i];
    for (int k = 0; k < element_num_operands(instruction.op); ++k) {
      if (instruction.operands[k] == input && instruction.op != ElementOp::cast) return false;
    }
  }
  return true;
}

bool runs_on_floats(const ElementProgram& program) {
  const int count = program.first_result() + program.num_instructions;
  for (int i = 0; i < count; ++i) {
    const DType dtype = program.register_dtypes[i];
    if (fits_float(dtype)) continue;
    const bool is_small_integer = is_integer(dtype) && itemsize(dtype) <= 4;
    if (i >= program.num_inputs || !is_small_integer || !is_only_cast(program, i)) return false;
  }
  return true;
}

bool has_compact_ops(const ElementProgram& program) {
  for (int i = 0; i < program.num_instructions; ++i) {
    const ElementInstruction& instruction = program.instructions[i];
    if (!is_compact(instruction.op) || instruction.operand_dtype == DType::Float64 ||
        instruction.result_dtype == DType::Float64) {
      return false;
    }
  }
  return true;
}

// Is the element at every index of the result the next one in memory?
bool is_in_order(const BroadcastGeometry& g, size_t input) {
  int64_t expected = 1;
  for (size_t axis = g.extents.size(); axis-- > 0;) {
    if (g.extents[axis] != 1 && g.strides[input][axis] != expected) return false;
    expected *= g.extents[axis];
  }
  return true;
}

Reading reading_of(const BroadcastGeometry& g, size_t input) {
  if (is_in_order(g, input)) return Reading::InOrder;
  return g.is_scalar(input) ? Reading::Scalar : Reading::Strided;
}

template <typename Params>
Params common_params(const PlanRequest& request, const ElementProgram& program,
                     const BroadcastGeometry& g) {
  Params params;
  params.size = g.size;
  params.num_inputs = program.num_inputs;
  params.num_constants = program.num_constants;
  params.num_instructions = program.num_instructions;
  params.num_outputs = program.num_outputs;
  bool is_strided = false;
  for (int i = 0; i < program.num_inputs; ++i) {
    params.inputs[i].dtype = program.register_dtypes[i];
    params.inputs[i].reading = reading_of(g, static_cast<size_t>(i));
    is_strided = is_strided || params.inputs[i].reading == Reading::Strided;
  }
  for (int i = 0; i < program.num_outputs; ++i) {
    params.outputs[i].dtype = program.register_dtypes[program.outputs[i]];
    params.outputs[i].source = program.outputs[i];
  }
  if (!is_strided) return params;
  if (g.extents.size() > kMaxAxes) {
    throw ValueError(message(request.op.name, ": more than ", kMaxAxes,
                             " axes that can't be merged are not supported on CUDA; received ",
                             specs_string(request.inputs), "; reshape or broadcast first"));
  }
  params.axes = static_cast<int>(g.extents.size());
  for (int axis = 0; axis < params.axes; ++axis) {
    params.extents[axis] = g.extents[axis];
    for (int i = 0; i < program.num_inputs; ++i) params.strides[i][axis] = g.strides[i][axis];
  }
  return params;
}

// Constants are rounded or wrapped as their dtype does.
ElementValue constant_value(const ElementProgram& program, int i) {
  return make_element<DeviceRounding>(program.register_dtypes[program.first_constant() + i],
                                      program.constants[i]);
}

FloatParams float_params(const PlanRequest& request, const ElementProgram& program,
                         const BroadcastGeometry& g) {
  auto params = common_params<FloatParams>(request, program, g);
  for (int i = 0; i < program.num_constants; ++i) {
    const bool is_bool = program.register_dtypes[program.first_constant() + i] == DType::Bool;
    const ElementValue value = constant_value(program, i);
    params.constants[i] = is_bool ? static_cast<float>(value.i) : value.f;
  }
  for (int i = 0; i < program.num_instructions; ++i) {
    const ElementInstruction& from = program.instructions[i];
    FloatInstruction& to = params.instructions[i];
    to.op = from.op;
    to.result_dtype = from.result_dtype;
    to.num_operands = static_cast<uint8_t>(element_num_operands(from.op));
    std::copy(from.operands, from.operands + 3, to.operands);
    for (int k = 0; k < 2; ++k) to.parameters[k] = static_cast<float>(from.parameters[k]);
  }
  return params;
}

GeneralParams general_params(const PlanRequest& request, const ElementProgram& program,
                             const BroadcastGeometry& g) {
  auto params = common_params<GeneralParams>(request, program, g);
  for (int i = 0; i < program.num_constants; ++i) {
    params.constants[i] = constant_value(program, i);
  }
  std::copy(program.instructions, program.instructions + program.num_instructions,
            params.instructions);
  return params;
}

template <typename Params>
void set_buffers(const KernelArgs& args, Params& params) {
  params.vectorized = true;
  const auto accept = [&](const void* data, DType dtype) {
    const auto bytes = static_cast<int64_t>(itemsize(dtype)) * kWidth;
    params.vectorized = params.vectorized && is_aligned(data, bytes);
  };
  for (int i = 0; i < params.num_inputs; ++i) {
    params.inputs[i].data = args.inputs[i];
    if (params.inputs[i].reading == Reading::InOrder)
      accept(args.inputs[i], params.inputs[i].dtype);
  }
  for (int i = 0; i < params.num_outputs; ++i) {
    params.outputs[i].data = args.outputs[i];
    accept(args.outputs[i], params.outputs[i].dtype);
  }
}

// Kernels that wait by themselves also start early where they are launched one by one: the driver
// takes a sixth less time for it. In a graph the edges say which kernels do.
class EagerStart {
 public:
  bool on(cudaStream_t stream) const { return is_allowed_ && context_->is_own(stream); }

 private:
  const Context* context_ = &Context::current();
  bool is_allowed_ = context_->allows_early_starts();
};

std::unique_ptr<Kernel> make_single(SingleElementLaunch launch, const FloatParams& params,
                                    std::string description) {
  SingleElementOp planned;
  planned.size = params.size;
  std::copy(params.instructions[0].parameters, params.instructions[0].parameters + 2,
            planned.parameters);
  for (int i = 0; i < params.num_inputs; ++i) {
    planned.is_scalar[i] = params.inputs[i].reading == Reading::Scalar;
  }
  std::array<int64_t, 3> vector_bytes{};
  for (int i = 0; i < params.num_inputs; ++i) {
    vector_bytes[i] = static_cast<int64_t>(itemsize(params.inputs[i].dtype)) * kWidth;
  }
  const auto run = [=, early = EagerStart()](const KernelArgs& args) {
    if (planned.size == 0) return;
    SingleElementOp call = planned;
    call.result = output<float>(args, 0);
    call.vectorized = is_aligned(call.result, sizeof(float) * kWidth);
    for (size_t i = 0; i < args.inputs.size(); ++i) {
      call.operands[i] = args.inputs[i];
      call.vectorized &= call.is_scalar[i] || is_aligned(args.inputs[i], vector_bytes[i]);
    }
    const auto stream = static_cast<cudaStream_t>(args.stream);
    launch(call, stream, early.on(stream));
  };
  return make_early_kernel(std::move(description), run);
}

// Finds the launch for a program of one instruction whose operands are the inputs in order.
SingleElementLaunch find_launch(const ElementProgram& program, const FloatParams& params) {
  if (program.num_instructions != 1 || program.num_outputs != 1 || program.num_constants != 0 ||
      params.axes != 0 || program.outputs[0] != program.first_result()) {
    return nullptr;
  }
  const ElementInstruction& instruction = program.instructions[0];
  if (element_num_operands(instruction.op) != program.num_inputs) return nullptr;
  for (int i = 0; i < program.num_inputs; ++i) {
    if (instruction.operands[i] != i) return nullptr;
  }
  return find_single_element_launch(instruction.op, instruction.operand_dtype,
                                    instruction.result_dtype);
}

// Is the program multiply(cast(bytes), constant)?
bool is_scaled_cast(const ElementProgram& program, const FloatParams& params) {
  if (program.num_inputs != 1 || program.num_constants != 1 || program.num_instructions != 2 ||
      program.num_outputs != 1 || params.inputs[0].reading != Reading::InOrder) {
    return false;
  }
  const ElementInstruction& cast = program.instructions[0];
  const ElementInstruction& multiply = program.instructions[1];
  const int result = program.first_result();
  const bool of_constant =
      (multiply.operands[0] == result && multiply.operands[1] == program.first_constant()) ||
      (multiply.operands[1] == result && multiply.operands[0] == program.first_constant());
  return cast.op == ElementOp::cast && cast.operand_dtype == DType::UInt8 &&
         cast.result_dtype == DType::Float32 && multiply.op == ElementOp::multiply && of_constant &&
         program.outputs[0] == result + 1;
}

// A kernel that is compiled for this one program; null where there is none.
std::unique_ptr<Kernel> plan_compiled(const ElementProgram& program, FloatParams params,
                                      const std::string& description) {
  if (is_scaled_cast(program, params)) {
    params.instructions[0].parameters[0] = params.constants[0];
    return make_single(launch_scaled_cast, params, description);
  }
  const SingleElementLaunch launch = find_launch(program, params);
  return launch == nullptr ? nullptr : make_single(launch, params, description);
}

template <typename Params>
std::unique_ptr<Kernel> make_interpreter(std::string description, void (*kernel)(Params),
                                         const Params& planned, int64_t items_per_block,
                                         int threads) {
  return make_early_kernel(std::move(description),
                           [=, early = EagerStart()](const KernelArgs& args) {
                             if (planned.size == 0) return;
                             Params params = planned;
                             set_buffers(args, params);
                             const auto stream = static_cast<cudaStream_t>(args.stream);
                             launch_waiting(kernel, grid_for(params.size, items_per_block), threads,
                                            stream, early.on(stream), params);
                           });
}

}  // namespace

std::unique_ptr<Kernel> plan_element_program(const PlanRequest& request,
                                             const ElementProgram& program) {
  const BroadcastGeometry g = broadcast_geometry(request.outputs[0].shape, request.inputs);
  const std::string description = "kerascnn elementwise " + element_program_name(program);
  const bool compact = has_compact_ops(program);
  const bool on_floats = runs_on_floats(program);
  if (on_floats) {
    auto kernel = plan_compiled(program, float_params(request, program, g), description);
    if (kernel != nullptr) return kernel;
  }
  if (compact && g.size == 1) {
    return make_interpreter<GeneralParams>(description, interpret_scalars,
                                           general_params(request, program, g), 1, kWarp);
  }
  if (on_floats) {
    return make_interpreter<FloatParams>(
        description, compact ? interpret_floats<true> : interpret_floats<false>,
        float_params(request, program, g), kElementThreads * kWidth, kElementThreads);
  }
  return make_interpreter<GeneralParams>(
      description, compact ? interpret_any<true> : interpret_any<false>,
      general_params(request, program, g), kElementThreads, kElementThreads);
}

namespace {

std::unique_ptr<Kernel> plan_op(const PlanRequest& request, ElementOp op) {
  ElementProgram program;
  program.num_inputs = element_num_operands(op);
  program.num_instructions = 1;
  program.num_outputs = 1;
  program.outputs[0] = static_cast<uint8_t>(program.num_inputs);
  ElementInstruction& instruction = program.instructions[0];
  instruction.op = op;
  for (int i = 0; i < program.num_inputs; ++i) {
    program.register_dtypes[i] = request.inputs[i].dtype;
    instruction.operands[i] = static_cast<uint8_t>(i);
  }
  // The first operand of `where` is its condition.
  instruction.operand_dtype = request.inputs[program.num_inputs == 3 ? 1 : 0].dtype;
  instruction.result_dtype = request.outputs[0].dtype;
  program.register_dtypes[program.num_inputs] = instruction.result_dtype;
  const ElementParameters parameters = element_parameters(op, request.attributes);
  std::copy(parameters.values, parameters.values + 2, instruction.parameters);
  return plan_element_program(request, program);
}

}  // namespace

#define KERASCNN_DEFINE_PLAN(name, operands, parameters, is_bool)   \
  std::unique_ptr<Kernel> plan_##name(const PlanRequest& request) { \
    return plan_op(request, ElementOp::name);                       \
  }
KERASCNN_ELEMENT_OP_LIST(KERASCNN_DEFINE_PLAN)
#undef KERASCNN_DEFINE_PLAN

}  // namespace kerascnn::cuda
