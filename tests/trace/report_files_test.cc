#include "allocator/trace/report_files.h"

#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trace/temporary_directory.h"

namespace offcut {
namespace {

size_t CountFiles(const std::string& directory) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory), {}));
}

TEST(ReportFilesTest, WritesFilesThatAreTheUsersAlone) {
  const TemporaryDirectory directory;
  ReportFiles files(directory.path());
  const auto path = files.Save("why\n");
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*path, directory.File("out-of-memory-1.txt"));
  EXPECT_EQ(ReadFile(*path), "why\n");
  struct stat status;
  ASSERT_EQ(stat(path->c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST(ReportFilesTest, KeepsTheFirstAndTheLatest) {
  const TemporaryDirectory directory;
  ReportFiles files(directory.path());
  std::vector<std::string> paths;
  for (int i = 0; i < 1000; ++i) paths.push_back(*files.Save(std::to_string(i)));
  EXPECT_EQ(CountFiles(directory.path()), ReportFiles::kFirst + ReportFiles::kLatest);
  for (size_t i = 0; i < ReportFiles::kFirst; ++i) EXPECT_EQ(ReadFile(paths[i]), std::to_string(i));
  for (size_t i = 1000 - ReportFiles::kLatest; i < 1000; ++i) {
    EXPECT_EQ(ReadFile(paths[i]), std::to_string(i));
  }
}

TEST(ReportFilesTest, ManyThreadsAtOnceLeaveWholeFiles) {
  const TemporaryDirectory directory;
  ReportFiles files(directory.path());
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&files, i] {
      for (int j = 0; j < 50; ++j) {
        EXPECT_TRUE(files.Save(std::string(5000, static_cast<char>('a' + i))).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    ++count;
    const std::string text = ReadFile(entry.path());
    EXPECT_EQ(text.size(), 5000u);
    EXPECT_EQ(std::set<char>(text.begin(), text.end()).size(), 1u);
  }
  EXPECT_EQ(count, ReportFiles::kFirst + ReportFiles::kLatest);
}

TEST(ReportFilesTest, WhereItCannotWriteItSaysSoAndLeavesNothing) {
  ReportFiles files("/nowhere/at/all");
  const auto path = files.Save("why");
  ASSERT_FALSE(path.ok());
  EXPECT_THAT(std::string(path.status().message()),
              ::testing::HasSubstr("/nowhere/at/all/out-of-memory-1.partial"));
}

}  // namespace
}  // namespace offcut
