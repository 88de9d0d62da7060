// Pieces of arrays on their way to a device, several at a time: threads copy them to page-locked
// memory, from where the device takes them, while the caller prepares the steps that read them.
//
//   upload.start({x}, 0, 1000);     // rows 0 to 999 of the targets, from x
//   upload.start({more}, 1000, 500);
//   ...
//   upload.arrive();                // the first piece
//   ... enqueue work that reads its rows ...
//   upload.mark_used();             // its rows may be overwritten after that work
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/workers.h"
#include "core/tensor/tensor.h"

namespace kerascnn {

class PieceUpload {
 public:
  // `targets` on the device, `sources` of the same shapes and dtypes on the host, from
  // empty_for_upload(), with rows along their first axis. Throws ValueError.
  PieceUpload(Device device, std::vector<Tensor> targets, std::vector<Tensor> sources);
  ~PieceUpload();  // cancels
  PieceUpload(const PieceUpload&) = delete;
  PieceUpload& operator=(const PieceUpload&) = delete;

  // Begins to bring `count` rows to the targets, from row `first` on: `rows` has the address of
  // each array's, one behind the other, which must stay as they are until the piece has arrived or
  // is cancelled. Waits for what was sent from the same rows before; work that was marked as using
  // these ends before they change. Throws ValueError for rows that don't exist or belong to a piece
  // that has not arrived yet.
  void start(const std::vector<const void*>& rows, int64_t first, int64_t count);
  // Takes the piece that was started first of those that have not arrived, and returns when its
  // arrays were read. Work enqueued from now on finds its rows. Throws ValueError where there is
  // none.
  void arrive();
  // The work enqueued so far is the last that reads the pieces that have arrived.
  void mark_used();
  // Gives up what has not arrived; afterwards nothing reads the arrays.
  void cancel();
  int64_t num_started() const { return static_cast<int64_t>(started_.size()); }

 private:
  struct Piece {
    int64_t first = 0, count = 0;
    std::unique_ptr<Fence> sent, used;
    bool is_marked = false;  // `used` was recorded since it arrived
    std::shared_ptr<SlicedWork> work;

    bool overlaps(int64_t begin, int64_t length) const {
      return first < begin + length && begin < first + count;
    }
  };

  Piece take_fences();
  void clear_rows(int64_t first, int64_t count);

  Device device_;
  Backend& backend_;
  std::vector<Tensor> targets_;
  std::vector<Tensor> sources_;
  std::unique_ptr<Fence> owned_;  // what others did with the targets' memory is before it
  std::deque<Piece> started_;
  std::vector<Piece> arrived_;  // whose rows were not overwritten since
  std::vector<Piece> spare_;    // for their fences
};

}  // namespace kerascnn
