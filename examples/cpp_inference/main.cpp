// Classifies images of MNIST's file format with a model from Python: classify MODEL IMAGES [DEVICE]
#include <kerascnn/inference.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <stdexcept>

struct Images {
  std::vector<int64_t> shape;  // (count, rows, columns, 1)
  std::vector<uint8_t> pixels;
};

// An unpacked IDX file: 2051, count, rows and columns in 4 bytes each, the first ones first.
Images read_images(const char* path) {
  std::ifstream file(path, std::ios::binary);
  int64_t numbers[4] = {};
  for (int64_t& number : numbers) {
    for (int i = 0; i < 4; ++i) number = number << 8 | (file.get() & 255);
  }
  Images images{{numbers[1], numbers[2], numbers[3], 1}, {}};
  images.pixels.assign(std::istreambuf_iterator<char>(file), {});
  if (numbers[0] != 2051) throw std::runtime_error("this is no file of images");
  return images;
}

int main(int argc, char** argv) try {
  if (argc < 3) throw std::runtime_error("usage: classify MODEL IMAGES [DEVICE]");
  const auto model = kerascnn::Model::load(argv[1], argc > 3 ? argv[3] : "cpu");
  const Images images = read_images(argv[2]);
  const auto outputs = model.predict({{images.pixels, images.shape}});
  const int64_t classes = outputs[0].shape()[1];
  const float* row = outputs[0].data<float>();
  for (int64_t image = 0; image < images.shape[0]; ++image, row += classes) {
    const float* best = std::max_element(row, row + classes);
    std::printf("image %d: class %d, probability %.4f\n", int(image), int(best - row), *best);
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "classify: %s\n", error.what());
  return 1;
}
