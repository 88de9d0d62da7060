// The CPU's Fourier transforms: those of NumPy (pocketfft), called without Python.
//
// numpy.fft calls universal functions, whose inner loops are plain functions that run without
// Python's lock. They are looked up once, while the module is loaded: neither planning nor running
// has to wait for the lock, which the waiting caller might hold.
#include "core/backend/host_fft.h"

// Only the layout of a universal function is used, no function of NumPy's C interface.
#define NO_IMPORT_ARRAY
#define NO_IMPORT_UFUNC
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <numpy/ndarraytypes.h>
#include <numpy/ufuncobject.h>

#include <array>
#include <string>
#include <type_traits>

#include "core/base/error.h"
#include "core/bindings/bindings.h"

namespace kerascnn::bindings {
namespace {

static_assert(std::is_same_v<npy_intp, intptr_t>);

// The loop for operands of these types; of a signature like (n),()->(m).
HostFftLoop find_loop(const nb::object& functions, const char* name, std::array<int, 3> types) {
  const nb::object found = functions.attr(name);
  const nb::object ufunc_type = nb::module_::import_("numpy").attr("ufunc");
  if (!nb::isinstance(found, ufunc_type)) {
    throw TypeError(message("its function ", name, " is of another kind"));
  }
  const auto* ufunc = reinterpret_cast<const PyUFuncObject*>(found.ptr());
  const std::string signature = ufunc->core_enabled == 0 ? "" : ufunc->core_signature;
  if (signature != "(n),()->(m)" && signature != "(m),()->(n)") {
    throw TypeError(message("its function ", name, " takes other arguments"));
  }
  for (int i = 0; i < ufunc->ntypes; ++i) {
    bool fits = ufunc->functions[i] != nullptr;
    for (int k = 0; k < 3; ++k) fits = fits && ufunc->types[3 * i + k] == types[k];
    if (fits) return {ufunc->functions[i], ufunc->data == nullptr ? nullptr : ufunc->data[i]};
  }
  throw TypeError(message("its function ", name, " has no loop for the types that are needed"));
}

HostFftLoops find_loops(const nb::object& functions, int real, int complex) {
  return {.forward = find_loop(functions, "fft", {complex, real, complex}),
          .backward = find_loop(functions, "ifft", {complex, real, complex}),
          .real_even = find_loop(functions, "rfft_n_even", {real, real, complex}),
          .real_odd = find_loop(functions, "rfft_n_odd", {real, real, complex}),
          .to_real = find_loop(functions, "irfft", {complex, real, real})};
}

}  // namespace

void bind_host_fft() {
  std::string version = "(of an unknown version)";
  try {
    version = nb::cast<std::string>(nb::module_::import_("numpy").attr("__version__"));
    const nb::object functions = nb::module_::import_("numpy.fft._pocketfft_umath");
    set_host_fft({.name = message("pocketfft of NumPy ", version),
                  .of_float = find_loops(functions, NPY_FLOAT, NPY_CFLOAT),
                  .of_double = find_loops(functions, NPY_DOUBLE, NPY_CDOUBLE)});
  } catch (const std::exception& error) {
    set_no_host_fft(message("NumPy ", version, " does not have them where kerascnn knows them (",
                            error.what(), "); install a NumPy 2 that does, such as 2.4"));
  }
}

}  // namespace kerascnn::bindings
