// Where the CPU's Fourier transforms come from. libkerascnn has none of its own. A program that
// loads it may bring those of a library, as the Python bindings bring NumPy's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kerascnn {

// Transforms of many lines, in the form of the inner loop of a generalized universal function of
// NumPy (PyUFuncGenericFunction). Several threads may call it at a time, with or without Python's
// lock.
//
//   arguments: input lines, one factor for all, output lines
//   sizes:     number of lines, elements of an input line, elements of an output line
//   strides:   in bytes, from one line to the next of input, factor and output; from one element to
//              the next of input and output
struct HostFftLoop {
  void (*function)(char** arguments, const intptr_t* sizes, const intptr_t* strides, void* data);
  void* data;
};

// The loops for one floating type, whose complex numbers are pairs.
struct HostFftLoops {
  HostFftLoop forward;    // complex to complex
  HostFftLoop backward;   // complex to complex, without a factor of its own
  HostFftLoop real_even;  // real lines of an even length to the first half of their transforms
  HostFftLoop real_odd;   // the same of an odd length
  HostFftLoop to_real;    // the way back, without a factor of its own
};

struct HostFft {
  std::string name;  // "pocketfft (NumPy 2.4.6)"
  HostFftLoops of_float;
  HostFftLoops of_double;
};

// To be called once, before anything is planned.
void set_host_fft(HostFft functions);
// The same where there are none, with the reason.
void set_no_host_fft(std::string reason);
// Where there are none, throws LibraryError with the reason, which begins with the op's name.
const HostFft& host_fft(std::string_view op);

}  // namespace kerascnn
