#include "core/profile/scope.h"

#include <algorithm>
#include <vector>

namespace kerascnn {
namespace {

constexpr std::string_view kAnd = " + ";

std::vector<std::string> parts_of(std::string_view path) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    const size_t end = path.find(kAnd);
    parts.emplace_back(path.substr(0, end));
    path.remove_prefix(end == std::string_view::npos ? path.size() : end + kAnd.size());
  }
  return parts;
}

std::string together(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text.append(text.empty() ? "" : kAnd).append(part);
  return text;
}

// Is it the same layer, or a model around it?
bool contains(std::string_view outer, std::string_view inner) {
  return inner.starts_with(outer) && (inner.size() == outer.size() || inner[outer.size()] == '/');
}

}  // namespace

void Scope::join(const Scope& other) {
  phases |= other.phases;
  if (other.path.empty() || other.path == path) return;
  std::vector<std::string> parts = parts_of(path);
  for (const std::string& part : parts_of(other.path)) {
    const auto is_inside = [&](const std::string& known) { return contains(part, known); };
    if (std::any_of(parts.begin(), parts.end(), is_inside)) continue;
    std::erase_if(parts, [&](const std::string& known) { return contains(known, part); });
    parts.push_back(part);
  }
  path = together(parts);
}

std::string Scope::phase() const {
  std::vector<std::string> names;
  if ((phases & kForward) != 0) names.emplace_back("forward");
  if ((phases & kBackward) != 0) names.emplace_back("backward");
  if ((phases & kUpdate) != 0) names.emplace_back("update");
  return names.empty() ? "other" : together(names);
}

}  // namespace kerascnn
