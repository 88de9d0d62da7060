// The public interface for inference, on a file that is written here, and what it refuses.
#include <algorithm>
#include <iterator>
#include <thread>

#include "check.h"
#include "core/inference/json.h"
#include "kerascnn/inference.h"
#include "temporary_folder.h"

namespace kerascnn {
namespace {

using inference::Json;
using inference::parse_json;
using testing::put_content;
using testing::TemporaryFolder;

// y = x * w + c for x of the shape (batch, 2).
constexpr const char* kGraph = R"({
  "version": 1, "axes": [{"name": "batch", "example": 2}],
  "inputs": [{"name": "x", "dtype": "float32", "shape": [{"size": [[1, 0]]}, 2]}],
  "outputs": [{"name": "y", "dtype": "float32", "shape": [{"size": [[1, 0]]}, 2]}],
  "graph": {
    "values": [{"weight": "w"}, {"constant": "c"}],
    "nodes": [{"op": "multiply", "inputs": [0, 1], "outputs": 1, "layer": "scale"},
              {"op": "add", "inputs": [3, 2], "outputs": 1, "attributes": {}}],
    "outputs": [4]}})";

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result + '"';
}

std::string replaced(std::string text, const std::string& old, const std::string& by) {
  const size_t at = text.find(old);
  CHECK(at != std::string::npos);
  return text.replace(at, old.size(), by);
}

// A file with the graph, w = (2, 3) and c = 1.
std::string file_of(const std::string& graph, const std::string& shape_of_w = "[2]") {
  std::string header = "{\"__metadata__\": {\"graph\": " + quoted(graph) +
                       "}, \"w\": {\"dtype\": \"F32\", \"shape\": " + shape_of_w +
                       ", \"data_offsets\": [0, 8]}, \"c\": {\"dtype\": \"F32\", \"shape\": [], "
                       "\"data_offsets\": [8, 12]}}";
  std::string file;
  for (size_t i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 255);
  const float numbers[] = {2, 3, 1};
  return file + header + std::string(reinterpret_cast<const char*>(numbers), sizeof(numbers));
}

struct SavedModel {
  TemporaryFolder folder;
  std::string path = folder.path + "/model.safetensors";

  explicit SavedModel(const std::string& content) { put_content(path, content); }
  Model load() const { return Model::load(path); }
};

TEST(a_file_is_loaded_and_predicts) {
  const SavedModel saved(file_of(kGraph));
  const Model model = saved.load();
  CHECK_EQUAL(model.device(), "cpu");
  CHECK_EQUAL(model.inputs().size(), size_t{1});
  CHECK_EQUAL(model.inputs()[0].name, "x");
  CHECK(model.inputs()[0].shape == (std::vector<int64_t>{kOpenSize, 2}));
  CHECK(model.outputs()[0].dtype == DType::Float32);
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};
  for (const int64_t batch_size : {32, 2, 1}) {
    const std::vector<Array> outputs = model.predict({{x, {3, 2}}}, batch_size);
    CHECK_EQUAL(outputs.size(), size_t{1});
    CHECK(outputs[0].shape() == (std::vector<int64_t>{3, 2}));
    const float* y = outputs[0].data<float>();
    for (int i = 0; i < 6; ++i) CHECK_EQUAL(y[i], x[i] * static_cast<float>(2 + i % 2) + 1);
  }
  const uint8_t pixels[] = {3, 5};
  const std::vector<Array> outputs = model.predict({{pixels, {1, 2}}});
  CHECK_EQUAL(outputs[0].data<float>()[1], 16.0f);
  CHECK_EQUAL(model.predict({{x.data(), {0, 2}}})[0].size(), 0);
}

TEST(arrays_that_do_not_fit_are_named) {
  const SavedModel saved(file_of(kGraph));
  const Model model = saved.load();
  const std::vector<float> x(6);
  CHECK_THROWS(ValueError, "the model has 1 inputs, received 0", model.predict({}));
  CHECK_THROWS(ValueError, "input \"x\" has the shape (?, 2), received (2, 3)",
               model.predict({{x, {2, 3}}}));
  CHECK_THROWS(ValueError, "received (6,)", model.predict({{x, {6}}}));
  CHECK_THROWS(ValueError, "has 8 elements, received 6", ArrayView(x, {4, 2}));
  CHECK_THROWS(ValueError, "has no memory", model.predict({{nullptr, DType::Float32, {1, 2}}}));
  CHECK_THROWS(ValueError, "not valid", model.predict({{x.data(), {-1, 2}}}));
  CHECK_THROWS(ValueError, "batch_size", model.predict({{x, {3, 2}}}, 0));
  const std::vector<Array> outputs = model.predict({{x, {3, 2}}});
  CHECK_THROWS(TypeError, "float32, and not float64", outputs[0].data<double>());
  CHECK_THROWS(ValueError, "tpu", Model::load(saved.path, "tpu"));
}

TEST(threads_take_turns) {
  const SavedModel saved(file_of(kGraph));
  const Model model = saved.load();
  std::vector<int> wrong(4, 1);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      const std::vector<float> x(2 * (i + 1), static_cast<float>(i));
      int found = 0;
      for (int run = 0; run < 50; ++run) {
        const auto y = model.predict({{x, {static_cast<int64_t>(i) + 1, 2}}}, 2);
        found += y[0].data<float>()[2 * i] != 2 * static_cast<float>(i) + 1;
      }
      wrong[i] = found;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST(files_that_are_damaged_say_where) {
  const std::string good = file_of(kGraph);
  const auto refused = [](const std::string& content, const std::string& part) {
    const SavedModel saved(content);
    CHECK_THROWS(ValueError, part, saved.load());
  };
  const auto refused_graph = [&](const char* old, const char* by, const std::string& part) {
    refused(file_of(replaced(kGraph, old, by)), part);
  };
  CHECK_THROWS(Error, "No such file", Model::load("/nowhere/model.safetensors"));
  CHECK_THROWS(Error, "no file", Model::load("/"));
  refused("", "is no safetensors file");
  refused(good.substr(0, good.size() - 1), "array \"c\"");
  refused(file_of(kGraph, "[3]"), "array \"w\": it should take 12 bytes");
  refused(file_of(kGraph, "[9223372036854775807]"), "array \"w\"");
  refused(replaced(good, "[8, 12]", "[4, 8] "), "arrays share bytes");
  refused(replaced(good, "\"graph\"", "\"other\""), "include_graph=True");
  refused(file_of("[1"), "no end of a list");
  refused_graph("\"version\": 1", "\"version\": 2", "version 2");
  refused_graph("\"add\"", "\"ad\"", "nodes[1]: ");
  refused_graph("\"add\"", "\"custom_op\"", "the op custom_op can't be in a file");
  refused_graph("[3, 2]", "[3, 5]", "nodes[1]: inputs: there is no number 5 of 4");
  refused_graph("[3, 2]", "[3, -1]", "there is no number -1 of 4");
  refused_graph("[3, 2]", "[3]", "add");
  refused_graph("[4]", "[3, 4]", "another number of outputs");
  refused_graph("\"outputs\": 1, \"layer\"", "\"outputs\": 2, \"layer\"", "multiply: it has 1");
  refused_graph("\"weight\": \"w\"", "\"weight\": \"v\"", "no array \"v\"");
  refused_graph("[[1, 0]]}, 2]}],\n  \"outputs\"", "[[1, 1]]}, 2]}],\n  \"outputs\"",
                "there is no number 1 of 1");
  refused_graph("[[1, 0]]}, 2]}],\n  \"outputs\"", "[[2, 0]]}, 2]}],\n  \"outputs\"",
                "not an axis' own");
  refused_graph("\"example\": 2", "\"example\": -2", "not valid");
}

// Numbers, so that the same files are made everywhere.
struct Draws {
  uint64_t state;

  size_t below(size_t end) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>(state >> 33) % end;
  }
};

// Puts another piece in place of a piece of the text: of itself, or what a reader may trip over.
std::string mutated(std::string text, Draws& draws) {
  constexpr const char* kPieces[] = {
      "0",          "1",          "-1",          "2",
      "65",         "4294967296", "1e3",         "9223372036854775807",
      "null",       "[]",         "{}",          "[[1, 0, 0]]",
      "[9]",        "\"x\"",      "true",        "{\"size\": [[3, 0]]}",
      "\"conv2d\"", "\"loop\"",   "\"reshape\"", "{\"bodies\": []}",
      "\"full\"",   "\"range\"",  "\"int8\"",    "{\"number\": \"inf\"}",
      ",",          "\"",         "\\u12",       "\xff"};
  for (size_t count = 1 + draws.below(4) / 2; count > 0; --count) {
    const size_t at = draws.below(text.size());
    // Mostly whole numbers for numbers, so that readers get far.
    const bool is_number = draws.below(4) > 0;
    const size_t first = text.find_first_of(is_number ? "0123456789" : "[{\"t", at);
    if (first == std::string::npos) continue;
    const size_t end = std::min(text.find_first_of(",]}:", first + 1), text.size());
    const std::string piece = draws.below(3) > 0
                                  ? kPieces[draws.below(is_number ? 8 : std::size(kPieces))]
                                  : text.substr(draws.below(text.size()), 1 + draws.below(12));
    text.replace(first, draws.below(8) > 0 ? end - first : draws.below(30), piece);
    if (text.empty()) return text;
  }
  return text;
}

TEST(mutated_files_are_errors_or_models) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/model.safetensors";
  Draws draws{1};
  int num_read = 0, num_refused = 0;
  const std::vector<float> x(64);
  for (int number = 0; number < 3000; ++number) {
    std::string content = file_of(number % 4 > 0 ? mutated(kGraph, draws) : kGraph);
    if (number % 4 == 0) content[draws.below(content.size())] ^= 1 << draws.below(8);
    put_content(path, content);
    try {
      const Model model = Model::load(path);
      ++num_read;
      const std::vector<int64_t> shape = {kOpenSize, 2};  // others may take any memory
      if (model.inputs()[0].shape != shape || model.outputs()[0].shape != shape) continue;
      model.predict({{x.data(), {4, 2}}}, 3);
    } catch (const Error& error) {
      CHECK(std::string(error.what()).size() > 10);
      ++num_refused;
    }
  }
  CHECK(num_read > 100 && num_refused > 1000);
}

TEST(json_is_read) {
  const Json json =
      parse_json(R"( {"a": [1, -2.5e1, true, null, "x\n\u00e9\ud83d\ude00"], "b": {}, "c": -0} )");
  const auto& list = json.at("a").list();
  CHECK_EQUAL(list[0].whole(), 1);
  CHECK_EQUAL(list[1].number(), -25.0);
  CHECK(list[2].boolean() && list[3].is_null());
  CHECK_EQUAL(list[4].text(), "x\n\xc3\xa9\xf0\x9f\x98\x80");
  CHECK(json.at("b").map().empty() && json.find("d") == nullptr);
  CHECK_THROWS(ValueError, "no \"d\"", json.at("d"));
  CHECK_THROWS(ValueError, "expected a whole number, found a number", list[1].whole());
}

TEST(json_that_is_none_is_refused) {
  for (const char* text : {"",
                           "nul",
                           "[1,]",
                           "[1 2]",
                           "{\"a\" 1}",
                           "{\"a\": 1,}",
                           "{1: 2}",
                           "{\"a\": 1, \"a\": 2}",
                           "01",
                           "-",
                           "1.",
                           "1e",
                           "+1",
                           ".5",
                           "1e999",
                           "9223372036854775808",
                           "NaN",
                           "\"",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\ud800\"",
                           "\"\\ud800\\u0041\"",
                           "\"\\u+123\"",
                           "\"\n\"",
                           "1 2",
                           "[",
                           "{\"a\":"}) {
    CHECK_THROWS(ValueError, "JSON: ", parse_json(text));
  }
  const auto nested = [](int levels) {
    return parse_json(std::string(levels, '[') + std::string(levels, ']'));
  };
  nested(inference::kMaxJsonDepth);
  CHECK_THROWS(ValueError, "levels", nested(inference::kMaxJsonDepth + 2));
  CHECK_THROWS(ValueError, "levels", nested(1'000'000));
  std::string many = "[0";
  for (size_t i = 0; i < inference::kMaxJsonValues; ++i) many += ",0";
  CHECK_THROWS(ValueError, "values", parse_json(many + "]"));
}

}  // namespace
}  // namespace kerascnn
