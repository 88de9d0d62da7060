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

// "conv2d of float32 (2, 8, 8, 3), float32 (3, 3, 3, 16)": what errors say.
std::string call_string(const PlanRequest& request);
[[noreturn]] void throw_library_error(const std::string& call, const dnnl::error& error);

// The activation as a post-op. This throws nothing, since every Activation has one. Some turn NaN
// into a number; see nan_safe_activation.h.
dnnl::primitive_attr make_attributes(const ActivationCall& activation);

dnnl::memory::desc plain(const dnnl::memory::dims& dims, dnnl::memory::format_tag tag,
                         dnnl::memory::data_type type = dnnl::memory::data_type::f32);
dnnl::memory::desc any_layout(const dnnl::memory::dims& dims);

class PrimitiveKernel final : public Kernel {
 public:
  // Where the buffer of one primitive argument comes from.
  struct Argument {
    int name;  // DNNL_ARG_SRC, ...
    bool is_output;
    size_t index;                // into the kernel's inputs or outputs
    dnnl::memory::desc outside;  // the layout of that buffer
    dnnl::memory::desc inside;   // the layout the primitive wants
  };

  PrimitiveKernel(std::string call, std::string implementation, const dnnl::primitive& primitive,
                  const dnnl::memory::desc& scratchpad, const std::vector<Argument>& arguments);

  void run(const KernelArgs& args) override;
  int64_t workspace_bytes() const override { return workspace_; }
  std::string description() const override { return description_; }

 private:
  struct Bound {
    bool is_output;
    size_t index;
    int64_t offset;  // of the reordered copy in the workspace
    dnnl::memory outside;
    dnnl::memory inside;    // the same as outside where no reorder is needed
    dnnl::reorder reorder;  // empty where no reorder is needed
  };

  std::string call_;
  std::string description_;
  dnnl::primitive primitive_;
  dnnl::memory scratchpad_;
  int64_t workspace_ = 0;
  std::vector<Bound> bound_;
  std::unordered_map<int, dnnl::memory> map_;
  std::mutex mutex_;  // the memory objects hold the pointers of one call
};

}  // namespace kerascnn::cpu::onednn
