#include "core/images/jpeg_library.h"

#include <dlfcn.h>

#include <algorithm>

#include "core/base/error.h"

namespace kerascnn {
namespace {

using libjpeg::Decompress;
using libjpeg::ErrorManager;

// What error_exit leaves by, found from the structure that libjpeg hands it.
std::jmp_buf& place_of(void* common) {
  return *static_cast<std::jmp_buf*>(static_cast<Decompress*>(common)->client_data);
}

[[noreturn]] void leave(void* common) { std::longjmp(place_of(common), 1); }

// A level below 0 is a warning: the data is damaged, and the library goes on. Nothing is printed.
void count(void* common, int level) {
  if (level < 0) ++static_cast<Decompress*>(common)->err->num_warnings;
}

void print_nothing(void*) {}

void prepare(const JpegLibrary& library, Decompress& info, ErrorManager& errors,
             std::jmp_buf& place) {
  info.err = library.std_error(&errors);
  info.client_data = &place;
  errors.error_exit = leave;
  errors.emit_message = count;
  errors.output_message = print_nothing;
}

using Create = void (*)(Decompress*, int version, size_t size);

// Asks for a structure of another version or size than the library's: the error says which it has.
int refused(const JpegLibrary& library, Create create, int version, size_t size) {
  ErrorManager errors{};
  Decompress info{};
  std::jmp_buf place;
  prepare(library, info, errors, place);
  if (setjmp(place) != 0) return errors.msg_parm.i[0];
  create(&info, version, size);
  return 0;
}

template <typename Function>
void look_up(void* handle, const std::string& user, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  if (function == nullptr) {
    throw ValueError(message(user, " calls no libjpeg with the function ", name));
  }
}

}  // namespace

JpegLibrary::JpegLibrary(const std::string& user) {
  void* handle = dlopen(user.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (handle == nullptr) throw ValueError(message(user, " is not loaded"));
  look_up(handle, user, "jpeg_CreateDecompress", create_);
  look_up(handle, user, "jpeg_std_error", std_error);
  look_up(handle, user, "jpeg_mem_src", mem_src);
  look_up(handle, user, "jpeg_read_header", read_header);
  look_up(handle, user, "jpeg_start_decompress", start_decompress);
  look_up(handle, user, "jpeg_read_scanlines", read_scanlines);
  look_up(handle, user, "jpeg_finish_decompress", finish_decompress);
  look_up(handle, user, "jpeg_abort_decompress", abort_decompress);
  look_up(handle, user, "jpeg_destroy_decompress", destroy_decompress);
  version_ = refused(*this, create_, 0, 0);
  if (version_ == 62 || version_ == 70 || version_ == 80) {
    size_ = static_cast<size_t>(refused(*this, create_, version_, 0));
  }
  if (size_ < offsetof(Decompress, rest) || size_ > sizeof(Decompress)) {
    throw ValueError(message("libjpeg has version ", version_, " and structures of ", size_,
                             " bytes; 62, 70 and 80 are known"));
  }
}

JpegDecoder::JpegDecoder(const JpegLibrary& library) : library_(library), state_{} {
  prepare(library, state_.info, state_.errors, state_.place);
  if (setjmp(state_.place) != 0) throw ValueError("libjpeg has no memory for a decoder");
  library.create(&state_.info);
}

JpegDecoder::~JpegDecoder() { library_.destroy_decompress(&state_.info); }

bool JpegDecoder::read_header(const JpegLibrary& library, State& state, const uint8_t* content,
                              size_t size) {
  if (setjmp(state.place) != 0) return false;
  library.abort_decompress(&state.info);
  library.mem_src(&state.info, content, size);
  constexpr int kIsThere = 1;
  return library.read_header(&state.info, 1) == kIsThere;
}

bool JpegDecoder::read_pixels(const JpegLibrary& library, State& state, int64_t height,
                              int64_t width, uint8_t* to) {
  Decompress& info = state.info;
  if (setjmp(state.place) != 0) return false;
  if (library.start_decompress(&info) == 0) return false;
  if (info.output_height != height || info.output_width != width || info.output_components != 3) {
    return false;
  }
  constexpr unsigned kTogether = 16;  // as many rows as the library makes at once
  while (info.output_scanline < info.output_height) {
    unsigned char* rows[kTogether];
    const unsigned most = std::min(kTogether, info.output_height - info.output_scanline);
    for (unsigned i = 0; i < most; ++i) rows[i] = to + (info.output_scanline + i) * width * 3;
    if (library.read_scanlines(&info, rows, most) == 0) return false;
  }
  return library.finish_decompress(&info) != 0 && state.errors.num_warnings == 0;
}

bool JpegDecoder::begin(const uint8_t* content, size_t size) {
  state_.errors.num_warnings = 0;
  if (!read_header(library_, state_, content, size)) return false;
  const libjpeg::ColorSpace colors = state_.info.jpeg_color_space;
  return colors == libjpeg::kGrayscale || colors == libjpeg::kRgb || colors == libjpeg::kYCbCr;
}

bool JpegDecoder::decode(int denominator, int64_t height, int64_t width, uint8_t* to) {
  state_.info.out_color_space = libjpeg::kRgb;
  state_.info.scale_num = 1;
  state_.info.scale_denom = static_cast<unsigned>(denominator);
  const bool is_whole = read_pixels(library_, state_, height, width, to);
  library_.abort_decompress(&state_.info);  // gives memory back that an error has left
  return is_whole;
}

}  // namespace kerascnn
