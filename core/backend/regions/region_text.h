// The text that all kinds of generated kernels share. Sources are CUDA C++ without any header.
#pragma once

#include <string>

#include "core/backend/regions/region_code.h"

namespace kerascnn {

// Functions of elements, dtypes, loads and stores of several elements at once, reductions.
std::string region_prelude();

// The prelude's name for a dtype: "BFloat16".
const char* region_tag(DType dtype);
// The type that a value of the dtype is computed and held in: "float", "double", "bool" or "long
// long".
const char* region_type(DType dtype);
// The type that values of the dtype are added up in.
const char* region_sum_type(DType dtype);

// Writes the values of a region into the text of a kernel: v<i> is statement i, x<i> what load i
// gives, p<i> the pack that it comes in, s<i> and t<i> what reduction i gives, c<i> a constant,
// h<i> the bits of a 16-bit statement.
//
// A function of elements may contract a product and the addition behind it, as it does in the
// library; it must not do so with a product that another function computed. So ops that are one
// operation are written with functions that compilers never contract, and results of longer
// functions that another longer one reads are multiplied by `one`, an argument of each kernel.
class RegionText {
 public:
  // Threads take `width` neighbouring elements, which `k` counts.
  RegionText(const RegionCode& code, int width) : code_(code), width_(width) {}

  std::string value(const RegionValue& value) const;
  // The value's bits as a number of its dtype.
  std::string bits(const RegionValue& value) const;

  // The kernel's parameters "const void* i0, ...": inputs, outputs, constants, `one`.
  std::string parameters() const;
  // Index arithmetic of strided loads, as functions in front of the kernel.
  std::string offset_functions() const;
  // The kernel's beginning: constants, and all that is computed once.
  std::string once() const;
  // Values that are computed once for each of a thread's columns, which begin at `column`.
  std::string columns() const;

  // Loads of elements and rows have two steps, so that many are under way at once. `slots` is "[4]"
  // and `slot` is "[u]" where there are several; both are "" where there is one. A load reads from
  // the element at `at` on, which is in `row` and `column`; there are `count` elements.
  std::string declare_packs(const ElementNeeds& needs, const std::string& slots) const;
  std::string load_packs(const ElementNeeds& needs, const std::string& slot) const;
  std::string declare_row_packs(const std::string& slots) const;
  std::string load_row_packs(const std::string& slot) const;

  // Statements of a row that are computed in `stage` and not before.
  std::string row(const std::string& slot, int stage) const;
  // Statements of an element, within a loop over k.
  std::string element(const ElementNeeds& needs, const std::string& slot) const;

  // Outputs with elements of the domain: packs o<i>_, within the loop over k and after it.
  std::string declare_outputs() const;
  std::string put_outputs() const;
  std::string store_outputs() const;

 private:
  bool is_single(const RegionLoad& load) const;  // is one value for all elements of a thread
  bool is_side_by_side(const RegionLoad& load) const;
  std::string declare_pack(size_t load, const std::string& slots) const;
  std::string load_pack(size_t load, const std::string& slot) const;
  std::string expression(const RegionStatement& statement) const;
  std::string statement(size_t index, const std::string& place) const;

  const RegionCode& code_;
  int width_;
};

}  // namespace kerascnn
