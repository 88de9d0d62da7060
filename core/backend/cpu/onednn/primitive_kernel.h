// A kernel of one oneDNN primitive with the reorders around it. Used by the plan functions of
// primitives.h only.
#pragma once

#include <dnnl.hpp>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/backend/backend.h"
#include "core/ops/activation_kind.h"

namespace kerascnn::cpu::onednn {

const dnnl::engine& engine();
// The calling thread's stream.
dnnl::stream& stream();

// Runs a primitive with `team` threads of oneDNN's own, of which the calling one is the first, and
// returns when it has ended. Handlers of signals do no harm meanwhile (signal_stack.h).
void execute(const dnnl::primitive& primitive,
             const std::unordered_map<int, dnnl::memory>& arguments, int team = 1);

// "conv2d of float32 (2, 8, 8, 3), float32 (3, 3, 3, 16)": what errors say.
std::string call_string(const PlanRequest& request);
// Throws where the process gets no memory for generated code. It is asked before oneDNN makes some:
// for a primitive, and when that runs for the first time. Where oneDNN 3.2 met the lack itself, it
// would make no code in this thread any more, and keep keys in its cache of primitives that point
// to freed memory.
void require_room_for_code();
// Lets oneDNN make the code of its float32 products, which it otherwise makes while the first one
// runs, beside threads that start and take memory too. It makes that code once for the process:
// without memory then, all products would fail from there on. Throws dnnl::error.
void prepare_products();

[[noreturn]] void throw_library_error(const std::string& call, const dnnl::error& error);

// The activation as a post-op. This throws nothing, since every Activation has one. Some turn NaN
// into a number; see nan_safe_activation.h.
dnnl::primitive_attr make_attributes(const ActivationCall& activation);

dnnl::memory::desc plain(const dnnl::memory::dims& dims, dnnl::memory::format_tag tag,
                         dnnl::memory::data_type type = dnnl::memory::data_type::f32);
dnnl::memory::desc any_layout(const dnnl::memory::dims& dims);

// Where the buffer of one primitive argument comes from.
struct Argument {
  int name;  // DNNL_ARG_SRC, ...
  bool is_output;
  size_t index;                // into the kernel's inputs or outputs
  dnnl::memory::desc outside;  // the layout of that buffer
  dnnl::memory::desc inside;   // the layout the primitive wants
  // For a call in parts: the bytes of one row, where each part has its own rows. A part reads the
  // whole of an input without rows; an output without rows is the sum of what the parts give.
  int64_t row_bytes = 0;
};

// The share of a call that one primitive computes.
struct Part {
  dnnl::primitive primitive;
  dnnl::memory::desc scratchpad;
  std::vector<Argument> arguments;  // in the same order in all parts
  int64_t first_row = 0;
};

// Runs the parts of a call, which the pool's threads take, each with one thread. A single part has
// `team` threads of oneDNN's own.
class PrimitiveKernel final : public Kernel {
 public:
  PrimitiveKernel(std::string call, std::string implementation, std::vector<Part> parts, int team);

  void run(const KernelArgs& args) override;
  int64_t workspace_bytes() const override { return workspace_; }
  std::string description() const override { return description_; }

 private:
  // A copy in another layout, piece by piece.
  struct Reorder {
    dnnl::reorder primitive;
    dnnl::memory from, to;
  };
  // An argument of the call.
  struct Bound {
    Argument argument;
    int64_t copy = -1;  // where the copy in the primitive's layout lies in the workspace
    int64_t sums = -1;  // where the parts' results lie that are added up
    int64_t bytes = 0;  // of the primitive's layout
    std::vector<Reorder> reorders;
  };
  struct BoundPart {
    dnnl::primitive primitive;
    dnnl::memory scratchpad;
    std::vector<dnnl::memory> memories;  // of bound_, in this order
    std::unordered_map<int, dnnl::memory> map;
    int64_t first_row;
  };

  int64_t reserve(int64_t bytes);
  Bound bind(const Argument& argument, size_t parts);
  void run_part(const KernelArgs& args, size_t part, int64_t thread);
  char* place_of(const KernelArgs& args, const Bound& bound, size_t part) const;
  void add_up(const KernelArgs& args, const Bound& bound) const;
  void reorder(const KernelArgs& args, Bound& bound);

  std::string call_;
  std::string description_;
  int team_;
  int64_t scratch_bytes_ = 0;  // of each thread
  int64_t workspace_ = 0;
  bool has_run_ = false;
  std::vector<Bound> bound_;
  std::vector<BoundPart> parts_;
  std::mutex mutex_;  // the memory objects hold the pointers of one call
};

}  // namespace kerascnn::cpu::onednn
