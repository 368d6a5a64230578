// A directory for one test, removed with all that is in it.

#ifndef OFFCUT_TESTS_TRACE_TEMPORARY_DIRECTORY_H_
#define OFFCUT_TESTS_TRACE_TEMPORARY_DIRECTORY_H_

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace offcut {

class TemporaryDirectory {
 public:
  TemporaryDirectory() : path_(::testing::TempDir() + "offcut-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "cannot create " << path_;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string File(absl::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline void WriteFile(const std::string& path, absl::string_view bytes) {
  // Anew: closing a file that was cut to nothing before makes ext4 wait for the disk.
  std::filesystem::remove(path);
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  EXPECT_TRUE(file.good()) << path;
}

}  // namespace offcut

#endif  // OFFCUT_TESTS_TRACE_TEMPORARY_DIRECTORY_H_
