#include "core/graph/call_queue.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/base/error.h"
#include "core/graph/memory_plan.h"
#include "core/memory/poison.h"

namespace kerascnn {
namespace {

// A larger tensor that comes from another place each time is read from there.
constexpr int64_t kMostCopiedBytes = 4 << 20;
// Waiting calls copy so much to the device at once, by a copy that must not wait for the device
// (Backend::kMostStagedBytes).
constexpr int64_t kMostWaitingBytes = Backend::kMostStagedBytes;
// Some numbers of calls at a time, for some places of the inputs.
constexpr size_t kMostExecutors = 10;

}  // namespace

CallQueue::CallQueue(CalledProgram program, LaterRuns* later)
    : program_(std::move(program)),
      later_(later),
      backend_(backend(program_.device)),
      in_place_(program_.inputs.size()) {
  lay_out(std::vector<bool>(program_.inputs.size()));
}

CallQueue::~CallQueue() {
  if (later_ != nullptr) later_->flush_quietly();
}

std::vector<Tensor> CallQueue::call(const std::vector<CallArgument>& arguments) {
  choose_copies(arguments);
  bool waits = num_slots_ > 1 && !later_->is_stopped();
  for (const auto& [tensor, is_lent] : arguments) {
    if (is_lent) continue;
    // The result of a waiting call is not there yet; it may be copied after this.
    if (is_result(tensor)) settle();
    waits = waits && !program_.is_overwritten(tensor);
  }
  if (!waits || num_made_ == num_slots_) settle();
  if (num_made_ == num_slots_) begin_anew();
  if (num_made_ == 0 && num_slots_ > 1) {
    const Shape size{num_slots_ * program_.slot_bytes};
    results_ = Tensor::empty({DType::UInt8, size}, program_.device);
  }
  const int64_t slot = num_made_;
  Call made{std::vector<Tensor>(arguments.size()), {}};
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!is_copied_[i]) continue;
    const auto& [tensor, is_lent] = arguments[i];
    made.sources[i] =
        is_lent && waits ? kept_on_host(i, slot, tensor) : tensor.contiguous().detached();
  }
  std::vector<Tensor> results = results_of(slot);
  if (num_slots_ == 1) made.results = results;
  calls_[slot] = std::move(made);
  ++num_made_;
  try {
    waits ? later_->add(*this, 1) : run(1);
  } catch (...) {
    begin_anew();  // the waiting calls were given up
    throw;
  }
  if (!waits) calls_[slot] = {};
  return results;
}

bool CallQueue::has_to_be_copied(size_t index, const CallArgument& argument) const {
  const Tensor& tensor = argument.tensor;
  if (tensor.bytes() == 0) return false;
  if (argument.is_lent || !tensor.is_packed() || program_.is_overwritten(tensor)) return true;
  if (tensor.bytes() > kMostCopiedBytes) return false;
  if (tensor.storage()->is_exposed()) return true;  // its owner may want it back
  const Tensor& before = in_place_[index];
  return is_copied_[index] || (before.defined() && before.data() != tensor.data());
}

// What had to be copied once is always copied from then on, so that the kernels find it at one
// address.
void CallQueue::choose_copies(const std::vector<CallArgument>& arguments) {
  std::vector<bool> is_copied;
  for (size_t i = 0; i < arguments.size(); ++i) {
    is_copied.push_back(has_to_be_copied(i, arguments[i]));
  }
  if (is_copied != is_copied_) {
    settle();
    lay_out(std::move(is_copied));
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Tensor& tensor = arguments[i].tensor;
    const Tensor& before = in_place_[i];
    if (is_copied_[i]) continue;
    if (before.defined() && (tensor.bytes() == 0 || before.data() == tensor.data())) continue;
    if (before.defined()) settle();
    in_place_[i] = tensor.detached();
  }
}

// No call may be waiting here. Everything stays as it is where there is not enough memory.
void CallQueue::lay_out(std::vector<bool> is_copied) {
  std::vector<int64_t> offsets;
  int64_t slot_bytes = 0;
  for (size_t i = 0; i < is_copied.size(); ++i) {
    offsets.push_back(slot_bytes);
    if (is_copied[i]) slot_bytes += align_buffer(num_bytes(program_.inputs[i]));
  }
  const bool may_wait = later_ != nullptr && slot_bytes <= kMostWaitingBytes / program_.num_slots;
  const int64_t num_slots = may_wait ? program_.num_slots : 1;
  StoragePtr slots =
      slot_bytes > 0 ? allocate_storage(num_slots * slot_bytes, program_.device) : nullptr;
  std::vector<char> host(num_slots > 1 ? num_slots * slot_bytes : 0);
  std::vector<Call> calls(num_slots);

  executors_.clear();
  for (size_t i = 0; i < is_copied.size(); ++i) {
    if (is_copied[i]) in_place_[i] = Tensor();
  }
  is_copied_ = std::move(is_copied);
  offsets_ = std::move(offsets);
  slot_bytes_ = slot_bytes;
  num_slots_ = num_slots;
  slots_ = std::move(slots);
  host_ = std::move(host);
  calls_ = std::move(calls);
  num_made_ = num_started_ = 0;
}

// Frees the slots of calls that were started. This is not done when they start, because what they
// hold may ask for locks when it goes, such as Python's, for which a thread that starts calls must
// not wait.
void CallQueue::begin_anew() {
  calls_.assign(num_slots_, {});
  num_made_ = num_started_ = 0;
}

// Starts the waiting calls.
void CallQueue::settle() {
  if (later_ != nullptr) later_->flush();
}

Tensor CallQueue::place_of(size_t input, int64_t slot) const {
  const TensorSpec& spec = program_.inputs[input];
  return {slots_, spec, contiguous_strides(spec.shape), slot * slot_bytes_ + offsets_[input]};
}

Tensor CallQueue::kept_on_host(size_t input, int64_t slot, const Tensor& lent) {
  char* const place = host_.data() + slot * slot_bytes_ + offsets_[input];
  std::memcpy(place, lent.data(), static_cast<size_t>(lent.bytes()));
  return {std::make_shared<Storage>(place, lent.bytes(), Device{}, nullptr), lent.spec(),
          contiguous_strides(lent.shape())};
}

std::vector<Tensor> CallQueue::results_of(int64_t slot) const {
  std::vector<Tensor> results;
  for (size_t i = 0; i < program_.outputs.size(); ++i) {
    const TensorSpec& spec = program_.outputs[i];
    const int64_t offset = slot * program_.slot_bytes + program_.output_offsets[i];
    if (num_slots_ == 1) {
      results.push_back(Tensor::empty(spec, program_.device));
      continue;
    }
    // Each result has a storage of its own, so that nothing that happens to one touches the others.
    auto own =
        std::make_shared<Storage>(static_cast<char*>(results_.data()) + offset, num_bytes(spec),
                                  program_.device, [all = results_.storage()] {});
    results.emplace_back(std::move(own), spec, contiguous_strides(spec.shape));
  }
  return results;
}

bool CallQueue::is_result(const Tensor& tensor) const {
  if (!results_.defined() || tensor.bytes() == 0) return false;
  const char* const data = static_cast<const char*>(tensor.data());
  const char* const first = static_cast<const char*>(results_.data());
  return data >= first && data < first + results_.bytes();
}

void CallQueue::run(int64_t steps) {
  int64_t first = num_started_;
  num_started_ += steps;
  // These are powers of two, so that there are few numbers of calls to bind kernels for.
  while (steps > 0) {
    const auto count = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(steps)));
    start(first, count);
    first += count;
    steps -= count;
  }
}

void CallQueue::start(int64_t first, int64_t count) {
  copy_inputs(first, count);
  if (poisons_memory()) {
    // Nothing in this memory outlives a start.
    for (const StoragePtr& storage : {program_.arena, program_.results}) {
      backend_.fill(storage->data(), kPoison, storage->bytes());
    }
  }
  executor_for(count).run(1);
  copy_results(first, count);
}

// Copies to the first slots on the device.
void CallQueue::copy_inputs(int64_t first, int64_t count) {
  const auto is_kept_on_host = [&](const Tensor& source) {
    const char* const data = static_cast<const char*>(source.data());
    return !host_.empty() && data >= host_.data() && data < host_.data() + host_.size();
  };
  bool all_on_host = slots_ != nullptr;
  for (int64_t slot = first; slot < first + count; ++slot) {
    for (const Tensor& source : calls_[slot].sources) {
      all_on_host = all_on_host && (!source.defined() || is_kept_on_host(source));
    }
  }
  if (all_on_host) {
    return backend_.copy_from_host(slots_->data(), host_.data() + first * slot_bytes_,
                                   count * slot_bytes_);
  }
  for (int64_t slot = 0; slot < count; ++slot) {
    const std::vector<Tensor>& sources = calls_[first + slot].sources;
    for (size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].defined()) place_of(i, slot).copy_from(sources[i]);
    }
  }
}

void CallQueue::copy_results(int64_t first, int64_t count) {
  const int64_t bytes = program_.slot_bytes;
  if (num_slots_ > 1) {
    char* const target = static_cast<char*>(results_.data()) + first * bytes;
    return backend_.copy(target, program_.results->data(), count * bytes);
  }
  const std::vector<Tensor>& results = calls_[first].results;
  for (size_t i = 0; i < results.size(); ++i) {
    const char* const source = static_cast<const char*>(program_.results->data());
    backend_.copy(results[i].data(), source + program_.output_offsets[i], results[i].bytes());
  }
}

Executor& CallQueue::executor_for(int64_t count) {
  std::vector<void*> in_place;
  for (const Tensor& tensor : in_place_) {
    in_place.push_back(tensor.defined() ? tensor.data() : nullptr);
  }
  const auto found = std::find_if(executors_.begin(), executors_.end(), [&](const Bound& bound) {
    return bound.count == count && bound.inputs == in_place;
  });
  if (found != executors_.end()) {
    executors_.splice(executors_.begin(), executors_, found);
    return *executors_.front().executor;
  }
  std::vector<Instruction> all;
  for (int64_t slot = 0; slot < count; ++slot) {
    std::vector<void*> inputs = in_place;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (is_copied_[i]) inputs[i] = place_of(i, slot).data();
    }
    std::vector<Instruction> step = program_.instructions(inputs, slot);
    std::move(step.begin(), step.end(), std::back_inserter(all));
  }
  std::unique_ptr<Executor> executor = backend_.make_executor({std::move(all)}, true);
  if (executors_.size() == kMostExecutors) executors_.pop_back();
  executors_.push_front({std::move(in_place), count, std::move(executor)});
  return *executors_.front().executor;
}

}  // namespace kerascnn
