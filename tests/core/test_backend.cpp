// What plan_kernel() promises a backend is tested with a backend that only takes notes.
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "core/backend/backend.h"
#include "core/base/error.h"
#include "core/ops/op.h"

namespace kerascnn {
namespace {

std::vector<std::string> calls;

class NotingKernel : public Kernel {
 public:
  void run(const KernelArgs&) override {}
  void finish_planning() override { calls.emplace_back("finish_planning"); }
  std::string description() const override { return "exp"; }
};

std::unique_ptr<Kernel> plan_exp(const PlanRequest& request) {
  calls.emplace_back(request.op.name);
  return std::make_unique<NotingKernel>();
}

constexpr KernelTableRow kRows[] = {{"exp", plan_exp}};

// This backend stands for the second GPU of a machine and runs nothing.
class NotingBackend : public Backend {
 public:
  Device device() const override { return {DeviceType::Cuda, 1}; }
  void activate() override { calls.emplace_back("activate"); }
  std::string description() const override { return "takes notes"; }
  Allocator& allocator() override { throw DeviceError("no memory here"); }
  std::span<const KernelTableRow> kernel_table() const override { return kRows; }
  std::unique_ptr<Executor> make_executor(ArenaSteps, bool) override { return nullptr; }
  LaunchStats launch_stats() const override { return {}; }
  void launch(Kernel&, const KernelArgs&) override {}
  void copy_from_host(void*, const void*, int64_t) override {}
  void copy_to_host(void*, const void*, int64_t) override {}
  void copy(void*, const void*, int64_t) override {}
  void fill(void*, int, int64_t) override {}
  void copy_all_to_host(std::span<const HostCopy>, double) override {}
  void synchronize(double) override {}
  void* stream() override { return nullptr; }
  StoragePtr allocate_host(int64_t) override { return nullptr; }
  std::unique_ptr<Fence> make_fence() override { return nullptr; }
  void copy_beside(std::span<const HostCopy>, Fence*, Fence*) override {}
  void hold_back(Fence&) override {}
  void wait_for_stream(intptr_t) override {}
  void make_stream_wait(intptr_t) override {}
};

void plan(Backend& backend, std::string_view op) {
  const Attributes attributes;
  const std::vector<TensorSpec> specs = {{DType::Float32, {2}}};
  plan_kernel(backend, PlanRequest{find_op(op), attributes, specs, specs});
}

}  // namespace

// Planning asks the current device for its properties and makes handles there. A machine with
// several GPUs needs the right one to be current, whichever thread compiles.
TEST(the_device_is_current_before_a_kernel_is_planned) {
  calls.clear();
  NotingBackend backend;
  plan(backend, "exp");
  CHECK((calls == std::vector<std::string>{"activate", "exp", "finish_planning"}));
}

TEST(an_op_without_a_kernel_is_named_with_the_device) {
  NotingBackend backend;
  CHECK_THROWS(DeviceError, "log: there is no kernel for this op on cuda:1", plan(backend, "log"));
}

}  // namespace kerascnn
