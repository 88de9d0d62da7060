// Batches of images for a GPU, whose part a decoder plays that is told what to say.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "core/base/error.h"
#include "core/images/gpu_reader.h"
#include "temporary_folder.h"

namespace kerascnn {
namespace {

using testing::TemporaryFolder;

class FakeDecoder final : public GpuImageDecoder {
 public:
  std::optional<Tensor> decode(int64_t rows, std::span<const GpuJpeg> files,
                               std::span<const HostImage> made) override {
    num_rows = rows;
    num_files = static_cast<int64_t>(files.size());
    values.clear();
    for (const HostImage& image : made) values.push_back(*static_cast<const uint8_t*>(image.data));
    if (meanwhile) meanwhile();
    return {};
  }

  int64_t num_rows = -1, num_files = -1;
  std::vector<int> values;  // the first of each row that the host has made
  std::function<void()> meanwhile;
};

struct Fixture {
  explicit Fixture(int64_t rows)
      : decoder(std::make_shared<FakeDecoder>()),
        batch(std::make_shared<GpuJpegReader>(decoder, ImageForm{1, 1, DType::UInt8, false},
                                              UnpackLimits{1 << 20, 100}),
              rows) {}

  // Of the pixel (value, 0, 0).
  void put(int64_t row, uint8_t value) {
    std::vector<uint8_t> pixel = {value, 0, 0};
    batch.put(row, Tensor(std::make_shared<Storage>(pixel.data(), 3, Device{}, nullptr),
                          {DType::UInt8, {1, 1, 3}}, {3, 3, 1}));
  }

  std::shared_ptr<FakeDecoder> decoder;
  GpuImageBatch batch;
};

// Is this the reason why a call is refused?
bool is_refused(const std::function<void()>& call, const std::string& reason) {
  try {
    call();
  } catch (const ValueError& error) {
    return std::string(error.what()).find(reason) != std::string::npos;
  }
  return false;
}

TEST(rows_without_an_image_are_left_out) {
  Fixture f(3);
  f.put(2, 7);
  f.put(0, 5);
  f.put(2, 9);
  CHECK(!f.batch.decode().has_value());
  CHECK_EQUAL(f.decoder->num_rows, 2);
  CHECK(f.decoder->values == (std::vector<int>{5, 9}));
  CHECK(is_refused([&] { f.put(3, 1); }, "row 3 of 3 does not exist"));
  CHECK(is_refused([&] { f.put(-1, 1); }, "row -1 of 3 does not exist"));
  // A file that is left takes the place of what was there.
  CHECK(f.batch.read(2, ImageSource{"/none", 0, -1, -1, {}}, 100).outcome ==
        GpuImageBatch::Outcome::Left);
  CHECK(f.batch.read(0, ImageSource{"", 0, -1, -1, "no JPEG"}, 100).outcome ==
        GpuImageBatch::Outcome::Left);
  f.batch.decode();
  CHECK_EQUAL(f.decoder->num_rows, 0);
}

TEST(a_batch_that_is_decoded_takes_nothing) {
  Fixture f(2);
  f.put(0, 1);
  int refused = 0;
  f.decoder->meanwhile = [&] {
    const std::string reason = "while another thread decodes";
    refused += is_refused([&] { f.put(1, 2); }, reason);
    refused += is_refused([&] { f.batch.read(0, ImageSource{}, 100); }, reason);
    refused += is_refused([&] { f.batch.decode(); }, reason);
    throw std::runtime_error("the device is lost");
  };
  CHECK_THROWS(std::runtime_error, "the device is lost", f.batch.decode());
  CHECK_EQUAL(refused, 3);
  f.decoder->meanwhile = nullptr;
  f.put(1, 2);
  f.batch.decode();
  CHECK(f.decoder->values == (std::vector<int>{1, 2}));
}

TEST(a_row_that_is_filled_is_taken) {
  Fixture f(2);
  const TemporaryFolder folder;
  const std::string pipe = folder.path + "/pipe";
  CHECK_EQUAL(mkfifo(pipe.c_str(), 0600), 0);
  // It is opened when somebody writes to it, and then is no file.
  std::thread reader([&] { f.batch.read(0, ImageSource{pipe, 0, -1, -1, {}}, 100); });
  const std::string reason = "while another thread fills";
  while (!is_refused([&] { f.put(0, 1); }, reason)) std::this_thread::yield();
  const bool is_read_refused = is_refused([&] { f.batch.read(0, ImageSource{}, 100); }, reason);
  const bool is_decoding_refused = is_refused([&] { f.batch.decode(); }, reason);
  f.put(1, 3);
  const int writer = open(pipe.c_str(), O_WRONLY | O_CLOEXEC);
  reader.join();
  close(writer);
  CHECK(is_read_refused);
  CHECK(is_decoding_refused);
  f.put(0, 2);
  f.batch.decode();
  CHECK(f.decoder->values == (std::vector<int>{2, 3}));
}

}  // namespace
}  // namespace kerascnn
