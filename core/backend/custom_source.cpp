#include "core/backend/custom_source.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

namespace kerascnn {
namespace {

// In both languages: storage of 16 bits that converts to and from float.
constexpr const char* kCudaPrelude = R"(
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
struct float16 {
  uint16_t bits;
  float16() = default;
  __device__ float16(float value) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value)); }
  __device__ operator float() const {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
};
struct bfloat16 {
  uint16_t bits;
  bfloat16() = default;
  __device__ bfloat16(float value) {
    const uint32_t from = __float_as_uint(value);
    const bool is_nan = (from & 0x7fffffffu) > 0x7f800000u;
    bits = is_nan ? (from >> 16) | 0x40u : (from + 0x7fffu + (from >> 16 & 1u)) >> 16;
  }
  __device__ operator float() const { return __uint_as_float(uint32_t(bits) << 16); }
};
)";

// GCC calls glibc's functions for vectors where they are declared to exist, which <cmath> does for
// -ffast-math alone; NaN and infinity keep their meaning here. Before version 13 it defines
// __FLT16_MAX__ on aarch64 in C++ too, where it has no _Float16.
constexpr const char* kCppPrelude = R"(
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#if defined(__GLIBC__) && defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define KERASCNN_VECTORS(name)                                      \
  __attribute__((simd("notinbranch"))) float name##f(float) noexcept; \
  __attribute__((simd("notinbranch"))) double name(double) noexcept;
extern "C" {
KERASCNN_VECTORS(exp)
KERASCNN_VECTORS(log)
KERASCNN_VECTORS(sin)
KERASCNN_VECTORS(cos)
__attribute__((simd("notinbranch"))) float powf(float, float) noexcept;
__attribute__((simd("notinbranch"))) double pow(double, double) noexcept;
#if __GLIBC_PREREQ(2, 35)
KERASCNN_VECTORS(expm1)
KERASCNN_VECTORS(log1p)
KERASCNN_VECTORS(tanh)
KERASCNN_VECTORS(erf)
KERASCNN_VECTORS(erfc)
KERASCNN_VECTORS(tan)
KERASCNN_VECTORS(atan)
KERASCNN_VECTORS(sinh)
KERASCNN_VECTORS(cosh)
#endif
}
#endif
using namespace std;
template <typename To, typename From>
inline To kerascnn_bits(From from) {
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}
#if defined(__FLT16_MAX__) && \
    (!defined(__aarch64__) || defined(__clang__) || __GNUC__ >= 13)
typedef _Float16 float16;
#else
struct float16 {
  uint16_t bits;
  float16() = default;
  float16(float value) {
    const uint32_t from = kerascnn_bits<uint32_t>(value);
    const uint16_t sign = from >> 16 & 0x8000u;
    const uint32_t size = from & 0x7fffffffu;
    if (size > 0x7f800000u) {
      bits = sign | 0x7e00u;
    } else if (size >= 0x477ff000u) {
      bits = sign | 0x7c00u;
    } else if (size < 0x38800000u) {
      bits = sign | (kerascnn_bits<uint32_t>(kerascnn_bits<float>(size) + 0.5f) - 0x3f000000u);
    } else {
      bits = sign | ((size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13);
    }
  }
  operator float() const {
    const uint32_t sign = (bits & 0x8000u) << 16, size = bits & 0x7fffu;
    if (size >= 0x7c00u) return kerascnn_bits<float>(sign | 0x7f800000u | (size & 0x3ffu) << 13);
    if (size < 0x400u) return (sign ? -1.0f : 1.0f) * size * 0x1p-24f;
    return kerascnn_bits<float>(sign | ((size << 13) + 0x38000000u));
  }
};
#endif
struct bfloat16 {
  uint16_t bits;
  bfloat16() = default;
  bfloat16(float value) {
    const uint32_t from = kerascnn_bits<uint32_t>(value);
    const bool is_nan = (from & 0x7fffffffu) > 0x7f800000u;
    bits = is_nan ? (from >> 16) | 0x40u : (from + 0x7fffu + (from >> 16 & 1u)) >> 16;
  }
  operator float() const { return kerascnn_bits<float>(uint32_t(bits) << 16); }
};
)";

constexpr size_t kMaxLogBytes = 4000;
constexpr size_t kMaxExcerpts = 3;

// They are in the order of the enumeration.
constexpr const char* kElementTypes[] = {"bool",    "uint8_t", "int8_t",   "int16_t", "int32_t",
                                         "int64_t", "float16", "bfloat16", "float",   "double"};

std::string composed(const char* prelude, const CustomOp& op, const CustomSource& source,
                     Specs inputs, Specs outputs) {
  std::string text = prelude;
  const auto add = [&](const std::string& name, DType dtype) {
    text += message("typedef ", kElementTypes[static_cast<size_t>(dtype)], " ", name, "_t;\n");
  };
  for (size_t i = 0; i < inputs.size(); ++i) add(op.inputs[i], inputs[i].dtype);
  for (size_t i = 0; i < outputs.size(); ++i) add(op.outputs[i], outputs[i].dtype);
  const bool is_double = !inputs.empty() && inputs[0].dtype == DType::Float64;
  text += is_double ? "typedef double real;\n" : "typedef float real;\n";
  return text + message("#line 1 \"", source.label, "\"\n") + source.text + "\n";
}

struct Place {
  std::string file;
  int line = 0;
  bool operator<(const Place& other) const {
    return file != other.file ? file < other.file : line < other.line;
  }
};

// The lines of a source under the names and numbers that #line gives them.
std::map<Place, std::string> numbered_lines(const std::string& text) {
  std::map<Place, std::string> lines;
  Place at{"", 1};
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const size_t quote = line.find('"');
    if (line.starts_with("#line ") && quote != std::string::npos) {
      at = {line.substr(quote + 1, line.rfind('"') - quote - 1), std::atoi(line.c_str() + 6)};
    } else {
      // The end of an expression has its last line's number, and comes after it.
      lines.emplace(at, line);
      ++at.line;
    }
    begin = end + 1;
  }
  return lines;
}

// "label(3): error" of NVRTC and "label:3:5: error" of GCC and Clang.
std::optional<Place> place_of_error(const std::string& line, const std::string& label) {
  if (!line.starts_with(label) || line.find("error") == std::string::npos) return std::nullopt;
  const size_t at = label.size();
  if (at + 1 >= line.size() || (line[at] != '(' && line[at] != ':')) return std::nullopt;
  if (std::isdigit(static_cast<unsigned char>(line[at + 1])) == 0) return std::nullopt;
  return Place{label, std::atoi(line.c_str() + at + 1)};
}

std::string excerpt(const std::map<Place, std::string>& lines, const Place& place) {
  std::string text = message("\n", place.file, ", line ", place.line, ":\n");
  for (int line = place.line - 1; line <= place.line + 1; ++line) {
    const auto found = lines.find({place.file, line});
    if (found == lines.end()) continue;
    text += message(line == place.line ? " > " : "   ", line, " | ", found->second, "\n");
  }
  return text;
}

std::string declared_call(const CustomOp& op, const CustomSource& source, size_t num_sizes) {
  std::string arguments;
  const auto add = [&](const std::string& argument) {
    arguments += (arguments.empty() ? "" : ", ") + argument;
  };
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    add(message("static_cast<const ", op.inputs[i], "_t*>(inputs[", i, "])"));
  }
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    add(message("static_cast<", op.outputs[i], "_t*>(outputs[", i, "])"));
  }
  for (size_t i = 0; i < num_sizes; ++i) add(message("sizes[", i, "]"));
  return source.function + "(" + arguments + ");\n";
}

}  // namespace

std::string compose_cuda_source(const CustomOp& op, Specs inputs, Specs outputs) {
  return composed(kCudaPrelude, op, op.cuda, inputs, outputs);
}

std::string compose_cpp_source(const CustomOp& op, Specs inputs, Specs outputs, size_t num_sizes) {
  const std::string text = composed(kCppPrelude, op, op.cpp, inputs, outputs);
  if (op.is_elementwise) return text;
  return text + "#line 1 \"" + op.cpp.label + ", its call\"\n" +
         "extern \"C\" const char* kerascnn_call(const void* const* inputs, void* const* outputs, "
         "const int64_t* sizes) {\n  try {\n    " +
         declared_call(op, op.cpp, num_sizes) +
         "    return nullptr;\n"
         "  } catch (const std::exception& error) {\n"
         "    static thread_local char text[512];\n"
         "    strncpy(text, error.what(), sizeof(text) - 1);\n"
         "    return text;\n"
         "  } catch (...) {\n"
         "    return \"it threw what is no std::exception\";\n"
         "  }\n"
         "}\n";
}

std::string compile_error(const CustomOp& op, const CustomSource& source, std::string_view language,
                          const std::string& composed, const std::string& log) {
  std::string text = message(custom_op_title(op), ": the ", language, " source does not compile:\n",
                             log.substr(0, kMaxLogBytes), log.size() > kMaxLogBytes ? "...\n" : "");
  if (!text.ends_with('\n')) text += '\n';
  const std::map<Place, std::string> lines = numbered_lines(composed);
  std::map<std::string, bool> labels;
  for (const auto& [place, line] : lines) {
    if (place.file.starts_with(source.label)) labels[place.file] = true;
  }
  std::map<Place, bool> shown;
  size_t begin = 0;
  while (begin < log.size()) {
    const size_t end = std::min(log.find('\n', begin), log.size());
    for (const auto& [label, unused] : labels) {
      const auto place = place_of_error(log.substr(begin, end - begin), label);
      if (!place || shown.size() >= kMaxExcerpts || !shown.emplace(*place, true).second) continue;
      text += excerpt(lines, *place);
    }
    begin = end + 1;
  }
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace kerascnn
