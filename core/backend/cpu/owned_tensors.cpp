// Sums that go to one process each, and tensors that come from one. As in all_reduce.cpp, the
// engine moves bytes, and each element is summed in the order of the processes: the bits are those
// of all_reduce.
//
// Where the owners have about as much each, block k of a message is what process k owns: one
// exchange of n blocks. Otherwise the tensors lie in a row, of which a block is an equal part: a
// process then passes parts on to their owners, in two exchanges.
#include <algorithm>
#include <cstring>
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

struct OwnedMessage {
  std::vector<int64_t> sizes;   // of the tensors, in elements
  std::vector<int64_t> owners;  // of each
  std::vector<int64_t> places;  // the first element of each in a message
  int64_t processes = 1;
  bool is_by_owner = true;
  int64_t block = 0;  // elements

  int64_t count() const { return block * processes; }
};

OwnedMessage describe_owned(const PlanRequest& request) {
  OwnedMessage message;
  message.processes = request.attributes.get_int("processes");
  message.owners = request.attributes.get_ints("owners");
  std::vector<int64_t> shares(message.processes, 0);
  int64_t count = 0;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    message.sizes.push_back(num_elements(request.inputs[i].shape));
    message.places.push_back(shares[message.owners[i]]);
    shares[message.owners[i]] += message.sizes.back();
    count += message.sizes.back();
  }
  const int64_t largest = *std::ranges::max_element(shares);
  const int64_t even = ceil_div(count, message.processes);
  message.is_by_owner = largest <= 2 * even;
  message.block = message.is_by_owner ? largest : even;
  int64_t in_a_row = 0;
  for (size_t i = 0; i < message.sizes.size(); ++i) {
    if (message.is_by_owner) {
      message.places[i] += message.owners[i] * message.block;
    } else {
      message.places[i] = in_a_row;
      in_a_row += message.sizes[i];
    }
  }
  return message;
}

template <typename T>
class OwnedKernel : public Kernel {
 public:
  OwnedKernel(OwnedMessage message, std::string description)
      : message_(std::move(message)), description_(std::move(description)) {}

  int64_t workspace_bytes() const override {
    return 2 * message_.count() * static_cast<int64_t>(sizeof(T));
  }
  bool meets_processes() const override { return true; }
  std::string description() const override { return description_; }

 protected:
  int64_t block_bytes() const { return message_.block * static_cast<int64_t>(sizeof(T)); }

  // What process `rank` owns, or with -1 everything; the rest of the message is 0.
  void pack(const KernelArgs& args, T* to, int64_t rank) const {
    std::fill_n(to, message_.count(), T(0.0f));
    for (size_t i = 0; i < message_.sizes.size(); ++i) {
      if (rank >= 0 && message_.owners[i] != rank) continue;
      multiply(input<T>(args, i), to + message_.places[i], message_.sizes[i], 1);
    }
  }

  // Tensors from a message, or the inputs where `is_taken` is false for the owner.
  template <typename IsTaken>
  void unpack(const KernelArgs& args, const T* from, IsTaken is_taken) const {
    for (size_t i = 0; i < message_.sizes.size(); ++i) {
      const T* source =
          is_taken(message_.owners[i]) ? from + message_.places[i] : input<T>(args, i);
      multiply(source, output<T>(args, i), message_.sizes[i], 1);
    }
  }

  OwnedMessage message_;

 private:
  std::string description_;
};

template <typename T>
class ReduceToOwners final : public OwnedKernel<T> {
 public:
  ReduceToOwners(OwnedMessage message, double factor, const std::string& engine)
      : OwnedKernel<T>(std::move(message), "kerascnn reduce_to_owners over " + engine),
        factor_(factor) {}

  void run(const KernelArgs& args) override {
    const OwnedMessage& m = this->message_;
    const auto collectives = collectives_for("reduce_to_owners", m.processes);
    const int64_t rank = collectives->rank;
    T* sent = static_cast<T*>(args.workspace);
    T* received = sent + m.count();
    this->pack(args, sent, -1);
    collectives->exchange(sent, received, this->block_bytes());
    // The sums of this process' block take its place in the message.
    T* sums = sent + rank * m.block;
    add_blocks(received, sums, m.block, m.processes, factor_);
    const T* whole = sent;
    if (!m.is_by_owner) {
      collectives->gather(sums, received, this->block_bytes());
      whole = received;
    }
    this->unpack(args, whole, [&](int64_t owner) { return owner == rank; });
  }

 private:
  double factor_;
};

template <typename T>
class BroadcastFromOwners final : public OwnedKernel<T> {
 public:
  BroadcastFromOwners(OwnedMessage message, const std::string& engine)
      : OwnedKernel<T>(std::move(message), "kerascnn broadcast_from_owners over " + engine) {}

  void run(const KernelArgs& args) override {
    const OwnedMessage& m = this->message_;
    const auto collectives = collectives_for("broadcast_from_owners", m.processes);
    const int64_t rank = collectives->rank;
    T* sent = static_cast<T*>(args.workspace);
    T* received = sent + m.count();
    this->pack(args, sent, rank);
    T* own = sent + rank * m.block;
    if (!m.is_by_owner) {
      collectives->exchange(sent, received, this->block_bytes());
      choose(received, own, rank);
    }
    collectives->gather(own, received, this->block_bytes());
    this->unpack(args, received, [&](int64_t owner) { return owner != rank; });
  }

 private:
  // This process' part of all tensors in a row, each from what its owner has sent.
  void choose(const T* received, T* part, int64_t rank) const {
    const OwnedMessage& m = this->message_;
    const int64_t first = rank * m.block, last = first + m.block;
    for (size_t i = 0; i < m.sizes.size(); ++i) {
      const int64_t begin = std::max(first, m.places[i]);
      const int64_t end = std::min(last, m.places[i] + m.sizes[i]);
      if (begin >= end) continue;
      multiply(received + m.owners[i] * m.block + (begin - first), part + (begin - first),
               end - begin, 1);
    }
  }
};

// What one process does that is alone.
template <typename T>
std::unique_ptr<Kernel> plan_alone(const char* description, std::vector<int64_t> sizes, double by) {
  return make_kernel(description, [sizes = std::move(sizes), by](const KernelArgs& args) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      multiply(input<T>(args, i), output<T>(args, i), sizes[i], by);
    }
  });
}

}  // namespace

std::unique_ptr<Kernel> plan_reduce_to_owners(const PlanRequest& request) {
  return dispatch_floating(
      request, request.inputs[0].dtype, [&]<typename T>(Type<T>) -> std::unique_ptr<Kernel> {
        OwnedMessage message = describe_owned(request);
        const double factor = request.attributes.get_double("factor");
        const auto collectives = collectives_for("reduce_to_owners", message.processes);
        if (message.processes == 1) {
          return plan_alone<T>("kerascnn reduce_to_owners of one process", message.sizes, factor);
        }
        return std::make_unique<ReduceToOwners<T>>(std::move(message), factor, collectives->name);
      });
}

std::unique_ptr<Kernel> plan_broadcast_from_owners(const PlanRequest& request) {
  return dispatch_floating(
      request, request.inputs[0].dtype, [&]<typename T>(Type<T>) -> std::unique_ptr<Kernel> {
        OwnedMessage message = describe_owned(request);
        const auto collectives = collectives_for("broadcast_from_owners", message.processes);
        if (message.processes == 1) {
          return plan_alone<T>("kerascnn broadcast_from_owners of one process", message.sizes, 1);
        }
        return std::make_unique<BroadcastFromOwners<T>>(std::move(message), collectives->name);
      });
}

}  // namespace kerascnn::cpu
