// Where in a model a call belongs: its layer, and the part of a training step. What the tracer
// notes of each node, the passes keep, errors begin with and profiles sort by.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kerascnn {

// Parts of a step, as bits: one kernel may do the work of several.
enum Phase : uint8_t { kForward = 1, kBackward = 2, kUpdate = 4 };

struct Scope {
  std::string path;  // "sequential/conv2d_1"; of several layers "a/conv2d + a/max_pooling2d"
  uint8_t phases = kForward;

  bool empty() const { return path.empty(); }
  // Makes this the scope of a call that does the work of both.
  void join(const Scope& other);
  std::string phase() const;  // "forward", "forward + backward"

  bool operator==(const Scope&) const = default;
};

}  // namespace kerascnn
