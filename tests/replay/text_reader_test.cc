#include "allocator/replay/text_reader.h"

#include <zstd.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trace/temporary_directory.h"

namespace offcut {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Compress(const std::string& text) {
  std::string compressed(ZSTD_compressBound(text.size()), '\0');
  compressed.resize(
      ZSTD_compress(compressed.data(), compressed.size(), text.data(), text.size(), 1));
  return compressed;
}

class TextReaderTest : public testing::Test {
 protected:
  absl::StatusOr<std::vector<std::string>> Lines(const std::string& bytes) {
    const std::string path = directory_.File("text");
    WriteFile(path, bytes);
    absl::StatusOr<std::unique_ptr<TextReader>> reader = TextReader::Open(path);
    if (!reader.ok()) return reader.status();
    std::vector<std::string> lines;
    while (true) {
      absl::string_view line;
      const absl::StatusOr<bool> more = (*reader)->NextLine(&line);
      if (!more.ok()) return more.status();
      if (!*more) return lines;
      lines.emplace_back(line);
      EXPECT_EQ((*reader)->line_number(), lines.size());
    }
  }

  TemporaryDirectory directory_;
};

TEST_F(TextReaderTest, SplitsLinesWithEitherEnd) {
  EXPECT_THAT(*Lines("a\nbc\r\n\nd\n"), ElementsAre("a", "bc", "", "d"));
  EXPECT_THAT(*Lines("a\nno end"), ElementsAre("a", "no end"));
  EXPECT_THAT(*Lines(""), ElementsAre());
}

TEST_F(TextReaderTest, ReadsCompressedTextOfAnyNumberOfFrames) {
  EXPECT_THAT(*Lines(Compress("a\nb") + Compress("c\nd\n")), ElementsAre("a", "bc", "d"));
}

TEST_F(TextReaderTest, LinesAcrossPiecesAreWhole) {
  std::string text;
  std::vector<std::string> expected;
  for (int i = 0; i < 100'000; ++i) {
    expected.push_back(absl::StrCat("line ", i, std::string(i % 97, '.')));
    absl::StrAppend(&text, expected.back(), "\n");
  }
  EXPECT_EQ(*Lines(text), expected);
  EXPECT_EQ(*Lines(Compress(text)), expected);
}

TEST_F(TextReaderTest, AnEndlessLineIsAnErrorThatSaysWhere) {
  const absl::Status status = Lines("a\n" + std::string(1 << 20, 'x')).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("text:2: more than 4096 bytes"));
  EXPECT_FALSE(Lines("a\n" + std::string(TextReader::kLineMax + 1, 'x') + "\n").ok());
  EXPECT_TRUE(Lines("a\n" + std::string(TextReader::kLineMax, 'x') + "\n").ok());
}

TEST_F(TextReaderTest, ACompressedTextThatIsCutIsAnErrorWhereverItIs) {
  const std::string compressed = Compress("some text\nof two lines\n");
  for (size_t size = 4; size < compressed.size(); ++size) {
    EXPECT_EQ(Lines(compressed.substr(0, size)).status().code(), absl::StatusCode::kDataLoss)
        << size;
  }
}

TEST_F(TextReaderTest, DamagedCompressionIsAnErrorOrOtherTextAndNeverWorse) {
  const std::string compressed = Compress("0,alloc,0x7fe3ca000000,196608000,0\n0,alloc\n");
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    std::string damaged = compressed;
    for (int flips = 0; flips < 3; ++flips) {
      damaged[random() % damaged.size()] ^= static_cast<char>(1 << (random() % 8));
    }
    const auto lines = Lines(damaged);
    if (lines.ok()) continue;
    EXPECT_THAT(std::string(lines.status().message()), HasSubstr("/text"));
  }
}

TEST_F(TextReaderTest, WhatIsNoFileIsAnErrorThatNamesIt) {
  EXPECT_EQ(TextReader::Open(directory_.File("absent")).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_FALSE(TextReader::Open(directory_.path()).ok());
}

}  // namespace
}  // namespace offcut
