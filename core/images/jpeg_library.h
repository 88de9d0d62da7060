// libjpeg, as another library of the process has it: opened at run time, so that neither building
// nor installing kerascnn needs one.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <string>

namespace kerascnn {

// The beginning of libjpeg's binary interface: what versions 6.2 (libjpeg-turbo's own), 7 and 8
// have in common. Their structures differ behind what is here, and in how long they are, which the
// library itself is asked for. Names are libjpeg's.
namespace libjpeg {

struct ErrorManager {
  void (*error_exit)(void* common);
  void (*emit_message)(void* common, int level);
  void (*output_message)(void* common);
  void (*format_message)(void* common, char* text);
  void (*reset_error_mgr)(void* common);
  int msg_code;
  union {
    int i[8];
    char s[80];
  } msg_parm;
  int trace_level;
  long num_warnings;
  const char* const* message_table;
  int last_message;
  const char* const* addon_message_table;
  int first_addon_message, last_addon_message;
};

enum ColorSpace : int { kUnknown, kGrayscale, kRgb, kYCbCr };

struct Decompress {
  ErrorManager* err;
  void *mem, *progress, *client_data;
  int is_decompressor, global_state;
  void* src;
  unsigned image_width, image_height;
  int num_components;
  ColorSpace jpeg_color_space, out_color_space;
  unsigned scale_num, scale_denom;
  double output_gamma;
  int buffered_image, raw_data_out;
  int dct_method;
  int do_fancy_upsampling, do_block_smoothing, quantize_colors;
  int dither_mode, two_pass_quantize, desired_number_of_colors;
  int enable_1pass_quant, enable_external_quant, enable_2pass_quant;
  unsigned output_width, output_height;
  int out_color_components, output_components;
  int rec_outbuf_height, actual_number_of_colors;
  unsigned char** colormap;
  unsigned output_scanline;
  // The rest is the library's own. 6.2 has 656 bytes in all, 8 has 664.
  alignas(16) unsigned char rest[1024];
};
static_assert(sizeof(long) == 8 && offsetof(Decompress, output_scanline) == 168);

}  // namespace libjpeg

// What decoding calls.
class JpegLibrary {
 public:
  // The libjpeg that a loaded library calls, such as that of Pillow for the path of its extension.
  // It stays open. Throws ValueError where it has none of those versions.
  explicit JpegLibrary(const std::string& user);

  int version() const { return version_; }  // 62, 70 or 80
  void create(libjpeg::Decompress* info) const { create_(info, version_, size_); }

  libjpeg::ErrorManager* (*std_error)(libjpeg::ErrorManager*) = nullptr;
  void (*mem_src)(libjpeg::Decompress*, const unsigned char*, unsigned long) = nullptr;
  int (*read_header)(libjpeg::Decompress*, int require_image) = nullptr;
  int (*start_decompress)(libjpeg::Decompress*) = nullptr;
  unsigned (*read_scanlines)(libjpeg::Decompress*, unsigned char** rows, unsigned most) = nullptr;
  int (*finish_decompress)(libjpeg::Decompress*) = nullptr;
  void (*abort_decompress)(libjpeg::Decompress*) = nullptr;
  void (*destroy_decompress)(libjpeg::Decompress*) = nullptr;

 private:
  void (*create_)(libjpeg::Decompress*, int version, size_t size) = nullptr;
  int version_ = 0;
  size_t size_ = 0;
};

// Decodes one file after another.
class JpegDecoder {
 public:
  // Throws ValueError where the library has no memory for it.
  explicit JpegDecoder(const JpegLibrary& library);
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  // Reads the header of a file, which has to stay where it is until the image is decoded. False for
  // what is none, is damaged, or has other colors than grey, RGB and YCbCr.
  bool begin(const uint8_t* content, size_t size);
  int64_t height() const { return state_.info.image_height; }
  int64_t width() const { return state_.info.image_width; }

  // Decodes it to (height, width, 3) pixels of uint8, each the mean of `denominator` squared ones:
  // 1, 2, 4 or 8. False for a file that is damaged anywhere, of which `to` may have a part, or
  // whose size is another.
  bool decode(int denominator, int64_t height, int64_t width, uint8_t* to);

 private:
  // What libjpeg's functions get to see. Its errors leave them by longjmp.
  struct State {
    libjpeg::ErrorManager errors;
    libjpeg::Decompress info;
    std::jmp_buf place;
  };

  static bool read_header(const JpegLibrary& library, State& state, const uint8_t* content,
                          size_t size);
  static bool read_pixels(const JpegLibrary& library, State& state, int64_t height, int64_t width,
                          uint8_t* to);

  const JpegLibrary& library_;
  State state_;
};

}  // namespace kerascnn
