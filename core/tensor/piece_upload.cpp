#include "core/tensor/piece_upload.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "core/base/error.h"

namespace kerascnn {
namespace {

// What a thread copies at a time.
constexpr int64_t kSliceBytes = 128 << 10;
// What the device copies at a time: it begins while the next slices are on their way to it. Each of
// its copies costs the threads a call that they wait for each other with.
constexpr int64_t kSlicesOfCopy = 8;

struct Slice {
  char* source;
  const char* from;
  int64_t bytes;
  size_t copy;  // that it is a part of
};

// The slices of a piece, and what the device copies of them.
class Slices {
 public:
  Slices(Backend& backend, size_t most_copies) : backend_(backend), left_(most_copies) {}

  void add(char* target, char* source, const char* from, int64_t bytes) {
    for (int64_t begin = 0; begin < bytes; begin += kSlicesOfCopy * kSliceBytes) {
      const int64_t end = std::min(begin + kSlicesOfCopy * kSliceBytes, bytes);
      for (int64_t at = begin; at < end; at += kSliceBytes) {
        slices_.push_back({source + at, from + at, std::min(kSliceBytes, end - at), num_copies()});
        ++left_[num_copies()];
      }
      copies_.push_back({target + begin, source + begin, end - begin});
    }
  }

  static size_t copies_of(int64_t bytes) {
    return static_cast<size_t>(bytes / (kSlicesOfCopy * kSliceBytes) + 1);
  }

  int64_t size() const { return static_cast<int64_t>(slices_.size()); }

  // The thread that ends the last part of a copy enqueues it.
  void run(int64_t index) {
    const Slice& slice = slices_[static_cast<size_t>(index)];
    std::memcpy(slice.source, slice.from, static_cast<size_t>(slice.bytes));
    if (left_[slice.copy].fetch_sub(1) == 1) {
      backend_.copy_beside({&copies_[slice.copy], 1}, nullptr, nullptr);
    }
  }

 private:
  size_t num_copies() const { return copies_.size(); }

  Backend& backend_;
  std::vector<Slice> slices_;
  std::vector<HostCopy> copies_;
  std::vector<std::atomic<int64_t>> left_;  // slices of each copy
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
  size_t most_copies = 0;
  for (const Tensor& target : targets_) most_copies += Slices::copies_of(count * row_bytes(target));
  const auto slices = std::make_shared<Slices>(backend_, most_copies);
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t size = row_bytes(targets_[i]);
    slices->add(static_cast<char*>(targets_[i].data()) + first * size,
                static_cast<char*>(sources_[i].data()) + first * size,
                static_cast<const char*>(rows[i]), count * size);
  }
  // The fence stays where it is while the piece is moved about.
  Fence* sent = piece.sent.get();
  piece.work = std::make_shared<SlicedWork>(
      slices->size(), [slices](int64_t index) { slices->run(index); },
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
