// Tapes: the gradients of calls that run at once, what tapes keep, and how they end.
#include <thread>

#include "check.h"
#include "core/backend/backend.h"
#include "core/base/error.h"
#include "core/eager/eager.h"
#include "core/eager/tape.h"

using namespace kerascnn;

namespace {

std::shared_ptr<Tape> make_tape(bool persistent = false) {
  return std::make_shared<Tape>(persistent, /*watches_variables=*/true);
}

Tensor number(double value) { return Tensor::scalar(DType::Float64, value, Device{}); }

double value_of(const Tensor& tensor) {
  double value = 0;
  tensor.copy_to_host(&value);
  return value;
}

Tensor binary(const char* op, const Tensor& a, const Tensor& b) { return apply(op, {a, b})[0]; }

double gradient_of(Tape& tape, const Tensor& target, const Tensor& source) {
  return value_of(tape.gradients({target}, {Tensor()}, {tape.source_of(source)})[0]);
}

}  // namespace

TEST(nothing_is_recorded_without_a_tape) {
  const Tensor y = binary("multiply", number(2), number(3));
  CHECK(y.edge().node == nullptr);
}

TEST(gradients_of_all_paths_add_up) {
  const auto tape = make_tape();
  Tensor x = number(3);
  tape->start();
  tape->watch(x);
  const Tensor square = binary("multiply", x, x);
  const Tensor y = binary("add", binary("multiply", square, x), square);
  tape->stop();
  CHECK_EQUAL(gradient_of(*tape, y, x), 33.0);
}

TEST(a_tape_that_records_takes_gradients_of_gradients) {
  const auto outer = make_tape(), inner = make_tape();
  Tensor x = number(3);
  outer->start();
  outer->watch(x);
  inner->start();
  inner->watch(x);
  const Tensor y = binary("multiply", binary("multiply", x, x), x);
  const Tensor slope = inner->gradients({y}, {Tensor()}, {inner->source_of(x)})[0];
  CHECK(!inner->is_recording());
  outer->stop();
  CHECK_EQUAL(value_of(slope), 27.0);
  CHECK_EQUAL(gradient_of(*outer, slope, x), 18.0);
}

TEST(a_long_chain_needs_no_stack) {
  double gradient = 0;
  std::thread thread([&] {
    const auto tape = make_tape();
    Tensor x = number(1);
    tape->start();
    tape->watch(x);
    Tensor y = x;
    const Tensor one = number(1);
    for (int i = 0; i < 300'000; ++i) y = binary("add", y, one);
    tape->stop();
    gradient = gradient_of(*tape, y, x);
  });
  thread.join();
  CHECK_EQUAL(gradient, 1.0);
}

TEST(values_are_released_with_the_last_result) {
  Allocator& allocator = backend(Device{}).allocator();
  const int64_t before = allocator.stats().allocated;
  {
    const auto tape = make_tape();
    Tensor x = Tensor::zeros({DType::Float32, {1000}}, Device{});
    tape->start();
    tape->watch(x);
    Tensor y = x;
    for (int i = 0; i < 10; ++i) y = apply("exp", {y})[0];
    tape->stop();
    CHECK(allocator.stats().allocated >= before + 11 * 4000);
    y = Tensor();
    CHECK(allocator.stats().allocated < before + 2 * 4096);
  }
  CHECK_EQUAL(allocator.stats().allocated, before);
}

TEST(what_was_written_to_since_is_refused) {
  const auto tape = make_tape();
  const auto variable = std::make_shared<Variable>("w", number(2));
  tape->start();
  const Tensor w = read_variable(variable);
  const Tensor y = binary("multiply", w, w);
  tape->stop();
  variable->assign(number(5));
  CHECK_THROWS(ValueError, "written to after",
               tape->gradients({y}, {Tensor()}, {tape->source_of(variable)}));
}

TEST(a_tape_is_used_once_and_ends_where_it_began) {
  const auto tape = make_tape();
  Tensor x = number(2);
  tape->start();
  tape->watch(x);
  const Tensor y = binary("multiply", x, x);
  std::string refused;
  std::thread elsewhere([&] {
    try {
      tape->stop();
    } catch (const ValueError& error) {
      refused = error.what();
    }
  });
  elsewhere.join();
  CHECK(refused.find("thread that began") != std::string::npos);
  CHECK_EQUAL(gradient_of(*tape, y, x), 4.0);
  CHECK_THROWS(ValueError, "persistent=True",
               tape->gradients({y}, {Tensor()}, {tape->source_of(x)}));
}

TEST(reading_a_variable_is_noted_in_a_pause) {
  const auto tape = make_tape();
  const auto variable = std::make_shared<Variable>("w", number(2));
  tape->start();
  {
    const RecordingPause pause;
    const Tensor y = binary("multiply", read_variable(variable), number(3));
    CHECK(y.edge().node == nullptr);
    CHECK_EQUAL(pause.reads().size(), 1u);
  }
  CHECK(is_recording());
  tape->stop();
}
