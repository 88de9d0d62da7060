// Threads bring pieces of an array to a device, here the CPU. The tests check which rows go where
// and in which order, and that nothing is read once a piece is cancelled.
#include "core/tensor/piece_upload.h"

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "check.h"
#include "core/base/error.h"

namespace kerascnn {
namespace {

Tensor zeros(int64_t rows, int64_t columns) {
  return Tensor::zeros({DType::Int32, {rows, columns}}, {});
}

std::vector<int32_t> numbers(int64_t count, int32_t first) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::vector<int32_t> values_of(const Tensor& tensor) {
  std::vector<int32_t> values(tensor.size());
  tensor.copy_to_host(values.data());
  return values;
}

// Rows have 300,000 bytes, so that each piece has several slices.
constexpr int64_t kColumns = 75'000;

TEST(pieces_arrive_in_their_order_with_all_their_rows) {
  const Tensor target = zeros(6, kColumns), labels = zeros(6, 1);
  PieceUpload upload(Device{}, {target, labels}, {zeros(6, kColumns), zeros(6, 1)});
  const std::vector<int32_t> x = numbers(6 * kColumns, 1), y = numbers(6, 70);
  const int64_t sizes[] = {1, 2, 3};
  int64_t first = 0;
  for (int64_t size : sizes) {
    upload.start({&x[first * kColumns], &y[first]}, first, size);
    first += size;
  }
  CHECK_EQUAL(upload.num_started(), 3);
  for (int i = 0; i < 3; ++i) upload.arrive();
  CHECK_EQUAL(upload.num_started(), 0);
  upload.mark_used();
  CHECK(values_of(target) == x);
  CHECK(values_of(labels) == y);
}

TEST(rows_are_used_again_and_others_left_alone) {
  const Tensor target = zeros(4, kColumns);
  PieceUpload upload(Device{}, {target}, {zeros(4, kColumns)});
  std::vector<int32_t> expected(4 * kColumns, 0);
  for (int32_t round = 0; round < 20; ++round) {
    const int64_t first = round % 3, count = 1 + round % 2;
    const std::vector<int32_t> x = numbers(count * kColumns, 1000 * round);
    upload.start({x.data()}, first, count);
    upload.arrive();
    if (round % 4 != 0) upload.mark_used();
    std::copy(x.begin(), x.end(), expected.begin() + first * kColumns);
    CHECK(values_of(target) == expected);
  }
}

TEST(after_a_cancellation_nothing_reads_the_arrays_and_the_next_piece_arrives) {
  const Tensor target = zeros(8, kColumns);
  // It lives longer than the upload that reads it.
  const std::vector<int32_t> last = numbers(8 * kColumns, 3);
  PieceUpload upload(Device{}, {target}, {zeros(8, kColumns)});
  for (int round = 0; round < 10; ++round) {
    {
      const std::vector<int32_t> gone = numbers(8 * kColumns, -5'000'000);
      upload.start({gone.data()}, 0, 4);
      upload.start({&gone[4 * kColumns]}, 4, 4);
      if (round % 2 == 0) upload.arrive();
      upload.cancel();
    }
    CHECK_EQUAL(upload.num_started(), 0);
    const std::vector<int32_t> x = numbers(8 * kColumns, round);
    upload.start({x.data()}, 0, 8);
    upload.arrive();
    CHECK(values_of(target) == x);
  }
  upload.cancel();                    // there is nothing to cancel
  upload.start({last.data()}, 0, 8);  // the destructor ends this one
}

TEST(a_piece_upload_refuses_what_does_not_fit) {
  const Tensor target = zeros(4, 2);
  CHECK_THROWS(ValueError, "expected contiguous targets on cpu",
               PieceUpload(Device{}, {target}, {zeros(4, 3)}));
  CHECK_THROWS(ValueError, "expected contiguous targets on cpu", PieceUpload(Device{}, {}, {}));
  PieceUpload upload(Device{}, {target}, {zeros(4, 2)});
  const std::vector<int32_t> x = numbers(8, 0);
  CHECK_THROWS(ValueError, "1 arrays for rows 3 to 5", upload.start({x.data()}, 3, 2));
  CHECK_THROWS(ValueError, "0 arrays for rows 0 to 1", upload.start({}, 0, 1));
  CHECK_THROWS(ValueError, "no piece is on its way", upload.arrive());
  upload.start({x.data()}, 0, 2);
  CHECK_THROWS(ValueError, "has not arrived yet", upload.start({x.data()}, 1, 2));
  upload.start({x.data()}, 2, 2);
  upload.arrive();
  upload.arrive();
}

TEST(an_empty_piece_arrives) {
  const Tensor target = zeros(2, 3);
  PieceUpload upload(Device{}, {target}, {zeros(2, 3)});
  const int32_t nothing = 0;
  upload.start({&nothing}, 1, 0);
  upload.arrive();
  CHECK((values_of(target) == std::vector<int32_t>(6, 0)));
}

TEST(slices_are_run_once_each_and_the_end_comes_after_them) {
  std::atomic<int> sum{0}, ends{0};
  const auto work = std::make_shared<SlicedWork>(
      1000, [&](int64_t slice) { sum += static_cast<int>(slice); },
      [&] { ends += sum == 499'500 ? 1 : 100; });
  Workers::shared().post(work);
  work->wait();
  CHECK_EQUAL(sum.load(), 499'500);
  CHECK_EQUAL(ends.load(), 1);
}

TEST(the_first_error_of_a_slice_comes_to_who_waits) {
  std::atomic<bool> has_ended{false};
  const auto work = std::make_shared<SlicedWork>(
      100,
      [&](int64_t slice) {
        if (slice == 3) throw ValueError("slice three");
      },
      [&] { has_ended = true; });
  Workers::shared().post(work);
  CHECK_THROWS(ValueError, "slice three", work->wait());
  CHECK(!has_ended);
  const auto next = std::make_shared<SlicedWork>(5, [](int64_t) {}, [&] { has_ended = true; });
  Workers::shared().post(next);
  next->wait();
  CHECK(has_ended);
}

TEST(cancelled_work_begins_no_further_slice) {
  // More than a minute of work for three threads, so that it is not done where this one is held up.
  constexpr int64_t kSlices = 4'000'000;
  std::atomic<int64_t> begun{0};
  const auto work = std::make_shared<SlicedWork>(
      kSlices,
      [&](int64_t) {
        ++begun;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      },
      [] {});
  Workers::shared().post(work);
  CHECK(!work->cancel());
  const int64_t at_the_end = begun;
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  CHECK_EQUAL(begun.load(), at_the_end);
  CHECK(at_the_end < kSlices);
}

}  // namespace
}  // namespace kerascnn
