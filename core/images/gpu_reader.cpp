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
}

GpuImageBatch::Row& GpuImageBatch::at(int64_t row) {
  if (row < 0 || row >= static_cast<int64_t>(rows_.size())) {
    throw ValueError(message("GpuImageBatch: row ", row, " of ", rows_.size(), " does not exist"));
  }
  return rows_[static_cast<size_t>(row)];
}

GpuImageBatch::Result GpuImageBatch::read(int64_t row, const ImageSource& source,
                                          int64_t most_pixels) {
  Row& place = at(row);
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
  Row& place = at(row);
  const TensorSpec batch = reader_->form().batch(1);
  const TensorSpec expected{batch.dtype, Shape(batch.shape.begin() + 1, batch.shape.end())};
  if (image.spec() != expected || !image.is_contiguous()) {
    throw ValueError(message("GpuImageBatch: an image must be a contiguous ", spec_string(expected),
                             ". Received: ", spec_string(image.spec())));
  }
  const auto* bytes = static_cast<const uint8_t*>(image.data());
  place = {};
  place.image.assign(bytes, bytes + image.bytes());
}

std::optional<Tensor> GpuImageBatch::decode() {
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
