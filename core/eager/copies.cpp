#include "core/eager/copies.h"

#include "core/eager/recorder.h"

namespace kerascnn {
namespace {

Tensor note_copy(const Tensor& source, Tensor result) {
  if (!is_recording() || !is_floating(source.dtype()) || !is_tracked(source)) return result;
  const Device home = source.device();
  const auto node = std::make_shared<TapeFunction>(
      "copy", std::vector<TapeEdge>{source.edge()}, std::vector<TensorSpec>{source.spec()}, 1,
      [home](std::span<const Tensor> gradients) {
        return std::vector<Tensor>{recorded_to(gradients[0], home)};
      });
  result.set_edge({node, 0});
  return result;
}

}  // namespace

Tensor recorded_copy(const Tensor& source) { return note_copy(source, source.copy()); }

Tensor recorded_to(const Tensor& source, Device device) {
  return device == source.device() ? source : note_copy(source, source.to(device));
}

Tensor recorded_contiguous(const Tensor& source) {
  return source.is_packed() ? source.contiguous() : note_copy(source, source.contiguous());
}

}  // namespace kerascnn
