// Files that several processes read and write, and the hash that gives them their names.
#include <sys/stat.h>

#include <chrono>
#include <thread>
#include <vector>

#include "check.h"
#include "core/base/files.h"
#include "core/base/sha256.h"
#include "temporary_folder.h"

namespace kerascnn {
namespace {

namespace fs = std::filesystem;
using testing::content_of;
using testing::put_content;
using testing::TemporaryFolder;

constexpr size_t kMost = 1000;

}  // namespace

// The digests are the examples of FIPS 180-4, and those of Python's hashlib for lengths around the
// end of a block.
TEST(sha256_is_the_standard_one) {
  CHECK_EQUAL(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK_EQUAL(hex(sha256("abc")),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK_EQUAL(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK_EQUAL(hex(sha256(std::string(1000000, 'a'))),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  std::string all;
  for (size_t length = 0; length < 200; ++length) {
    const Digest digest = sha256(std::string(length, static_cast<char>(length)));
    all += std::string(digest.begin(), digest.end());
  }
  CHECK_EQUAL(hex(sha256(all)), "6f979b0f53f1f6efc88ce8829b3e9c0d7711e102a3cfe31394c5d6c3232047ad");
}

TEST(own_files_are_below_the_home_folder) {
  CHECK_EQUAL(home_folder("/data/own", "/home/me"), "/data/own");
  CHECK_EQUAL(home_folder("~/own", "/home/me"), "/home/me/own");
  CHECK_EQUAL(fs::path(home_folder("~", "/home/me")) / "x", "/home/me/x");
  CHECK_EQUAL(home_folder("", "/home/me"), "/home/me/.kerascnn");
  CHECK_EQUAL(home_folder("", ""), "");
  CHECK_EQUAL(home_folder("~/own", ""), "");
  CHECK_EQUAL(home_folder("/data/own", ""), "/data/own");
}

TEST(files_are_written_as_a_whole) {
  const TemporaryFolder folder;
  const fs::path path = fs::path(folder.path) / "new" / "folder" / "file";
  const std::string bytes("a\0b\xff\n", 5);
  CHECK_EQUAL(write_file(path, bytes), "");
  CHECK_EQUAL(read_file(path, kMost).value(), bytes);
  CHECK_EQUAL(write_file(path, ""), "");
  CHECK_EQUAL(read_file(path, kMost).value(), "");
  CHECK_EQUAL(std::distance(fs::directory_iterator(path.parent_path()), {}), 1);
}

TEST(what_is_no_plain_file_is_not_read) {
  const TemporaryFolder folder;
  const fs::path path = fs::path(folder.path) / "file";
  CHECK(!read_file(path, kMost));
  CHECK(!read_file(folder.path, kMost));
  CHECK_EQUAL(mkfifo(path.c_str(), 0600), 0);  // opening it would wait for a writer
  CHECK(!read_file(path, kMost));
  fs::remove(path);
  put_content(path, std::string(kMost + 1, 'x'));
  CHECK(!read_file(path, kMost));
  CHECK(read_file(path, kMost + 1).has_value());
}

TEST(what_can_not_be_written_is_said_and_leaves_nothing) {
  const TemporaryFolder folder;
  const fs::path file = fs::path(folder.path) / "file";
  put_content(file, "old");
  CHECK(!write_file(file / "below", "new").empty());  // a file can't hold another file
  const fs::path taken = fs::path(folder.path) / "taken";
  fs::create_directories(taken / "inside");
  CHECK(!write_file(taken, "new").empty());
  CHECK_EQUAL(folder.num_files(), 2);
  CHECK_EQUAL(content_of(file), "old");
}

TEST(reading_can_mark_a_file_as_used) {
  const TemporaryFolder folder;
  const fs::path path = fs::path(folder.path) / "file";
  put_content(path, "x");
  const fs::file_time_type old = fs::file_time_type::clock::now() - std::chrono::hours(24);
  fs::last_write_time(path, old);
  const fs::file_time_type before = fs::last_write_time(path);
  CHECK(read_file(path, kMost).has_value());
  CHECK(fs::last_write_time(path) == before);
  CHECK(read_file(path, kMost, true).has_value());
  CHECK(fs::last_write_time(path) > before + std::chrono::hours(23));
}

// Each file holds the letter of one thread many times.
TEST(readers_meet_whole_files_while_others_write) {
  const TemporaryFolder folder;
  const fs::path path = fs::path(folder.path) / "file";
  constexpr size_t kBytes = 20000;
  CHECK_EQUAL(write_file(path, std::string(kBytes, 'a')), "");
  std::vector<std::thread> writers;
  for (const char letter : {'b', 'c', 'd'}) {
    writers.emplace_back([&path, letter] {
      for (int i = 0; i < 50; ++i) (void)write_file(path, std::string(kBytes, letter));
    });
  }
  bool is_whole = true;
  for (int i = 0; i < 200; ++i) {
    const auto bytes = read_file(path, kBytes);
    is_whole = is_whole && bytes && *bytes == std::string(kBytes, bytes->front());
  }
  for (std::thread& writer : writers) writer.join();
  CHECK(is_whole);
  CHECK_EQUAL(folder.num_files(), 1);
}

}  // namespace kerascnn
