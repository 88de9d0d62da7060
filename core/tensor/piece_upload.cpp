#include "core/tensor/piece_upload.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/error.h"

namespace kerascnn {
namespace {

// What a thread takes at a time: the device copies one slice while the next is on its way.
constexpr int64_t kSliceBytes = 256 << 10;

struct Slice {
  char* target;
  char* source;
  const char* from;
  int64_t bytes;
};

int64_t row_bytes(const Tensor& tensor) {
  return tensor.shape()[0] == 0 ? 0 : tensor.bytes() / tensor.shape()[0];
}

void check_places(const std::vector<Tensor>& targets, const std::vector<Tensor>& sources,
                  Device device) {
  bool fits = targets.size() == sources.size() && !targets.empty();
  for (size_t i = 0; fits && i < targets.size(); ++i) {
    const Tensor &target = targets[i], &source = sources[i];
    fits = target.defined() && source.defined() && target.spec() == source.spec() &&
           !target.shape().empty() && target.shape()[0] == targets[0].shape()[0] &&
           target.is_contiguous() && source.is_contiguous() && target.device() == device &&
           source.device().type == DeviceType::Cpu && !target.read_only() && !source.read_only();
  }
  if (!fits) {
    throw ValueError(message(
        "piece upload: expected contiguous targets on ", device_name(device),
        " and as many contiguous sources on cpu, with the same dtypes and shapes, all with one "
        "number of rows along their first axis"));
  }
}

}  // namespace

PieceUpload::PieceUpload(Device device, std::vector<Tensor> targets, std::vector<Tensor> sources)
    : device_(device), backend_(backend(device)) {
  check_places(targets, sources, device);
  targets_ = std::move(targets);
  sources_ = std::move(sources);
  owned_ = backend_.make_fence();
  owned_->record();
}

PieceUpload::~PieceUpload() {
  try {
    cancel();
    for (Piece& piece : arrived_) piece.sent->wait();
  } catch (const Error&) {
    // The device is lost, and with it the copies.
  }
}

PieceUpload::Piece PieceUpload::take_fences() {
  Piece piece;
  if (!spare_.empty()) {
    piece = std::move(spare_.back());
    spare_.pop_back();
    return piece;
  }
  piece.sent = backend_.make_fence();
  piece.used = backend_.make_fence();
  return piece;
}

// Makes sure that the rows may be written: on the host now, on the device by the copies to come.
void PieceUpload::clear_rows(int64_t first, int64_t count) {
  for (const Piece& piece : started_) {
    if (!piece.overlaps(first, count)) continue;
    throw ValueError(message("piece upload: rows ", first, " to ", first + count,
                             " belong to a piece that has not arrived yet"));
  }
  for (size_t i = 0; i < arrived_.size();) {
    Piece& piece = arrived_[i];
    if (!piece.overlaps(first, count)) {
      ++i;
      continue;
    }
    if (!piece.is_marked) piece.used->record();
    piece.is_marked = true;
    piece.sent->wait();
    backend_.copy_beside({}, piece.used.get(), nullptr);
    spare_.push_back(std::move(piece));
    arrived_.erase(arrived_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void PieceUpload::start(const std::vector<const void*>& rows, int64_t first, int64_t count) {
  const int64_t length = targets_[0].shape()[0];
  if (rows.size() != targets_.size() || first < 0 || count < 0 || first + count > length) {
    throw ValueError(message("piece upload: ", rows.size(), " arrays for rows ", first, " to ",
                             first + count, ", but there are ", targets_.size(), " of ", length,
                             " rows"));
  }
  clear_rows(first, count);
  backend_.copy_beside({}, owned_.get(), nullptr);
  Piece piece = take_fences();
  piece.first = first;
  piece.count = count;
  piece.is_marked = false;
  std::vector<Slice> slices;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t size = row_bytes(targets_[i]), bytes = count * size;
    for (int64_t at = 0; at < bytes; at += kSliceBytes) {
      slices.push_back({static_cast<char*>(targets_[i].data()) + first * size + at,
                        static_cast<char*>(sources_[i].data()) + first * size + at,
                        static_cast<const char*>(rows[i]) + at, std::min(kSliceBytes, bytes - at)});
    }
  }
  // The fence stays where it is while the piece is moved about.
  Fence* sent = piece.sent.get();
  const auto num_slices = static_cast<int64_t>(slices.size());
  piece.work = std::make_shared<SlicedWork>(
      num_slices,
      [&device = backend_, slices = std::move(slices)](int64_t index) {
        const Slice& slice = slices[static_cast<size_t>(index)];
        std::memcpy(slice.source, slice.from, static_cast<size_t>(slice.bytes));
        const HostCopy copy{slice.target, slice.source, slice.bytes};
        device.copy_beside({&copy, 1}, nullptr, nullptr);
      },
      [&device = backend_, sent] { device.copy_beside({}, nullptr, sent); });
  started_.push_back(std::move(piece));
  Workers::shared().post(started_.back().work);
}

void PieceUpload::arrive() {
  if (started_.empty()) throw ValueError("piece upload: no piece is on its way");
  Piece& piece = started_.front();
  piece.work->wait();
  piece.work = nullptr;
  backend_.hold_back(*piece.sent);
  arrived_.push_back(std::move(piece));
  started_.pop_front();
}

void PieceUpload::mark_used() {
  for (Piece& piece : arrived_) {
    if (piece.is_marked) continue;
    piece.used->record();
    piece.is_marked = true;
  }
}

void PieceUpload::cancel() {
  while (!started_.empty()) {
    Piece& piece = started_.front();
    // Some slices may be on their way to the device all the same.
    if (!piece.work->cancel()) backend_.copy_beside({}, nullptr, piece.sent.get());
    piece.work = nullptr;
    piece.used->record();
    piece.is_marked = true;
    arrived_.push_back(std::move(piece));
    started_.pop_front();
  }
}

}  // namespace kerascnn
