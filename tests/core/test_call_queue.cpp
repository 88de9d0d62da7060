// Programs serve as functions whose calls wait; the device of these tests does nothing by itself.
#include <memory>
#include <stdexcept>

#include "check.h"
#include "core/base/error.h"
#include "core/graph/call_queue.h"
#include "core/graph/memory_plan.h"

namespace kerascnn {
namespace {

// While it is busy, this fence never passes: calls wait until somebody flushes or too many wait.
class BusyFence : public Fence {
 public:
  explicit BusyFence(const bool& is_busy) : is_busy_(is_busy) {}
  void record() override { is_recorded_ = true; }
  bool passed() override { return !is_recorded_ || !is_busy_; }
  void wait() override {}

 private:
  const bool& is_busy_;
  bool is_recorded_ = false;
};

// Computes result[k] = 100 * a[k] + 10 * b[k] + the number of steps so far, which it counts.
class CountingKernel : public Kernel {
 public:
  CountingKernel(float& count, bool& fails, const void*& read)
      : count_(count), fails_(fails), read_(read) {}
  void run(const KernelArgs& args) override {
    if (fails_) throw std::runtime_error("no");
    read_ = args.inputs[0];
    const auto* const a = static_cast<const float*>(args.inputs[0]);
    const auto* const b = static_cast<const float*>(args.inputs[1]);
    for (int k = 0; k < 3; ++k) {
      static_cast<float*>(args.outputs[0])[k] = 100 * a[k] + 10 * b[k] + count_;
    }
    ++count_;
  }
  std::string description() const override { return "counting"; }

 private:
  float& count_;
  bool& fails_;
  const void*& read_;
};

const TensorSpec kThree{DType::Float32, {3}};

Tensor three(float first) {
  const float values[] = {first, first + 1, first + 2};
  return Tensor::from_host(values, kThree, Device{});
}

float first_of(const Tensor& tensor) { return *static_cast<const float*>(tensor.data()); }

struct Setting {
  explicit Setting(bool waits = true, TensorSpec first = kThree)
      : spec(std::move(first)), queue(make_queue(waits ? &later : nullptr)) {}

  std::unique_ptr<CallQueue> make_queue(LaterRuns* runs) {
    CalledProgram program;
    program.inputs = {spec, kThree};
    program.outputs = {kThree};
    program.output_offsets = {0};
    program.slot_bytes = align_buffer(num_bytes(kThree));
    program.num_slots = 16;
    program.results = allocate_storage(program.num_slots * program.slot_bytes, Device{});
    program.arena = allocate_storage(0, Device{});
    program.is_overwritten = [this](const Tensor& tensor) {
      return tensor.data() == overwritten.data();
    };
    auto kernel = std::make_shared<CountingKernel>(count, fails, read);
    program.instructions = [this, kernel, program](const std::vector<void*>& inputs, int64_t slot) {
      ++num_bound;
      Instruction instruction;
      instruction.kernel = kernel;
      instruction.inputs = {inputs[0], inputs[1]};
      instruction.outputs = {static_cast<char*>(program.results->data()) +
                             slot * program.slot_bytes};
      return std::vector<Instruction>{instruction};
    };
    return std::make_unique<CallQueue>(std::move(program), runs);
  }

  Tensor call(const Tensor& a, const Tensor& b) { return queue->call({{a}, {b}}).front(); }
  // The lent array is overwritten as soon as the call has returned.
  Tensor call_lent(float a, const Tensor& b) {
    const Tensor lent = three(a);
    Tensor result = queue->call({{lent, true}, {b}}).front();
    std::fill_n(static_cast<float*>(lent.data()), 3, -1.0f);
    return result;
  }

  TensorSpec spec;  // of the first input
  bool is_busy = true, fails = false;
  const void* read = nullptr;  // where the last step read its first input
  float count = 0;
  int num_bound = 0;  // how many steps an executor was made for
  Tensor overwritten = three(7);
  LaterRuns later{std::make_unique<BusyFence>(is_busy), std::make_unique<BusyFence>(is_busy)};
  std::unique_ptr<CallQueue> queue;
};

}  // namespace

TEST(calls_wait_and_find_what_was_lent) {
  Setting s;
  const Tensor b = three(2);
  std::vector<Tensor> results;
  for (int i = 0; i < 7; ++i) results.push_back(s.call_lent(static_cast<float>(i), b));
  CHECK(s.count < 7);  // the first two calls run at once, because the device is idle
  s.later.flush();
  for (int i = 0; i < 7; ++i) CHECK_EQUAL(first_of(results[i]), 100.0f * i + 20 + i);
}

TEST(more_calls_than_slots) {
  Setting s;
  const Tensor b = three(0);
  std::vector<Tensor> results;
  for (int i = 0; i < 100; ++i) results.push_back(s.call_lent(static_cast<float>(i), b));
  const int num_bound = s.num_bound;
  for (int i = 100; i < 200; ++i) results.push_back(s.call_lent(static_cast<float>(i), b));
  CHECK_EQUAL(s.num_bound, num_bound);  // the same few executors are used again
  s.later.flush();
  for (int i = 0; i < 200; ++i) CHECK_EQUAL(first_of(results[i]), 101.0f * i);
}

TEST(a_result_that_waits_is_an_argument) {
  Setting s;
  const Tensor zero = three(0);
  Tensor a = three(0);
  float expected = 0;
  for (int i = 0; i < 4; ++i) {
    a = s.call(a, zero);
    expected = 100 * expected + static_cast<float>(i);
  }
  const Tensor twice = s.call(zero, a);
  s.later.flush();
  CHECK_EQUAL(first_of(a), expected);
  CHECK_EQUAL(first_of(twice), 10 * expected + 4);
}

TEST(what_a_step_overwrites_is_read_before) {
  Setting s;
  const Tensor b = three(0);
  (void)s.call_lent(1, b);
  (void)s.call_lent(1, b);
  (void)s.call_lent(1, b);
  CHECK(s.count < 3);
  const Tensor result = s.call(s.overwritten, b);
  // The call does not wait, because something could overwrite its input.
  CHECK_EQUAL(s.count, 4.0f);
  CHECK_EQUAL(first_of(result), 703.0f);
}

TEST(tensors_are_read_in_place_until_they_move) {
  Setting s;
  const Tensor a = three(1), b = three(2), other = three(5);
  (void)s.call(a, b);
  (void)s.call(a, b);
  CHECK_EQUAL(s.num_bound, 1);
  const Tensor moved = s.call(other, b);
  const Tensor back = s.call(a, b);
  s.later.flush();
  CHECK_EQUAL(first_of(moved), 522.0f);
  CHECK_EQUAL(first_of(back), 123.0f);
}

TEST(a_start_that_fails_is_over) {
  Setting s;
  const Tensor b = three(0);
  for (int i = 0; i < 5; ++i) (void)s.call_lent(1, b);
  s.fails = true;
  CHECK_THROWS(std::runtime_error, "no", s.later.flush());
  const auto call_often = [&] {
    for (int i = 0; i < 20; ++i) (void)s.call_lent(1, b);
  };
  CHECK_THROWS(std::runtime_error, "no", call_often());
  s.fails = false;
  const float before = s.count;
  std::vector<Tensor> results;
  for (int i = 0; i < 20; ++i) results.push_back(s.call_lent(static_cast<float>(i), b));
  s.later.flush();
  for (int i = 0; i < 20; ++i) CHECK_EQUAL(first_of(results[i]), 101.0f * i + before);
}

TEST(a_call_behind_a_start_that_fails_was_not_made) {
  Setting s, other;
  const Tensor b = three(0);
  for (int i = 0; i < 3; ++i) (void)s.call_lent(0, b);
  s.later.flush();
  other.queue = other.make_queue(&s.later);
  (void)other.call_lent(0, b);
  other.fails = true;
  CHECK_THROWS(std::runtime_error, "no", (void)s.call_lent(1, b));
  const Tensor result = s.call_lent(2, b);
  s.later.flush();
  CHECK_EQUAL(first_of(result), 203.0f);
}

TEST(the_end_starts_what_waits) {
  Setting s;
  const Tensor b = three(0);
  Tensor last;
  for (int i = 0; i < 6; ++i) last = s.call_lent(static_cast<float>(i), b);
  s.queue = nullptr;
  CHECK_EQUAL(s.count, 6.0f);
  CHECK_EQUAL(first_of(last), 505.0f);
}

TEST(results_belong_to_nobody_else) {
  Setting s;
  const Tensor b = three(0);
  const Tensor first = s.call_lent(0, b), second = s.call_lent(0, b);
  CHECK(first.storage() != second.storage());
  first.storage()->expose_for_good();
  CHECK(!second.storage()->is_exposed());
}

TEST(large_tensors_are_copied_only_where_they_must_be) {
  Setting s(true, {DType::Float32, {2 << 20}});
  const Tensor b = three(0), a = Tensor::zeros(s.spec, Device{}), other = a.copy();
  for (int i = 0; i < 3; ++i) {
    (void)s.queue->call({{other, true}, {b}});
    CHECK(s.read != other.data());
    for (const Tensor& large : {a, other}) {
      (void)s.call(large, b);
      s.later.flush();
      CHECK(s.read == large.data());
    }
  }
}

TEST(what_others_may_write_to_is_copied) {
  Setting s(false);
  const Tensor a = three(1), b = three(0);
  a.storage()->expose_for_good();
  CHECK_EQUAL(first_of(s.call(a, b)), 100.0f);
  CHECK(s.read != a.data());
}

TEST(missing_memory_leaves_calls_as_they_were) {
  Setting s(true, {DType::Float32, {int64_t{1} << 46}});
  const Tensor b = three(0);
  const Tensor endless(b.storage(), s.spec, contiguous_strides(s.spec.shape));
  for (int i = 0; i < 3; ++i) {
    CHECK_THROWS(OutOfMemoryError, "", (void)s.queue->call({{endless, true}, {b}}));
  }
  (void)s.call(endless, b);  // the input is read in place
  s.later.flush();
  CHECK_EQUAL(s.count, 1.0f);
}

TEST(calls_without_waiting) {
  Setting s(false);
  const Tensor b = three(0);
  for (int i = 0; i < 40; ++i) {
    CHECK_EQUAL(first_of(s.call_lent(static_cast<float>(i), b)), 101.0f * i);
  }
  CHECK_EQUAL(s.num_bound, 1);
}

}  // namespace kerascnn
