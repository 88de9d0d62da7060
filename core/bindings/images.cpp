#include <mutex>

#include "core/base/ceil_div.h"
#include "core/base/error.h"
#include "core/bindings/bindings.h"
#include "core/bindings/host_array.h"
#include "core/images/jpeg_reader.h"
#include "core/images/resample.h"

namespace kerascnn::bindings {
namespace {

// The taps of both axes, as arrays.
struct TapArrays {
  HostArray row_indices, row_shares, column_indices, column_shares;

  AxisTaps rows() const { return {row_indices.lent(), row_shares.lent()}; }
  AxisTaps columns() const { return {column_indices.lent(), column_shares.lent()}; }
};

Tensor resample(nb::handle pixels, nb::handle row_indices, nb::handle row_shares,
                nb::handle column_indices, nb::handle column_shares) {
  const HostArray image(pixels);
  const TapArrays taps{HostArray(row_indices), HostArray(row_shares), HostArray(column_indices),
                       HostArray(column_shares)};
  const Unlocked released;
  return resample_image(image.lent(), taps.rows(), taps.columns());
}

// Libraries stay open, so one object for each is enough.
std::shared_ptr<const JpegLibrary> library_of(const std::string& user) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, std::shared_ptr<const JpegLibrary>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const JpegLibrary>& library = known[user];
  if (library == nullptr) library = std::make_shared<const JpegLibrary>(user);
  return library;
}

std::shared_ptr<JpegReader> make_reader(const std::string& user, int64_t height, int64_t width,
                                        int64_t small, int64_t expansion) {
  return std::make_shared<JpegReader>(library_of(user), height, width,
                                      UnpackLimits{small, expansion});
}

void add_plan(JpegReader& reader, std::pair<int64_t, int64_t> size, int denominator,
              nb::handle row_indices, nb::handle row_shares, nb::handle column_indices,
              nb::handle column_shares) {
  const TapArrays taps{HostArray(row_indices), HostArray(row_shares), HostArray(column_indices),
                       HostArray(column_shares)};
  if (denominator != 1 && denominator != 2 && denominator != 4 && denominator != 8) {
    throw ValueError(
        message("JpegReader: `denominator` must be 1, 2, 4 or 8. Received: ", denominator));
  }
  const int64_t height = ceil_div(size.first, denominator);
  const int64_t width = ceil_div(size.second, denominator);
  reader.add_plan(
      size.first, size.second,
      {denominator, height, width, Resampler(taps.rows(), taps.columns(), height, width)});
}

// Bytes are a file's content; else it is (path, offset, size, changed).
ImageSource image_source_of(nb::handle file) {
  if (nb::isinstance<nb::bytes>(file)) {
    const auto content = nb::borrow<nb::bytes>(file);
    return {{}, 0, -1, -1, {content.c_str(), content.size()}};
  }
  const auto place = nb::cast<nb::tuple>(file);
  if (place.size() != 4) throw ValueError("JpegReader: a file is (path, offset, size, changed)");
  const auto path = nb::cast<nb::bytes>(place[0]);
  return {{path.c_str(), path.size()},
          nb::cast<int64_t>(place[1]),
          nb::cast<int64_t>(place[2]),
          nb::cast<int64_t>(place[3]),
          {}};
}

// An array that is written to, of images one after another.
class WrittenImages {
 public:
  WrittenImages(nb::handle array, const JpegReader& reader, size_t count, bool channels_first) {
    if (PyObject_GetBuffer(array.ptr(), &buffer_,
                           PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE) != 0) {
      throw nb::python_error();
    }
    const Shape shape(buffer_.shape, buffer_.shape + buffer_.ndim);
    const auto n = static_cast<int64_t>(count);
    const Shape wanted = channels_first ? Shape{n, 3, reader.height(), reader.width()}
                                        : Shape{n, reader.height(), reader.width(), 3};
    const std::string format = buffer_.format;
    if (shape != wanted || (format != "B" && format != "f")) {
      PyBuffer_Release(&buffer_);
      throw ValueError(message("JpegReader: images must be ", shape_string(wanted),
                               " of uint8 or float32. Received: ", shape_string(shape),
                               " of the format ", format));
    }
    dtype_ = format == "B" ? DType::UInt8 : DType::Float32;
    channels_first_ = channels_first;
    step_ = static_cast<size_t>(reader.height() * reader.width() * 3 * buffer_.itemsize);
  }
  ~WrittenImages() { PyBuffer_Release(&buffer_); }
  WrittenImages(const WrittenImages&) = delete;
  WrittenImages& operator=(const WrittenImages&) = delete;

  ImageTarget at(size_t i) const {
    return {static_cast<char*>(buffer_.buf) + i * step_, dtype_, channels_first_};
  }

 private:
  Py_buffer buffer_{};
  DType dtype_ = DType::UInt8;
  bool channels_first_ = false;
  size_t step_ = 0;
};

// True for each file that was made, False for one that is left, its size where a plan is needed.
nb::list read(const JpegReader& reader, nb::sequence files, nb::handle images, bool channels_first,
              int64_t most_pixels) {
  const nb::tuple held(files);  // keeps contents that threads read without Python's lock
  std::vector<ImageSource> sources;
  for (const nb::handle file : held) sources.push_back(image_source_of(file));
  const WrittenImages written(images, reader, sources.size(), channels_first);
  std::vector<JpegReader::Result> results(sources.size());
  {
    const Unlocked released;
    for (size_t i = 0; i < sources.size(); ++i) {
      results[i] = reader.read(sources[i], most_pixels, written.at(i));
    }
  }
  nb::list made;
  for (const JpegReader::Result& result : results) {
    if (result.outcome == JpegReader::Outcome::NeedsPlan) {
      made.append(nb::make_tuple(result.height, result.width));
    } else {
      made.append(result.outcome == JpegReader::Outcome::Made);
    }
  }
  return made;
}

}  // namespace

void bind_images(nb::module_& m) {
  m.def("resample_image", &resample, nb::arg("pixels"), nb::arg("row_indices"),
        nb::arg("row_shares"), nb::arg("column_indices"), nb::arg("column_shares"),
        nb::sig("def resample_image(pixels: object, row_indices: object, row_shares: object, "
                "column_indices: object, column_shares: object) -> Tensor"),
        "An image (height, width, channels) of uint8 as float32 in another size: the pixels that "
        "each new row and column is made of, and their shares.");
  nb::class_<JpegReader>(m, "JpegReader",
                         "Reads, decodes and resizes JPEG files, by the libjpeg of a loaded "
                         "library, for batches of images of one size.")
      .def(
          nb::new_(&make_reader), nb::arg("user"), nb::arg("height"), nb::arg("width"),
          nb::arg("small"), nb::arg("expansion"),
          "ValueError where the library `user`, a path, calls no libjpeg that is known. Files that "
          "unpack to more than `small` bytes and `expansion` times their own are left.")
      .def("add_plan", &add_plan, nb::arg("size"), nb::arg("denominator"), nb::arg("row_indices"),
           nb::arg("row_shares"), nb::arg("column_indices"), nb::arg("column_shares"),
           nb::sig("def add_plan(self, size: tuple[int, int], denominator: int, row_indices: "
                   "object, row_shares: object, column_indices: object, column_shares: object) -> "
                   "None"),
           "How files of a size (height, width) are resized, after they are decoded at a part of "
           "it.")
      .def("read", &read, nb::arg("files"), nb::arg("images"), nb::arg("channels_first"),
           nb::arg("most_pixels"),
           nb::sig("def read(self, files: collections.abc.Sequence[bytes | tuple[bytes, int, int, "
                   "int]], images: object, channels_first: bool, most_pixels: int) -> "
                   "list[bool | tuple[int, int]]"),
           "Writes an image for each file, its content or (path, offset, size, changed). True "
           "where it was made, False where the file is left, its size where a plan is needed.");
}

}  // namespace kerascnn::bindings
