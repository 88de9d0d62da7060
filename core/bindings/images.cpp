#include <algorithm>
#include <mutex>

#include "core/base/ceil_div.h"
#include "core/base/error.h"
#include "core/bindings/bindings.h"
#include "core/bindings/host_array.h"
#include "core/images/gpu_reader.h"
#include "core/images/jpeg_reader.h"
#include "core/images/plain_jpeg.h"
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

template <typename Reader>
void add_plan(Reader& reader, std::pair<int64_t, int64_t> size, int denominator,
              nb::handle row_indices, nb::handle row_shares, nb::handle column_indices,
              nb::handle column_shares) {
  const TapArrays taps{HostArray(row_indices), HostArray(row_shares), HostArray(column_indices),
                       HostArray(column_shares)};
  if (denominator != 1 && denominator != 2 && denominator != 4 && denominator != 8) {
    throw ValueError(
        message("add_plan: `denominator` must be 1, 2, 4 or 8. Received: ", denominator));
  }
  const int64_t height = ceil_div(size.first, denominator);
  const int64_t width = ceil_div(size.second, denominator);
  reader.add_plan(
      size.first, size.second,
      {denominator, height, width, Resampler(taps.rows(), taps.columns(), height, width)});
}

template <typename Reader>
void bind_add_plan(nb::class_<Reader>& reader, const char* doc) {
  reader.def("add_plan", &add_plan<Reader>, nb::arg("size"), nb::arg("denominator"),
             nb::arg("row_indices"), nb::arg("row_shares"), nb::arg("column_indices"),
             nb::arg("column_shares"),
             nb::sig("def add_plan(self, size: tuple[int, int], denominator: int, row_indices: "
                     "object, row_shares: object, column_indices: object, column_shares: object) "
                     "-> None"),
             doc);
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
template <typename Result, typename Outcome>
nb::list outcomes(const std::vector<Result>& results, Outcome needs_plan, Outcome made) {
  nb::list list;
  for (const Result& result : results) {
    if (result.outcome == needs_plan) {
      list.append(nb::make_tuple(result.height, result.width));
    } else {
      list.append(result.outcome == made);
    }
  }
  return list;
}

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
  return outcomes(results, JpegReader::Outcome::NeedsPlan, JpegReader::Outcome::Made);
}

// On GPUs -----------------------------------------------------------------------------------------

nb::object plain_size(const nb::bytes& content) {
  const std::optional<PlainJpeg> file = plain_jpeg({content.c_str(), content.size()});
  if (!file.has_value()) return nb::none();
  return nb::make_tuple(file->height, file->width, file->content.size());
}

std::string open_nvjpeg(const std::string& library) { return gpu_images().open(library); }

std::shared_ptr<GpuJpegReader> make_gpu_reader(int device, int64_t height, int64_t width,
                                               const std::string& dtype, bool channels_first,
                                               int64_t small, int64_t expansion) {
  const ImageForm form{height, width, dtype_from_name(dtype), channels_first};
  const bool has_dtype = form.dtype == DType::UInt8 || form.dtype == DType::Float32;
  constexpr int64_t kMostPixels = 1 << 16;
  if (!has_dtype || std::min(height, width) < 1 || std::max(height, width) > kMostPixels) {
    throw ValueError(message("GpuJpegReader: images must be uint8 or float32 of 1 to ", kMostPixels,
                             " pixels each way. Received: ", dtype, " of ", height, " x ", width));
  }
  return std::make_shared<GpuJpegReader>(gpu_images().make_decoder(device, form), form,
                                         UnpackLimits{small, expansion});
}

nb::list read_for_gpu(GpuImageBatch& batch, nb::sequence files, int64_t first,
                      int64_t most_pixels) {
  const nb::tuple held(files);
  std::vector<ImageSource> sources;
  for (const nb::handle file : held) sources.push_back(image_source_of(file));
  std::vector<GpuImageBatch::Result> results(sources.size());
  {
    const Unlocked released;
    for (size_t i = 0; i < sources.size(); ++i) {
      results[i] = batch.read(first + static_cast<int64_t>(i), sources[i], most_pixels);
    }
  }
  return outcomes(results, GpuImageBatch::Outcome::NeedsPlan, GpuImageBatch::Outcome::Taken);
}

void put_image(GpuImageBatch& batch, int64_t row, nb::handle image) {
  const HostArray array(image);
  const Unlocked released;
  batch.put(row, array.lent());
}

void bind_gpu_images(nb::module_& m) {
  m.def("plain_jpeg", &plain_size, nb::arg("content"),
        nb::sig("def plain_jpeg(content: bytes) -> tuple[int, int, int] | None"),
        "Height, width and length of a JPEG file that a GPU may decode, or None: what is not "
        "baseline, in grey or YCbCr, whole and without contradictions.");
  m.def("open_nvjpeg", &open_nvjpeg, nb::arg("library"), nb::call_guard<Unlocked>(),
        "Opens nvJPEG, a file or a name that the system finds, and returns its version. "
        "DeviceError where there is no GPU, LibraryError with the remedy where there is no such "
        "library.");
  nb::class_<GpuJpegReader> reader(
      m, "GpuJpegReader",
      "Makes batches of images of one size, of JPEG files that a GPU decodes "
      "and resizes, by nvJPEG, which was opened before.");
  reader.def(nb::new_(&make_gpu_reader), nb::arg("device"), nb::arg("height"), nb::arg("width"),
             nb::arg("dtype"), nb::arg("channels_first"), nb::arg("small"), nb::arg("expansion"),
             nb::call_guard<Unlocked>(),
             "For the GPU of this number. Files that unpack to more than `small` bytes and "
             "`expansion` times their own are left.");
  bind_add_plan(reader, "How files of a size (height, width) are resized; the denominator is 1.");
  nb::class_<GpuImageBatch>(m, "GpuImageBatch",
                            "A batch in the making: threads fill rows, one decodes them.")
      .def(nb::init<std::shared_ptr<GpuJpegReader>, int64_t>(), nb::arg("reader"), nb::arg("rows"))
      .def("read", &read_for_gpu, nb::arg("files"), nb::arg("first"), nb::arg("most_pixels"),
           nb::sig("def read(self, files: collections.abc.Sequence[bytes | tuple[bytes, int, int, "
                   "int]], first: int, most_pixels: int) -> list[bool | tuple[int, int]]"),
           "Reads files for the rows from `first` on, each its content or (path, offset, size, "
           "changed). True where the GPU will decode it, False where it is left to others, its "
           "size where a plan is needed.")
      .def("put", &put_image, nb::arg("row"), nb::arg("image"),
           nb::sig("def put(self, row: int, image: object) -> None"),
           "Copies an image that is made already.")
      .def("decode", &GpuImageBatch::decode, nb::call_guard<Unlocked>(),
           nb::sig("def decode(self) -> Tensor | None"),
           "The rows that have a file or an image, on the GPU, done. None where nvJPEG does not "
           "take one of the files: all of them have to be made by others then.");
}

}  // namespace

void bind_images(nb::module_& m) {
  m.def("resample_image", &resample, nb::arg("pixels"), nb::arg("row_indices"),
        nb::arg("row_shares"), nb::arg("column_indices"), nb::arg("column_shares"),
        nb::sig("def resample_image(pixels: object, row_indices: object, row_shares: object, "
                "column_indices: object, column_shares: object) -> Tensor"),
        "An image (height, width, channels) of uint8 as float32 in another size: the pixels that "
        "each new row and column is made of, and their shares.");
  nb::class_<JpegReader> reader(m, "JpegReader",
                                "Reads, decodes and resizes JPEG files, by the libjpeg of a loaded "
                                "library, for batches of images of one size.");
  reader.def(
      nb::new_(&make_reader), nb::arg("user"), nb::arg("height"), nb::arg("width"),
      nb::arg("small"), nb::arg("expansion"),
      "ValueError where the library `user`, a path, calls no libjpeg that is known. Files that "
      "unpack to more than `small` bytes and `expansion` times their own are left.");
  bind_add_plan(reader,
                "How files of a size (height, width) are resized, after they are decoded at a part "
                "of it.");
  reader.def(
      "read", &read, nb::arg("files"), nb::arg("images"), nb::arg("channels_first"),
      nb::arg("most_pixels"),
      nb::sig("def read(self, files: collections.abc.Sequence[bytes | tuple[bytes, int, int, "
              "int]], images: object, channels_first: bool, most_pixels: int) -> "
              "list[bool | tuple[int, int]]"),
      "Writes an image for each file, its content or (path, offset, size, changed). True "
      "where it was made, False where the file is left, its size where a plan is needed.");
  bind_gpu_images(m);
}

}  // namespace kerascnn::bindings
