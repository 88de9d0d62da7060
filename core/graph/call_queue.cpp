#include "core/graph/call_queue.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/base/error.h"
#include "core/graph/memory_plan.h"
#include "core/memory/poison.h"

namespace kerascnn {
namespace {

// A larger tensor that comes from another place each time is read where it is.
constexpr int64_t kMostCopiedBytes = 4 << 20;
// What calls that wait copy goes to the device at once, and must not take long to.
constexpr int64_t kMostWaitingBytes = 4 << 20;
// A few numbers of calls at a time, for a few places of the inputs.
constexpr size_t kMostExecutors = 10;

}  // namespace

CallQueue::CallQueue(CalledProgram program, LaterRuns* later)
    : program_(std::move(program)),
      later_(later),
      backend_(backend(program_.device)),
      is_copied_(program_.inputs.size()),
      in_place_(program_.inputs.size()) {
  lay_out();
}

CallQueue::~CallQueue() {
  try {
    settle();
  } catch (const Error&) {
    // The device is lost, and with it the calls that waited.
  }
}

std::vector<Tensor> CallQueue::call(const std::vector<CallArgument>& arguments) {
  choose_copies(arguments);
  bool waits = num_slots_ > 1;
  for (const auto& [tensor, is_lent] : arguments) {
    if (is_lent) continue;
    // What a call that waits returned is not there yet, and may be copied from now on.
    if (results_.defined() && tensor.storage() == results_.storage()) settle();
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
    begin_anew();  // whatever waited was given up
    throw;
  }
  if (!waits) calls_[slot] = {};
  return results;
}

bool CallQueue::has_to_be_copied(size_t index, const CallArgument& argument) const {
  const Tensor& tensor = argument.tensor;
  if (tensor.bytes() == 0) return false;
  if (argument.is_lent || !tensor.is_packed() || program_.is_overwritten(tensor)) return true;
  const Tensor& before = in_place_[index];
  return before.defined() && before.data() != tensor.data() && tensor.bytes() <= kMostCopiedBytes;
}

// Once an input has to be copied it always is, so that the kernels find it at one address.
void CallQueue::choose_copies(const std::vector<CallArgument>& arguments) {
  bool has_more = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (is_copied_[i] || !has_to_be_copied(i, arguments[i])) continue;
    if (!has_more) settle();
    has_more = is_copied_[i] = true;
    in_place_[i] = Tensor();
  }
  if (has_more) lay_out();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Tensor& tensor = arguments[i].tensor;
    if (is_copied_[i] || (in_place_[i].defined() && in_place_[i].data() == tensor.data())) continue;
    if (in_place_[i].defined()) settle();
    in_place_[i] = tensor.detached();
  }
}

// Nothing waits here.
void CallQueue::lay_out() {
  offsets_.assign(is_copied_.size(), 0);
  slot_bytes_ = 0;
  for (size_t i = 0; i < is_copied_.size(); ++i) {
    if (!is_copied_[i]) continue;
    offsets_[i] = slot_bytes_;
    slot_bytes_ += align_buffer(num_bytes(program_.inputs[i]));
  }
  const bool may_wait = later_ != nullptr && slot_bytes_ <= kMostWaitingBytes / program_.num_slots;
  num_slots_ = may_wait ? program_.num_slots : 1;
  executors_.clear();
  begin_anew();
  slots_ = slot_bytes_ > 0 ? allocate_storage(num_slots_ * slot_bytes_, program_.device) : nullptr;
  host_.assign(num_slots_ > 1 ? num_slots_ * slot_bytes_ : 0, 0);
}

// Takes the slots of calls that were started. Not when they are: what they hold may ask for locks
// when it goes, such as Python's, which whoever starts calls must not wait for.
void CallQueue::begin_anew() {
  calls_.assign(num_slots_, {});
  num_made_ = num_started_ = 0;
}

// Starts what waits.
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
    results.push_back(num_slots_ > 1 ? results_.piece(spec, offset)
                                     : Tensor::empty(spec, program_.device));
  }
  return results;
}

void CallQueue::run(int64_t steps) {
  int64_t first = num_started_;
  num_started_ += steps;
  // Powers of two, so that there are few numbers of calls to bind kernels for.
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
    // Nothing in them outlives a start.
    for (const StoragePtr& storage : {program_.arena, program_.results}) {
      backend_.fill(storage->data(), kPoison, storage->bytes());
    }
  }
  executor_for(count).run(1);
  copy_results(first, count);
}

// To the first slots on the device.
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
