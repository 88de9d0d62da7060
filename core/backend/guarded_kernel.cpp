#include "core/backend/guarded_kernel.h"

#include <algorithm>
#include <vector>

#include "core/base/env.h"
#include "core/base/error.h"
#include "core/memory/poison.h"
#include "core/ops/custom_op.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

// A guard has so many bytes on either side. The guard behind begins at the last byte's neighbour.
constexpr int64_t kGuardBytes = 256;
constexpr int64_t kAlignment = 256;
constexpr unsigned char kGuard = 0xa5;

// A piece of the workspace between two guards.
struct Piece {
  std::string name;  // "output 0 (float32 (2, 3))"
  int64_t offset = 0;
  int64_t bytes = 0;

  int64_t end() const { return offset + bytes + kGuardBytes; }
};

std::string title_of(const PlanRequest& request) {
  if (&request.op == &op_fused) return request.attributes.get_string("fusion");
  return request.op.runs_user_code ? custom_op_title(*custom_op_of(request.attributes))
                                   : std::string(request.op.name);
}

class GuardedKernel final : public Kernel {
 public:
  GuardedKernel(Backend& backend, std::unique_ptr<Kernel> kernel, std::string title,
                std::vector<TensorSpec> outputs)
      : backend_(backend),
        kernel_(std::move(kernel)),
        title_(std::move(title)),
        outputs_(std::move(outputs)) {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      add(message("output ", i, " (", spec_string(outputs_[i]), ")"), num_bytes(outputs_[i]));
    }
  }

  void finish_planning() override {
    kernel_->finish_planning();
    add("the workspace", kernel_->workspace_bytes());
  }
  int64_t workspace_bytes() const override { return total_; }
  bool keeps_state() const override { return kernel_->keeps_state(); }
  bool meets_processes() const override { return kernel_->meets_processes(); }
  int64_t num_partial_sums() const override { return kernel_->num_partial_sums(); }
  std::unique_ptr<Kernel> leave_partial_sums() const override {
    std::vector<TensorSpec> stacks = outputs_;
    for (TensorSpec& stack : stacks) stack.shape.insert(stack.shape.begin(), num_partial_sums());
    return std::make_unique<GuardedKernel>(backend_, kernel_->leave_partial_sums(), title_,
                                           std::move(stacks));
  }
  std::string description() const override { return kernel_->description(); }

  void run(const KernelArgs& args) override {
    auto* base = static_cast<unsigned char*>(args.workspace);
    backend_.fill(base, kGuard, total_);
    std::vector<void*> outputs;
    for (size_t i = 0; i < args.outputs.size(); ++i) {
      outputs.push_back(args.outputs[i] != nullptr ? base + pieces_[i].offset : nullptr);
      backend_.fill(base + pieces_[i].offset, kPoison, pieces_[i].bytes);
    }
    kernel_->run({args.inputs, outputs, base + pieces_.back().offset, args.stream});
    backend_.synchronize();
    for (const Piece& piece : pieces_) check(base, piece);
    for (size_t i = 0; i < args.outputs.size(); ++i) {
      if (args.outputs[i] != nullptr) backend_.copy(args.outputs[i], outputs[i], pieces_[i].bytes);
    }
  }

 private:
  void add(std::string name, int64_t bytes) {
    Piece& piece = pieces_.emplace_back(Piece{std::move(name), total_ + kGuardBytes, bytes});
    total_ = (piece.end() + kAlignment - 1) / kAlignment * kAlignment;
  }

  void check(const unsigned char* base, const Piece& piece) {
    check_guard(base + piece.offset - kGuardBytes, piece, "before");
    check_guard(base + piece.offset + piece.bytes, piece, "behind");
  }

  void check_guard(const unsigned char* guard, const Piece& piece, const char* side) {
    unsigned char found[kGuardBytes];
    backend_.copy_to_host(found, guard, kGuardBytes);
    const auto changed = kGuardBytes - std::count(std::begin(found), std::end(found), kGuard);
    if (changed == 0) return;
    throw DeviceError(message(title_, ": the kernel ", kernel_->description(),
                              " wrote out of bounds: ", changed, " of the ", kGuardBytes, " bytes ",
                              side, " ", piece.name,
                              " were changed. Compare each index with the size before writing"));
  }

  Backend& backend_;
  std::unique_ptr<Kernel> kernel_;
  std::string title_;
  std::vector<TensorSpec> outputs_;
  std::vector<Piece> pieces_;  // of the outputs, then of the workspace
  int64_t total_ = 0;
};

}  // namespace

bool checks_kernels() {
  static const bool checks = env_flag("KERASCNN_CHECK_KERNELS", false);
  return checks;
}

std::unique_ptr<Kernel> make_guarded_kernel(Backend& backend, std::unique_ptr<Kernel> kernel,
                                            const PlanRequest& request) {
  return std::make_unique<GuardedKernel>(
      backend, std::move(kernel), title_of(request),
      std::vector<TensorSpec>(request.outputs.begin(), request.outputs.end()));
}

}  // namespace kerascnn
