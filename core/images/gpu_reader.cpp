#include "core/images/gpu_reader.h"

#include <cstring>

#include "core/base/error.h"

namespace kerascnn {

GpuJpegReader::GpuJpegReader(std::shared_ptr<GpuImageDecoder> decoder, const ImageForm& form,
                             UnpackLimits limits)
    : decoder_(std::move(decoder)), form_(form), limits_(limits) {}

void GpuJpegReader::add_plan(int64_t height, int64_t width, ImagePlan plan) {
  const Resampler& resampler = plan.resampler;
  if (plan.denominator != 1 || resampler.height() != form_.height ||
      resampler.width() != form_.width) {
    throw ValueError(message("GpuJpegReader: a plan must make ", form_.height, " x ", form_.width,
                             " of whole images. Received: ", resampler.height(), " x ",
                             resampler.width(), " of images decoded at 1/", plan.denominator));
  }
  plans_.add(height, width, std::move(plan));
}

GpuImageBatch::GpuImageBatch(std::shared_ptr<GpuJpegReader> reader, int64_t rows)
    : reader_(std::move(reader)) {
  constexpr int64_t kMostRows = 1 << 20;
  if (rows < 0 || rows > kMostRows) {
    throw ValueError(
        message("GpuImageBatch: a batch has 0 to ", kMostRows, " images. Received: ", rows));
  }
  rows_.resize(static_cast<size_t>(rows));
  is_in_use_.resize(rows_.size());
}

void GpuImageBatch::check(int64_t row) const {
  if (row < 0 || row >= static_cast<int64_t>(rows_.size())) {
    throw ValueError(message("GpuImageBatch: row ", row, " of ", rows_.size(), " does not exist"));
  }
}

class GpuImageBatch::RowUse {
 public:
  // What the row had before is gone.
  RowUse(GpuImageBatch& batch, int64_t row) : batch_(batch), index_(static_cast<size_t>(row)) {
    batch.check(row);
    const std::lock_guard lock(batch.mutex_);
    if (batch.is_decoding_ || batch.is_in_use_[index_]) {
      throw ValueError(message("GpuImageBatch: row ", row, " can't be filled while another thread ",
                               batch.is_decoding_ ? "decodes the batch" : "fills it"));
    }
    batch.is_in_use_[index_] = true;
    ++batch.rows_in_use_;
    batch.rows_[index_] = {};
  }
  ~RowUse() {
    const std::lock_guard lock(batch_.mutex_);
    batch_.is_in_use_[index_] = false;
    --batch_.rows_in_use_;
  }
  RowUse(const RowUse&) = delete;
  RowUse& operator=(const RowUse&) = delete;

  Row& operator*() const { return batch_.rows_[index_]; }

 private:
  GpuImageBatch& batch_;
  const size_t index_;
};

class GpuImageBatch::BatchUse {
 public:
  explicit BatchUse(GpuImageBatch& batch) : batch_(batch) {
    const std::lock_guard lock(batch.mutex_);
    if (batch.is_decoding_ || batch.rows_in_use_ > 0) {
      throw ValueError(message("GpuImageBatch: a batch can't be decoded while another thread ",
                               batch.is_decoding_ ? "decodes it" : "fills one of its rows"));
    }
    batch.is_decoding_ = true;
  }
  ~BatchUse() {
    const std::lock_guard lock(batch_.mutex_);
    batch_.is_decoding_ = false;
  }
  BatchUse(const BatchUse&) = delete;
  BatchUse& operator=(const BatchUse&) = delete;

 private:
  GpuImageBatch& batch_;
};

GpuImageBatch::Result GpuImageBatch::read(int64_t row, const ImageSource& source,
                                          int64_t most_pixels) {
  const RowUse use(*this, row);
  Row& place = *use;
  std::string_view content;
  if (!source.path.empty()) {
    const std::optional<std::string_view> found = read_jpeg(source, place.content);
    if (!found.has_value()) return {Outcome::Left};
    content = *found;
  } else {
    place.content.assign(source.content.begin(), source.content.end());
    content = {reinterpret_cast<const char*>(place.content.data()), place.content.size()};
  }
  const std::optional<PlainJpeg> file = plain_jpeg(content);
  if (!file.has_value() ||
      !reader_->limits_.allow(file->height, file->width, content.size(), most_pixels)) {
    place = {};
    return {Outcome::Left};
  }
  place.file = *file;
  place.plan = reader_->plans_.find(file->height, file->width);
  if (place.plan == nullptr) return {Outcome::NeedsPlan, file->height, file->width};
  return {Outcome::Taken};
}

void GpuImageBatch::put(int64_t row, const Tensor& image) {
  check(row);
  const TensorSpec batch = reader_->form().batch(1);
  const TensorSpec expected{batch.dtype, Shape(batch.shape.begin() + 1, batch.shape.end())};
  if (image.spec() != expected || !image.is_contiguous()) {
    throw ValueError(message("GpuImageBatch: an image must be a contiguous ", spec_string(expected),
                             ". Received: ", spec_string(image.spec())));
  }
  const auto* bytes = static_cast<const uint8_t*>(image.data());
  const RowUse use(*this, row);
  (*use).image.assign(bytes, bytes + image.bytes());
}

std::optional<Tensor> GpuImageBatch::decode() {
  const BatchUse use(*this);
  std::vector<GpuJpeg> files;
  std::vector<HostImage> made;
  int64_t rows = 0;
  for (const Row& row : rows_) {
    if (row.plan != nullptr) {
      files.push_back(
          {row.file.content, row.file.height, row.file.width, &row.plan->resampler, rows++});
    } else if (!row.image.empty()) {
      made.push_back({row.image.data(), rows++});
    }
  }
  std::optional<Tensor> batch = reader_->decoder_->decode(rows, files, made);
  if (!batch.has_value()) {
    for (Row& row : rows_) {
      if (row.plan != nullptr) row = {};
    }
  }
  return batch;
}

}  // namespace kerascnn
