#include "core/inference/safetensors.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace kerascnn::inference {
namespace {

constexpr int64_t kMaxHeader = int64_t{100} << 20;  // as the format has it

constexpr std::pair<const char*, DType> kNames[] = {
    {"BOOL", DType::Bool},   {"U8", DType::UInt8},      {"I8", DType::Int8},
    {"I16", DType::Int16},   {"I32", DType::Int32},     {"I64", DType::Int64},
    {"F16", DType::Float16}, {"BF16", DType::BFloat16}, {"F32", DType::Float32},
    {"F64", DType::Float64},
};

DType dtype_of_name(const std::string& name) {
  for (const auto& [known, dtype] : kNames) {
    if (name == known) return dtype;
  }
  throw ValueError(message("its dtype ", name, " is not supported"));
}

}  // namespace

Safetensors::Safetensors(const std::string& path) : path_(path) {
  const std::string text = read_header();
  try {
    const Json header = parse_json(text);
    for (const JsonMember& member : header.map()) {
      if (member.name != "__metadata__") {
        add(member.name, member.value);
        continue;
      }
      for (const JsonMember& entry : member.value.map()) {
        texts_.emplace(entry.name, entry.value.text());
      }
    }
    check_overlaps();
  } catch (const ValueError& error) {
    throw ValueError(message("\"", path_, "\": its header is damaged: ", error.what()));
  }
}

std::string Safetensors::read_header() {
  std::error_code status;
  if (!std::filesystem::is_regular_file(path_, status)) {
    throw Error(
        message("\"", path_, "\" can't be read: ", status ? status.message() : "it is no file"));
  }
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path_, status));
  file_.open(path_, std::ios::binary);
  if (status || !file_) {
    throw Error(message("\"", path_,
                        "\" can't be read: ", status ? status.message() : std::strerror(errno)));
  }
  unsigned char start[8] = {};
  uint64_t length = 0;
  if (size >= 10 && file_.read(reinterpret_cast<char*>(start), sizeof(start))) {
    for (size_t i = sizeof(start); i-- > 0;) length = length << 8 | start[i];
  }
  if (length < 2 || length > static_cast<uint64_t>(std::min(size - 8, kMaxHeader))) {
    throw ValueError(message("\"", path_, "\" is no safetensors file, or is cut off"));
  }
  first_ = 8 + static_cast<int64_t>(length);
  available_ = size - first_;
  std::string text(length, '\0');
  if (!file_.read(text.data(), static_cast<std::streamsize>(length))) {
    throw Error(message("\"", path_, "\" can't be read to the end of its header"));
  }
  return text;
}

void Safetensors::add(const std::string& name, const Json& entry) {
  try {
    TensorSpec spec;
    spec.dtype = dtype_of_name(entry.at("dtype").text());
    for (const Json& n : entry.at("shape").list()) spec.shape.push_back(n.whole());
    const JsonList& offsets = entry.at("data_offsets").list();
    if (offsets.size() != 2) throw ValueError("it has no begin and end");
    const int64_t begin = offsets[0].whole(), end = offsets[1].whole();
    const int64_t expected = num_bytes(spec);
    if (begin < 0 || end < begin || end > available_ || end - begin != expected) {
      throw ValueError(message("it should take ", expected, " bytes, and the file gives it ", begin,
                               " to ", end, " of ", available_));
    }
    places_[name] = begin;
    specs_[name] = std::move(spec);
  } catch (const ValueError& error) {
    throw ValueError(message("array \"", name, "\": ", error.what()));
  }
}

// Otherwise a small file could ask for any amount of memory.
void Safetensors::check_overlaps() const {
  std::vector<std::pair<int64_t, int64_t>> spans;
  for (const auto& [name, spec] : specs_) {
    const int64_t bytes = num_bytes(spec);
    if (bytes > 0) spans.emplace_back(places_.at(name), bytes);
  }
  std::sort(spans.begin(), spans.end());
  for (size_t i = 1; i < spans.size(); ++i) {
    if (spans[i].first < spans[i - 1].first + spans[i - 1].second) {
      throw ValueError("arrays share bytes of the file");
    }
  }
}

const std::string* Safetensors::text(const std::string& name) const {
  const auto found = texts_.find(name);
  return found == texts_.end() ? nullptr : &found->second;
}

Tensor Safetensors::read(const std::string& name) {
  Tensor result = Tensor::empty(specs_.at(name), Device{});
  if (result.bytes() == 0) return result;
  file_.clear();
  file_.seekg(first_ + places_.at(name));
  if (!file_.read(static_cast<char*>(result.data()), result.bytes())) {
    throw Error(message("\"", path_, "\" can't be read: the array \"", name, "\" is cut off"));
  }
  return result;
}

}  // namespace kerascnn::inference
