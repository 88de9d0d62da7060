#include "core/tensor/upload.h"

#include <algorithm>

#include "core/base/error.h"

namespace kerascnn {
namespace {

void check_rows(const Tensor& target, const Tensor& source, int64_t first, int64_t count,
                Device device) {
  const bool fits = target.defined() && source.defined() && target.spec() == source.spec() &&
                    !target.shape().empty() && target.is_contiguous() && source.is_contiguous() &&
                    target.device() == device && source.device().type == DeviceType::Cpu &&
                    !target.read_only();
  if (!fits) {
    throw ValueError(message(
        "upload: expected contiguous targets on ", device_name(device),
        " and contiguous sources on cpu with the same dtypes and shapes of at least one axis"));
  }
  if (first < 0 || count < 0 || first + count > target.shape()[0]) {
    throw ValueError(message("upload: rows ", first, " to ", first + count, " of ",
                             spec_string(target.spec()), " don't exist"));
  }
}

bool share_memory(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Tensor& x, const Tensor& y) { return x.storage() == y.storage(); });
}

}  // namespace

Upload::Upload(Device device)
    : device_(device), sent_(backend(device).make_fence()), used_(backend(device).make_fence()) {}

Upload::~Upload() {
  try {
    sent_->wait();
  } catch (const Error&) {
    // The device is lost, and with it the copies.
  }
}

void Upload::send(const std::vector<Tensor>& targets, const std::vector<Tensor>& sources,
                  int64_t first, int64_t count) {
  if (targets.size() != sources.size()) {
    throw ValueError(
        message("upload: ", targets.size(), " targets for ", sources.size(), " sources"));
  }
  std::vector<HostCopy> copies;
  for (size_t i = 0; i < targets.size(); ++i) {
    check_rows(targets[i], sources[i], first, count, device_);
    const int64_t rows = targets[i].shape()[0];
    const int64_t row_bytes = rows == 0 ? 0 : targets[i].bytes() / rows;
    copies.push_back({static_cast<char*>(targets[i].data()) + first * row_bytes,
                      static_cast<const char*>(sources[i].data()) + first * row_bytes,
                      count * row_bytes});
  }
  if (!share_memory(targets, targets_) || !share_memory(sources, sources_)) {
    sent_->wait();    // then nothing needs the memory of the last call any more
    used_->record();  // whoever had the new memory before may have left work that still uses it
    targets_ = targets;
    sources_ = sources;
  }
  backend(device_).copy_beside(copies, used_.get(), sent_.get());
  backend(device_).hold_back(*sent_);
}

void Upload::mark_used() { used_->record(); }

bool Upload::sent() { return sent_->passed(); }

void Upload::wait() { sent_->wait(); }

Tensor empty_for_upload(const TensorSpec& spec, Device device) {
  return Tensor(backend(device).allocate_host(num_bytes(spec)), spec,
                contiguous_strides(spec.shape));
}

}  // namespace kerascnn
