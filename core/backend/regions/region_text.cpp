#include "core/backend/regions/region_text.h"

#include <algorithm>
#include <bit>
#include <cstdio>

#include "core/base/error.h"

namespace kerascnn {
namespace {

using Source = RegionValue::Source;

std::string hexadecimal(uint64_t bits, const char* suffix) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%llx%s", static_cast<unsigned long long>(bits), suffix);
  return text;
}

// The exact number, whatever it is.
std::string literal(double value, DType dtype) {
  if (dtype == DType::Float64) {
    return "__longlong_as_double((long long)" + hexadecimal(std::bit_cast<uint64_t>(value), "ull") +
           ")";
  }
  if (is_floating(dtype)) {
    return "__uint_as_float(" +
           hexadecimal(std::bit_cast<uint32_t>(static_cast<float>(value)), "u") + ")";
  }
  const auto integer = element::cast<int64_t>(value);
  return "(long long)" + hexadecimal(static_cast<uint64_t>(integer), "ull");
}

const char* exact_operation(ElementOp op) {
  switch (op) {
    case ElementOp::add:
      return "exact::add";
    case ElementOp::subtract:
      return "exact::subtract";
    case ElementOp::multiply:
    case ElementOp::square:
      return "exact::multiply";
    default:
      return nullptr;
  }
}

bool is_sixteen_bit(DType dtype) { return dtype == DType::Float16 || dtype == DType::BFloat16; }

}  // namespace

const char* region_tag(DType dtype) {
  constexpr const char* kTags[] = {"Bool",  "UInt8",   "Int8",     "Int16",   "Int32",
                                   "Int64", "Float16", "BFloat16", "Float32", "Float64"};
  return kTags[static_cast<size_t>(dtype)];
}

const char* region_type(DType dtype) {
  if (dtype == DType::Float64) return "double";
  if (is_floating(dtype)) return "float";
  return dtype == DType::Bool ? "bool" : "long long";
}

const char* region_sum_type(DType dtype) {
  return is_floating(dtype) ? region_type(dtype) : "long long";
}

bool RegionText::is_side_by_side(const RegionLoad& load) const {
  if (load.strides.back() != 1 || load.extents.back() % width_ != 0) return false;
  return std::all_of(load.strides.begin(), load.strides.end() - 1,
                     [&](int64_t stride) { return stride % width_ == 0; });
}

bool RegionText::is_single(const RegionLoad& load) const {
  switch (load.reading) {
    case RegionReading::Scalar:
    case RegionReading::PerRow:
      return true;
    case RegionReading::Strided:
      return load.level == Level::Row ||
             (load.strides.back() == 0 && load.extents.back() % width_ == 0);
    default:
      return false;
  }
}

std::string RegionText::value(const RegionValue& value) const {
  switch (value.source) {
    case Source::Constant:
      return message('c', value.index);
    case Source::Load:
      return message('x', value.index);
    case Source::Statement:
      return message('v', value.index, value.level == Level::Column ? "[k]" : "");
    default:
      return message(value.output == 0 ? 's' : 't', value.index);
  }
}

std::string RegionText::bits(const RegionValue& of) const {
  if (of.source == Source::Statement && is_sixteen_bit(of.dtype) && of.level == Level::Element) {
    return message('h', of.index);
  }
  return message(region_tag(of.dtype), "::bits(", value(of), ")");
}

std::string RegionText::parameters() const {
  std::string text;
  for (size_t i = 0; i < code_.inputs.size(); ++i) text += message("const void* i", i, ", ");
  for (size_t i = 0; i < code_.outputs.size(); ++i) text += message("void* o", i, ", ");
  for (size_t i = 0; i < code_.constants.size(); ++i) text += message("Wide b", i, ", ");
  return text + "float one";
}

std::string RegionText::offset_functions() const {
  std::string text;
  for (size_t i = 0; i < code_.loads.size(); ++i) {
    const RegionLoad& load = code_.loads[i];
    if (load.reading != RegionReading::Strided) continue;
    text +=
        message("__device__ __forceinline__ Index offset", i, "(Index at) {\n  Index sum = 0;\n");
    for (size_t axis = load.extents.size(); axis-- > 1;) {
      const std::string extent = message("(Index)", load.extents[axis]);
      if (load.strides[axis] != 0) {
        text += message("  sum += at % ", extent, " * (Index)", load.strides[axis], ";\n");
      }
      text += message("  at /= ", extent, ";\n");
    }
    text += message("  return sum + at * (Index)", load.strides[0], ";\n}\n");
  }
  return text;
}

std::string RegionText::expression(const RegionStatement& s) const {
  const DType from = s.operand_dtype;
  const char* const type = region_sum_type(from);  // bool is computed as an integer
  const auto operand = [&](size_t i) { return value(s.operands[i]); };
  if (s.op == ElementOp::where) {
    return message(operand(0), " ? ", operand(1), " : ", operand(2));
  }
  if (s.op == ElementOp::cast) {
    if (s.dtype == DType::Bool) return message(operand(0), " != 0");
    if (is_floating(s.dtype)) return message("(", region_type(s.dtype), ")", operand(0));
    return message("element::cast<long long>(", operand(0), ")");
  }
  std::string text = message("element::", element_op_name(s.op), "<", type, ">");
  if (exact_operation(s.op) != nullptr && is_floating(from)) text = exact_operation(s.op);
  text += '(';
  for (size_t i = 0; i < s.operands.size(); ++i) {
    text += message(i > 0 ? ", " : "", "(", type, ")", operand(i));
  }
  if (s.op == ElementOp::square && is_floating(from)) text += message(", ", operand(0));
  for (int i = 0; i < element_num_parameters(s.op); ++i) {
    text += ", " + literal(s.parameters.values[i], from);
  }
  text += ')';
  return s.is_sealed ? message("exact::multiply(", text, ", (", type, ")one)") : text;
}

// `place` is "" where the value is declared here, otherwise "[k]".
std::string RegionText::statement(size_t index, const std::string& place) const {
  const RegionStatement& s = code_.statements[index];
  const std::string text = expression(s);
  const std::string name = place.empty() ? message("const ", region_type(s.dtype), " v", index)
                                         : message('v', index, place);
  const char* const tag = region_tag(s.dtype);
  if (is_sixteen_bit(s.dtype) && place.empty()) {
    return message("const Word h", index, " = ", tag, "::bits(", text, ");\n", name, " = ", tag,
                   "::value(h", index, ");\n");
  }
  const bool is_narrow = is_sixteen_bit(s.dtype) || (is_integer(s.dtype) && itemsize(s.dtype) < 8);
  if (is_narrow) return message(name, " = ", tag, "::value(", tag, "::bits(", text, "));\n");
  if (s.dtype == DType::Bool) return message(name, " = (", text, ") != 0;\n");
  return message(name, " = ", text, ";\n");
}

std::string RegionText::declare_pack(size_t index, const std::string& slots) const {
  const RegionLoad& load = code_.loads[index];
  if (load.reading == RegionReading::Drawn) return message("Kept p", index, slots, ";\n");
  return message("Pack<", region_tag(load.dtype), ", ", is_single(load) ? 1 : width_, "> p", index,
                 slots, ";\n");
}

std::string RegionText::load_pack(size_t index, const std::string& slot) const {
  const RegionLoad& load = code_.loads[index];
  const std::string tag = region_tag(load.dtype);
  const auto of = [&](const std::string& at, const char* count, const char* whole) {
    return message('p', index, slot, " = load<", tag, ", ", is_single(load) ? 1 : width_, ">(i",
                   load.input, ", ", at, ", ", count, ", ", whole, ");\n");
  };
  switch (load.reading) {
    case RegionReading::InOrder:
      return of("at", "count", "whole");
    case RegionReading::Scalar:
      return of("0", "1", "true");
    case RegionReading::PerColumn:
      return of("column", "count", "whole");
    case RegionReading::PerColumnOfPart:
      return of("part * columns + column", "count", "whole");
    case RegionReading::PerRow:
      return of("row", "1", "true");
    case RegionReading::Drawn:
      return message('p', index, slot, " = draw<", width_, ">(i", load.input, ", c", load.stream,
                     ", c", load.threshold, ", at);\n");
    default:
      break;
  }
  if (load.level == Level::Row) return of(message("offset", index, "(row * columns)"), "1", "true");
  if (is_single(load)) return of(message("offset", index, "(at)"), "1", "true");
  if (is_side_by_side(load)) return of(message("offset", index, "(at)"), "count", "whole");
  return message("#pragma unroll\nfor (int k = 0; k < ", width_, "; ++k) p", index, slot,
                 ".put(k, k < count ? static_cast<const ", tag, "::Bits*>(i", load.input,
                 ")[offset", index, "(at + k)] : (", tag, "::Bits)0);\n");
}

std::string RegionText::once() const {
  std::string text;
  for (size_t i = 0; i < code_.constants.size(); ++i) {
    const DType dtype = code_.constant_dtypes[i];
    text += message("const ", region_type(dtype), " c", i, " = ", region_tag(dtype), "::value((",
                    region_tag(dtype), "::Bits)b", i, ");\n");
  }
  for (size_t i = 0; i < code_.loads.size(); ++i) {
    if (code_.loads[i].level != Level::Once) continue;
    text += declare_pack(i, "") + load_pack(i, "");
    text += message("const ", region_type(code_.loads[i].dtype), " x", i, " = p", i, ".get(0);\n");
  }
  for (size_t i = 0; i < code_.statements.size(); ++i) {
    if (code_.statements[i].level == Level::Once) text += statement(i, "");
  }
  return text;
}

std::string RegionText::columns() const {
  std::string text, loop;
  for (size_t i = 0; i < code_.loads.size(); ++i) {
    if (code_.loads[i].level != Level::Column) continue;
    text += declare_pack(i, "") + load_pack(i, "");
    loop += message("const ", region_type(code_.loads[i].dtype), " x", i, " = p", i, ".get(k);\n");
  }
  bool has_statements = false;
  for (size_t i = 0; i < code_.statements.size(); ++i) {
    if (code_.statements[i].level != Level::Column) continue;
    has_statements = true;
    text += message(region_type(code_.statements[i].dtype), " v", i, "[", width_, "];\n");
    loop += statement(i, "[k]");
  }
  if (!has_statements) return text;
  return text + message("#pragma unroll\nfor (int k = 0; k < ", width_, "; ++k) {\n", loop, "}\n");
}

std::string RegionText::declare_packs(const ElementNeeds& needs, const std::string& slots) const {
  std::string text;
  for (size_t i = 0; i < code_.loads.size(); ++i) {
    if (needs.loads[i]) text += declare_pack(i, slots);
  }
  return text;
}

std::string RegionText::load_packs(const ElementNeeds& needs, const std::string& slot) const {
  std::string text;
  for (size_t i = 0; i < code_.loads.size(); ++i) {
    if (needs.loads[i]) text += load_pack(i, slot);
  }
  return text;
}

std::string RegionText::declare_row_packs(const std::string& slots) const {
  std::string text;
  for (size_t i = 0; i < code_.loads.size(); ++i) {
    if (code_.loads[i].level == Level::Row) text += declare_pack(i, slots);
  }
  return text;
}

std::string RegionText::load_row_packs(const std::string& slot) const {
  std::string text;
  for (size_t i = 0; i < code_.loads.size(); ++i) {
    if (code_.loads[i].level == Level::Row) text += load_pack(i, slot);
  }
  return text;
}

std::string RegionText::row(const std::string& slot, int stage) const {
  std::string text;
  for (size_t i = 0; stage == 0 && i < code_.loads.size(); ++i) {
    const RegionLoad& load = code_.loads[i];
    if (load.level != Level::Row) continue;
    text += message("const ", region_type(load.dtype), " x", i, " = p", i, slot, ".get(0);\n");
  }
  for (size_t i = 0; i < code_.statements.size(); ++i) {
    const RegionStatement& s = code_.statements[i];
    if (s.level == Level::Row && s.stage == stage) text += statement(i, "");
  }
  return text;
}

std::string RegionText::element(const ElementNeeds& needs, const std::string& slot) const {
  std::string text;
  for (size_t i = 0; i < code_.loads.size(); ++i) {
    const RegionLoad& load = code_.loads[i];
    if (!needs.loads[i] && load.level != Level::Column) continue;
    // The packs of columns are no arrays.
    const bool is_column =
        load.reading == RegionReading::PerColumn || load.reading == RegionReading::PerColumnOfPart;
    text += message("const ", region_type(load.dtype), " x", i, " = p", i, is_column ? "" : slot,
                    ".get(", is_single(load) ? "0" : "k", ");\n");
  }
  for (size_t i = 0; i < code_.statements.size(); ++i) {
    if (needs.statements[i]) text += statement(i, "");
  }
  return text;
}

std::string RegionText::declare_outputs() const {
  std::string text;
  for (size_t i = 0; i < code_.outputs.size(); ++i) {
    if (code_.output_levels[i] != Level::Element) continue;
    text += message("Pack<", region_tag(code_.outputs[i].dtype), ", ", width_, "> q", i, ";\n");
  }
  return text;
}

std::string RegionText::put_outputs() const {
  std::string text;
  for (size_t i = 0; i < code_.outputs.size(); ++i) {
    if (code_.output_levels[i] != Level::Element) continue;
    text += message('q', i, ".put(k, ", bits(code_.outputs[i]), ");\n");
  }
  return text;
}

std::string RegionText::store_outputs() const {
  std::string text;
  for (size_t i = 0; i < code_.outputs.size(); ++i) {
    if (code_.output_levels[i] != Level::Element) continue;
    text += message("store<", region_tag(code_.outputs[i].dtype), ", ", width_, ">(o", i,
                    ", at, count, whole, q", i, ");\n");
  }
  return text;
}

}  // namespace kerascnn
