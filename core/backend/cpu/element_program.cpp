// An interpreter of element programs that runs each instruction over a block
// of elements, so that decoding costs little and the loops vectorize. Registers live in the
// first-level cache.
#include "core/backend/cpu/element_program.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/backend/cpu/broadcast.h"
#include "core/backend/cpu/element_blocks.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/parallel.h"

namespace kerascnn::cpu {

namespace {

constexpr int64_t kBlock = 256;

union alignas(64) RegisterBlock {
  float f[kBlock];
  double d[kBlock];
  int64_t i[kBlock];

  template <typename T>
  T* as() {
    if constexpr (std::is_same_v<T, float>) return f;
    if constexpr (std::is_same_v<T, double>) return d;
    if constexpr (std::is_same_v<T, int64_t>) return i;
  }
};

// Where a register's elements are: its block, or an input's or output's own memory.
using RegisterPointers = const void* [kMaxElementRegisters];

// An input of integers as floats, without a register of 64-bit integers in between.
template <typename T>
void load_floats(const T* from, int64_t step, int64_t count, float* to) {
  if (step == 1) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i * step]);
  }
}

// Floats as integers, without a register of 64-bit integers in between. Those that 32 bits hold
// are converted by vectors.
template <typename T>
void store_integers(const float* from, T* to, int64_t count) {
  constexpr float kMost = 1 << 30;
  int32_t is_outside = 0;  // NaN is too
  for (int64_t i = 0; i < count; ++i) is_outside |= !(from[i] >= -kMost && from[i] <= kMost);
  if (is_outside == 0) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(static_cast<int32_t>(from[i]));
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(element::cast<int64_t>(from[i]));
  }
}

class Interpreter {
 public:
  Interpreter(const PlanRequest& request, const ElementProgram& program)
      : program_(program), size_(size_of(request.outputs[0])) {
    for (size_t k = 0; k < request.inputs.size(); ++k) {
      inputs_.push_back(broadcast_geometry(request.outputs[0].shape, request.inputs.subspan(k, 1)));
    }
    for (int k = 0; k < program_.num_outputs; ++k) {
      last_is_direct_ = last_is_direct_ && program_.outputs[k] >= program_.first_result();
    }
    const int last = program_.first_result() + program_.num_instructions - 1;
    const DType dtype = program_.register_dtypes[last];
    const bool is_plain =
        dtype == DType::Float32 || dtype == DType::Float64 || dtype == DType::Int64;
    find_integer_loads();
    find_integer_stores();
    direct_output_ = -1;
    for (int k = 0; k < program_.num_outputs && last_is_direct_ && is_plain; ++k) {
      if (program_.outputs[k] == last && direct_output_ < 0) direct_output_ = k;
    }
  }

  int num_registers() const { return program_.first_result() + program_.num_instructions; }
  std::string name() const { return element_program_name(program_); }

  int64_t workspace_bytes() const {
    return num_threads() * num_registers() * static_cast<int64_t>(sizeof(RegisterBlock));
  }

  void run(const KernelArgs& args) const {
    auto* blocks = static_cast<RegisterBlock*>(args.workspace);
    const int64_t grain = std::max<int64_t>(kBlock, kElementGrain / program_.num_instructions);
    // One task for each thread, so that the task's number names the thread's registers.
    const int64_t tasks = std::clamp<int64_t>(size_ / grain, 1, num_threads());
    parallel_tasks(tasks, [&](int64_t task, int64_t) {
      run_range(args, blocks + task * num_registers(), size_ * task / tasks,
                size_ * (task + 1) / tasks);
    });
  }

 private:
  // Casts of an input to float32 read the input itself, whose register is left out where nobody
  // else reads it.
  void find_integer_loads() {
    is_read_.fill(false);
    for (int k = 0; k < program_.num_outputs; ++k) is_read_[program_.outputs[k]] = true;
    for (int n = 0; n < program_.num_instructions; ++n) {
      const ElementInstruction& instruction = program_.instructions[n];
      const int from = instruction.operands[0];
      loads_[n] = instruction.op == ElementOp::cast && from < program_.num_inputs &&
                  instruction.result_dtype == DType::Float32 &&
                  register_kind(program_.register_dtypes[from]) == RegisterKind::Integer;
      for (int i = 0; i < element_num_operands(instruction.op) && !loads_[n]; ++i) {
        is_read_[instruction.operands[i]] = true;
      }
    }
  }

  // Casts from floats to outputs of fewer than 64 bits are left to the storing, where no
  // instruction reads their results.
  void find_integer_stores() {
    stored_from_.fill(-1);
    for (int n = 0; n < program_.num_instructions; ++n) {
      const ElementInstruction& instruction = program_.instructions[n];
      const int r = program_.first_result() + n;
      const bool is_cast = instruction.op == ElementOp::cast &&
                           register_kind(instruction.operand_dtype) == RegisterKind::Float &&
                           is_integer(instruction.result_dtype) &&
                           instruction.result_dtype != DType::Int64;
      if (is_cast && !is_operand(r)) stored_from_[r] = instruction.operands[0];
    }
  }

  bool is_operand(int r) const {
    for (int n = 0; n < program_.num_instructions; ++n) {
      const ElementInstruction& instruction = program_.instructions[n];
      const uint8_t* const end = instruction.operands + element_num_operands(instruction.op);
      if (std::find(instruction.operands, end, r) != end) return true;
    }
    return false;
  }

  void run_range(const KernelArgs& args, RegisterBlock* blocks, int64_t begin, int64_t end) const {
    RegisterPointers registers;
    for (int r = 0; r < num_registers(); ++r) registers[r] = &blocks[r];
    for (int k = 0; k < program_.num_constants; ++k) {
      const int r = program_.first_constant() + k;
      with_kind(program_.register_dtypes[r], [&]<typename T>(Type<T>) {
        std::fill_n(blocks[r].as<T>(), kBlock,
                    to_register<T>(program_.register_dtypes[r], program_.constants[k]));
      });
    }
    for (int64_t at = begin; at < end; at += kBlock) {
      run_block(args, blocks, registers, at, std::min(kBlock, end - at));
    }
  }

  // What elements [at, at + count) of the outputs read of an input, in stretches: calls
  // function(first element, step, its place in the block, number).
  template <typename Function>
  void for_each_stretch(const KernelArgs& args, int k, int64_t at, int64_t count,
                        const Function& function) const {
    const int64_t step = inputs_[k].strides[0].back();
    with_storage(program_.register_dtypes[k], [&]<typename T>(Type<T>) {
      const T* x = input<T>(args, static_cast<size_t>(k));
      for_each_run<1>(inputs_[k], at, at + count,
                      [&](int64_t begin, const auto& offsets, int64_t some) {
                        function(x + offsets[0], step, begin - at, some);
                      });
    });
  }

  void run_block(const KernelArgs& args, RegisterBlock* blocks, RegisterPointers& registers,
                 int64_t at, int64_t count) const {
    for (int k = 0; k < program_.num_inputs; ++k) {
      if (!is_read_[k]) continue;
      for_each_stretch(args, k, at, count,
                       [&]<typename T>(const T* from, int64_t step, int64_t place, int64_t some) {
                         using R = typename RegisterOf<T>::type;
                         if (step == 1 && some == count && std::is_same_v<T, R>) {
                           registers[k] = from;
                         } else {
                           registers[k] = &blocks[k];
                           load_block(from, step, some, blocks[k].as<R>() + place);
                         }
                       });
    }
    for (int n = 0; n < program_.num_instructions; ++n) {
      const int r = program_.first_result() + n;
      if (stored_from_[r] >= 0) continue;
      void* to = &blocks[r];
      if (n == program_.num_instructions - 1 && direct_output_ >= 0) {
        to = output<char>(args, static_cast<size_t>(direct_output_)) +
             at * static_cast<int64_t>(itemsize(program_.register_dtypes[r]));
      }
      const ElementInstruction& instruction = program_.instructions[n];
      if (loads_[n]) {
        for_each_stretch(args, instruction.operands[0], at, count,
                         [&](const auto* from, int64_t step, int64_t place, int64_t some) {
                           load_floats(from, step, some, static_cast<float*>(to) + place);
                         });
      } else {
        const void* operands[3];
        for (int i = 0; i < 3; ++i) operands[i] = registers[instruction.operands[i]];
        run_element_block(instruction, operands, to, count);
      }
    }
    store_outputs(args, registers, at, count);
  }

  void store_outputs(const KernelArgs& args, const RegisterPointers& registers, int64_t at,
                     int64_t count) const {
    for (int k = 0; k < program_.num_outputs; ++k) {
      if (k == direct_output_) continue;
      const int r = program_.outputs[k];
      with_storage(program_.register_dtypes[r], [&]<typename T>(Type<T>) {
        using R = typename RegisterOf<T>::type;
        const bool is_direct = direct_output_ >= 0 && r == program_.outputs[direct_output_];
        const R* from = is_direct ? reinterpret_cast<const R*>(
                                        output<T>(args, static_cast<size_t>(direct_output_)) + at)
                                  : static_cast<const R*>(registers[r]);
        T* to = output<T>(args, static_cast<size_t>(k)) + at;
        if constexpr (std::is_integral_v<T>) {
          if (stored_from_[r] >= 0) {
            return store_integers(static_cast<const float*>(registers[stored_from_[r]]), to, count);
          }
        }
        store_block(from, to, count);
      });
    }
  }

  ElementProgram program_;
  int64_t size_;
  // Of each by itself: where all were joined, a row would be as short as that of the shortest.
  std::vector<BroadcastGeometry> inputs_;
  std::array<bool, kMaxElementRegisters> is_read_;     // as a register
  std::array<bool, kMaxElementRegisters> loads_;       // by instruction: casts an input to float32
  std::array<int, kMaxElementRegisters> stored_from_;  // what a cast that only outputs take is of
  bool last_is_direct_ = true;
  int direct_output_ = -1;  // the output that the last instruction writes itself
};

}  // namespace

std::unique_ptr<Kernel> plan_element_program(const PlanRequest& request,
                                             const ElementProgram& program) {
  Interpreter interpreter(request, program);
  const int64_t workspace = interpreter.workspace_bytes();
  std::string description = "kerascnn elementwise " + interpreter.name();
  return make_kernel(
      std::move(description), [interpreter](const KernelArgs& args) { interpreter.run(args); },
      workspace);
}

}  // namespace kerascnn::cpu
