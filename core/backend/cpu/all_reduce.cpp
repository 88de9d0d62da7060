// Sums over processes. The engine moves bytes, and each element is summed here, in the order of the
// processes and in float32 or wider: the bits depend neither on the engine nor on the size of a
// message, and are the same in all processes.
//
// Up to kShortMessage bytes go to all processes, and each adds up everything. Of longer messages a
// process adds up one part, which it is sent by all, and sends the sums to all: it then sends and
// receives less than twice the message, however many processes there are.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/collectives.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/process_sums.h"
#include "core/base/ceil_div.h"

namespace kerascnn::cpu {
namespace {

constexpr int64_t kShortMessage = 1 << 14;

struct Call {
  std::vector<int64_t> sizes;  // of the tensors
  int64_t count = 0;           // their sum
  int64_t part = 0;            // elements that a process adds up; of short messages all of them
  int64_t processes = 1;
  bool is_short = true;
  double scale = 1;
  double factor = 1;
};

Call describe(const PlanRequest& request, int64_t item_bytes) {
  Call call;
  for (const TensorSpec& spec : request.inputs) {
    call.sizes.push_back(num_elements(spec.shape));
    call.count += call.sizes.back();
  }
  call.processes = request.attributes.get_int("processes");
  call.is_short = call.count * item_bytes <= kShortMessage;
  call.part = call.is_short ? call.count : ceil_div(call.count, call.processes);
  call.scale = request.attributes.get_double("scale");
  call.factor = request.attributes.get_double("factor");
  return call;
}

template <typename T>
class AllReduce final : public Kernel {
 public:
  AllReduce(Call call, std::string engine) : call_(std::move(call)), engine_(std::move(engine)) {}

  // Kernels are kept, and the engine may be another one by then.
  void run(const KernelArgs& args) override {
    const auto collectives = collectives_for("all_reduce", call_.processes);
    T* message = static_cast<T*>(args.workspace);
    T* blocks = message + sent();
    pack(args, message);
    const int64_t block_bytes = call_.part * static_cast<int64_t>(sizeof(T));
    if (call_.is_short) {
      collectives->gather(message, blocks, block_bytes);
      add_blocks(blocks, message, call_.part, call_.processes, call_.factor);
      unpack(message, args);
    } else {
      collectives->exchange(message, blocks, block_bytes);
      add_blocks(blocks, message, call_.part, call_.processes, call_.factor);
      collectives->gather(message, blocks, block_bytes);
      unpack(blocks, args);
    }
  }

  int64_t workspace_bytes() const override {
    return (sent() + call_.part * call_.processes) * static_cast<int64_t>(sizeof(T));
  }
  bool meets_processes() const override { return true; }
  std::string description() const override { return "kerascnn all_reduce over " + engine_; }

 private:
  int64_t sent() const { return call_.is_short ? call_.part : call_.part * call_.processes; }

  void pack(const KernelArgs& args, T* message) const {
    T* at = message;
    for (size_t i = 0; i < call_.sizes.size(); ++i) {
      multiply(input<T>(args, i), at, call_.sizes[i], call_.scale);
      at += call_.sizes[i];
    }
    std::fill(at, message + sent(), T(0.0f));  // the last part may be longer than what is left
  }

  void unpack(const T* sums, const KernelArgs& args) const {
    for (size_t i = 0; i < call_.sizes.size(); ++i) {
      multiply(sums, output<T>(args, i), call_.sizes[i], 1);
      sums += call_.sizes[i];
    }
  }

  Call call_;
  std::string engine_;
};

}  // namespace

std::unique_ptr<Kernel> plan_all_reduce(const PlanRequest& request) {
  return dispatch_floating(
      request, request.inputs[0].dtype, [&]<typename T>(Type<T>) -> std::unique_ptr<Kernel> {
        const Call call = describe(request, sizeof(T));
        const auto collectives = collectives_for("all_reduce", call.processes);
        if (call.processes > 1) {
          return std::make_unique<AllReduce<T>>(call, collectives->name);
        }
        return make_kernel("kerascnn all_reduce of one process", [call](const KernelArgs& args) {
          for (size_t i = 0; i < call.sizes.size(); ++i) {
            multiply(input<T>(args, i), output<T>(args, i), call.sizes[i],
                     call.scale * call.factor);
          }
        });
      });
}

}  // namespace kerascnn::cpu
