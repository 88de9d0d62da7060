#include "core/backend/cuda/images/image_decoder.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/backend/cuda/images/batch_memory.h"
#include "core/backend/cuda/images/nvjpeg.h"
#include "core/backend/cuda/images/resize.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/host_staging.h"
#include "core/backend/cuda/runtime/waiting.h"
#include "core/base/ceil_div.h"
#include "core/base/error.h"

namespace kerascnn::cuda {
namespace {

// While the device works on one batch, the host prepares the next.
constexpr size_t kLanes = 2;
// A batch of larger images is decoded in parts.
constexpr int64_t kMostPixelBytes = int64_t{512} << 20;
constexpr size_t kMostFiles = 1024;
constexpr int64_t kAlignment = 256;
constexpr int64_t kLeastTableBytes = 1 << 16;

std::atomic<NvjpegLibrary*> opened_nvjpeg{nullptr};  // never closed

const NvjpegLibrary& nvjpeg_library() {
  const NvjpegLibrary* const library = opened_nvjpeg.load();
  if (library == nullptr) throw DeviceError("nvJPEG was not opened; call open_nvjpeg() first");
  return *library;
}

// One for each device. They are never destroyed: at process exit the driver may be gone before.
nvjpeg::Handle handle_of(int device) {
  static std::mutex mutex;
  static auto& handles = *new std::map<int, nvjpeg::Handle>;
  const std::lock_guard lock(mutex);
  nvjpeg::Handle& handle = handles[device];
  if (handle == nullptr) {
    // The engines for JPEG files that GPUs for servers have since the A100; else kernels.
    constexpr int kHardware = 3, kKernels = 2;
    // As libjpeg does it: the same pixels up to 1 by the engines.
    constexpr unsigned kInterpolatesChroma = 1 << 5;
    const NvjpegLibrary& library = nvjpeg_library();
    if (library.create(kHardware, nullptr, nullptr, kInterpolatesChroma, &handle) !=
        nvjpeg::kSuccess) {
      (void)cudaGetLastError();
      handle = nullptr;
      library.expect(library.create(kKernels, nullptr, nullptr, kInterpolatesChroma, &handle),
                     "nvjpegCreateEx");
    }
  }
  return handle;
}

int64_t pixel_bytes(const GpuJpeg& file) {
  return ceil_div(3 * file.height * file.width, kAlignment) * kAlignment;
}

// The resizing of a part of a batch, as one piece of memory: the images, and behind them the taps
// of each size that they have.
class ResizeTable {
 public:
  explicit ResizeTable(size_t count) : images_(count) {}

  ResizeImage& at(size_t i) { return images_[i]; }

  void set_taps(size_t i, const Resampler& resampler) {
    const auto [found, is_new] = axes_.try_emplace(&resampler);
    if (is_new) found->second = {add(resampler.rows()), add(resampler.columns())};
    images_[i].rows = found->second.first;
    images_[i].columns = found->second.second;
  }

  int64_t image_bytes() const { return static_cast<int64_t>(images_.size() * sizeof(ResizeImage)); }
  int64_t bytes() const {
    return image_bytes() + static_cast<int64_t>(words_.size() * sizeof(int32_t));
  }
  void write(void* to) const {
    std::memcpy(to, images_.data(), static_cast<size_t>(image_bytes()));
    std::memcpy(static_cast<char*>(to) + image_bytes(), words_.data(),
                words_.size() * sizeof(int32_t));
  }

 private:
  ResizeAxis add(const TapsView& taps) {
    const auto size = static_cast<size_t>(taps.size * taps.taps);
    const size_t indices = words_.size(), shares = indices + size;
    words_.resize(shares + size);
    std::memcpy(words_.data() + indices, taps.indices, size * sizeof(int32_t));
    std::memcpy(words_.data() + shares, taps.shares, size * sizeof(float));
    return {static_cast<int64_t>(indices), static_cast<int64_t>(shares), taps.taps};
  }

  std::vector<ResizeImage> images_;
  std::vector<int32_t> words_;
  std::map<const Resampler*, std::pair<ResizeAxis, ResizeAxis>> axes_;
};
static_assert(sizeof(ResizeImage) % sizeof(int32_t) == 0);

// What one batch needs at a time, kept for the next.
class Lane {
 public:
  Lane(Backend& backend, Context& context, const NvjpegLibrary& library, nvjpeg::Handle handle)
      : backend_(backend), context_(context), state_(library, handle) {}

  cudaStream_t stream() const { return stream_.get(); }

  // Decodes and resizes to the rows of a batch, whose memory is asked for when it is needed. False
  // where nvJPEG does not take one of the files.
  bool decode(std::span<const GpuJpeg> files, const ImageForm& form,
              const std::function<void*()>& batch) {
    while (!files.empty()) {
      int64_t bytes = pixel_bytes(files[0]);
      size_t count = 1;
      while (count < std::min(files.size(), kMostFiles) &&
             bytes + pixel_bytes(files[count]) <= kMostPixelBytes) {
        bytes += pixel_bytes(files[count++]);
      }
      if (!decode_part(files.first(count), bytes, form, batch)) return false;
      files = files.subspan(count);
    }
    return true;
  }

  void wait() { wait_for(stream(), kUsualPatience); }

  // Ends what is under way, and gives memory back that one huge image needed.
  void settle() noexcept {
    (void)cudaStreamSynchronize(stream());
    if (pixels_ != nullptr && pixels_->bytes() > kMostPixelBytes) pixels_.reset();
  }

 private:
  bool decode_part(std::span<const GpuJpeg> files, int64_t bytes, const ImageForm& form,
                   const std::function<void*()>& batch) {
    wait();  // nothing of the part before is in use any more
    auto* pixels = static_cast<uint8_t*>(memory(pixels_, bytes));
    std::vector<const uint8_t*> contents;
    std::vector<size_t> sizes;
    std::vector<nvjpeg::Image> images(files.size());
    ResizeTable table(files.size());
    for (size_t i = 0; i < files.size(); ++i) {
      const GpuJpeg& file = files[i];
      contents.push_back(reinterpret_cast<const uint8_t*>(file.content.data()));
      sizes.push_back(file.content.size());
      const int64_t pitch = 3 * file.width;
      images[i].channel[0] = pixels;
      images[i].pitch[0] = static_cast<size_t>(pitch);
      table.at(i).pixels = pixels;
      table.at(i).pitch = pitch;
      table.set_taps(i, *file.resampler);
      pixels += pixel_bytes(file);
    }
    if (!state_.decode(static_cast<int>(files.size()), contents.data(), sizes.data(), images.data(),
                       stream())) {
      return false;
    }
    char* const rows = static_cast<char*>(batch());
    const int64_t row_bytes = num_bytes(form.batch(1));
    for (size_t i = 0; i < files.size(); ++i) {
      table.at(i).target = rows + files[i].row * row_bytes;
    }
    resize(table, static_cast<int64_t>(files.size()), form);
    return true;
  }

  void resize(const ResizeTable& table, int64_t count, const ImageForm& form) {
    auto* there = static_cast<char*>(memory(table_, table.bytes()));
    if (!grow_host_memory(backend_, host_table_, table.bytes(), kLeastTableBytes)) {
      throw OutOfMemoryError(
          message("the system gives no ", table.bytes(),
                  " bytes of page-locked memory for decoding images on ",
                  device_name(backend_.device()), "; close other programs, or use smaller batches"),
          table.bytes(), 0, 0, 0);
    }
    table.write(host_table_->data());
    check(cudaMemcpyAsync(there, host_table_->data(), static_cast<size_t>(table.bytes()),
                          cudaMemcpyHostToDevice, stream()),
          "cudaMemcpyAsync of the table of images");
    resize_images(reinterpret_cast<const ResizeImage*>(there), count,
                  reinterpret_cast<const int32_t*>(there + table.image_bytes()), form, stream());
  }

  // The memory of a block, which grows as needed. The stream has nothing to do with it by now.
  // Nobody says on which streams nvJPEG writes, so new memory is waited for.
  void* memory(std::unique_ptr<OrderedBlock>& block, int64_t bytes) {
    if (block == nullptr || block->bytes() < bytes) {
      block.reset();
      const int64_t with_room = std::min(bytes + bytes / 8, kMostPixelBytes);
      block = std::make_unique<OrderedBlock>(backend_, context_, std::max(bytes, with_room));
      block->wait();
    }
    return block->data();
  }

  Backend& backend_;
  Context& context_;
  const Stream stream_ = make_stream();
  std::unique_ptr<OrderedBlock> pixels_, table_;
  StoragePtr host_table_;
  NvjpegState state_;
};

class NvjpegDecoder final : public GpuImageDecoder {
 public:
  NvjpegDecoder(int device, const ImageForm& form)
      : form_(form),
        backend_(backend({DeviceType::Cuda, device})),
        context_(Context::of_device(device)),
        memory_(std::make_shared<BatchMemory>(backend_, context_)) {
    backend_.activate();
    const nvjpeg::Handle handle = handle_of(device);
    for (std::unique_ptr<Lane>& lane : lanes_) {
      lane = std::make_unique<Lane>(backend_, context_, nvjpeg_library(), handle);
      free_.push_back(lane.get());
    }
  }

  ~NvjpegDecoder() override {
    // Lanes and blocks belong to the device.
    (void)cudaSetDevice(context_.index());
  }

  std::optional<Tensor> decode(int64_t rows, std::span<const GpuJpeg> files,
                               std::span<const HostImage> made) override {
    backend_.activate();
    const TensorSpec spec = form_.batch(rows);
    StoragePtr storage;  // goes after the lane, whose stream writes to it
    const LaneUse lane(*this);
    // Not before the files are decoded: that need not wait for the work that reads other batches.
    const auto batch = [&] {
      if (storage == nullptr) storage = memory_->take(num_bytes(spec), lane->stream());
      return storage->data();
    };
    if (!lane->decode(files, form_, batch)) return {};
    for (const HostImage& image : made) {
      const int64_t bytes = num_bytes(form_.batch(1));
      check(cudaMemcpyAsync(static_cast<char*>(batch()) + image.row * bytes, image.data,
                            static_cast<size_t>(bytes), cudaMemcpyHostToDevice, lane->stream()),
            "cudaMemcpyAsync of an image");
    }
    batch();  // also where there are no rows
    lane->wait();
    return Tensor(storage, spec, contiguous_strides(spec.shape));
  }

 private:
  // A lane for as long as this lives. Its stream has nothing to do afterwards.
  class LaneUse {
   public:
    explicit LaneUse(NvjpegDecoder& decoder) : decoder_(decoder) {
      std::unique_lock lock(decoder.mutex_);
      decoder.freed_.wait(lock, [&] { return !decoder.free_.empty(); });
      lane_ = decoder.free_.back();
      decoder.free_.pop_back();
    }
    ~LaneUse() {
      lane_->settle();
      {
        const std::lock_guard lock(decoder_.mutex_);
        decoder_.free_.push_back(lane_);  // has room: all lanes were in it
      }
      decoder_.freed_.notify_one();
    }
    LaneUse(const LaneUse&) = delete;
    LaneUse& operator=(const LaneUse&) = delete;

    Lane* operator->() const { return lane_; }

   private:
    NvjpegDecoder& decoder_;
    Lane* lane_;
  };

  const ImageForm form_;
  Backend& backend_;
  Context& context_;
  const std::shared_ptr<BatchMemory> memory_;
  std::array<std::unique_ptr<Lane>, kLanes> lanes_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<Lane*> free_;
};

class NvjpegImages final : public GpuImages {
 public:
  std::string open(const std::string& library) override {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (opened_nvjpeg.load() == nullptr) opened_nvjpeg = new NvjpegLibrary(library);
    return nvjpeg_library().version();
  }

  std::shared_ptr<GpuImageDecoder> make_decoder(int device, const ImageForm& form) override {
    return std::make_shared<NvjpegDecoder>(device, form);
  }
};

}  // namespace

GpuImages& gpu_images() {
  static auto& images = *new NvjpegImages;
  return images;
}

}  // namespace kerascnn::cuda

extern "C" __attribute__((visibility("default"))) kerascnn::GpuImages* kerascnn_cuda_images() {
  return &kerascnn::cuda::gpu_images();
}
