// Files of the safetensors format (https://huggingface.co/docs/safetensors): a header in JSON, then
// arrays.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <string>

#include "core/inference/json.h"
#include "core/tensor/tensor.h"

namespace kerascnn::inference {

class Safetensors {
 public:
  // Reads the header. Throws Error where the file can't be read, ValueError where it is none of the
  // format: each array has to lie in the file, apart from others, in as many bytes as its shape
  // takes.
  explicit Safetensors(const std::string& path);

  const std::string& path() const { return path_; }
  // A text of the header's metadata; null where there is none.
  const std::string* text(const std::string& name) const;
  const std::map<std::string, TensorSpec>& specs() const { return specs_; }
  // The array in memory of its own on the CPU. Throws Error where the file can't be read.
  Tensor read(const std::string& name);

 private:
  std::string read_header();
  void add(const std::string& name, const Json& entry);
  void check_overlaps() const;

  std::string path_;
  std::ifstream file_;
  int64_t first_ = 0;      // where the arrays begin
  int64_t available_ = 0;  // bytes from there on
  std::map<std::string, std::string> texts_;
  std::map<std::string, TensorSpec> specs_;
  std::map<std::string, int64_t> places_;  // from where the arrays begin
};

}  // namespace kerascnn::inference
