// SPDX-License-Identifier: Apache-2.0
// The native side of bench/text/encode_race.py and ids_equal.py: loads one tokenizer and obeys
// lines on standard input, answering each with one line.
//
//   docs FILE         cut FILE into documents of about 8 KB at line ends     → number of documents
//   whole FILE        one document: all of FILE                              → 1
//   time BEGIN END    encode these documents one after the other, once      → bytes ns ids,
//                     in processor time
//   encode IN OUT     texts (u32 length, bytes)* to ids (u32 count, u32*)*   → number of texts
//
// Usage: stator_encode_driver_bench TOKENIZER_JSON   (prints the load time in ns first)
#include "stator/core/assert.h"
#include "stator/core/clock.h"
#include "stator/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

namespace stator::tokenizer {
namespace {

constexpr size_t kDocumentBytes = 8192;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  STATOR_ASSERT(file.is_open(), "the input file exists");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::vector<std::string> cut_documents(const std::string& text) {
  std::vector<std::string> documents;
  for (size_t at = 0; at < text.size();) {
    const size_t line_end = text.find('\n', std::min(at + kDocumentBytes, text.size()));
    const size_t end = line_end == std::string::npos ? text.size() : line_end + 1;
    documents.push_back(text.substr(at, end - at));
    at = end;
  }
  return documents;
}

void answer(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

/// Processor time of the process.
int64_t cpu_ns() {
  return int64_t{std::clock()} * (1'000'000'000 / CLOCKS_PER_SEC);
}

class Driver {
 public:
  explicit Driver(const std::string& path) {
    const std::string json = read_file(path);
    const auto begin = clock_.now();
    auto tokenizer = Tokenizer::from_json(json);
    const auto end = clock_.now();
    STATOR_ASSERT(tokenizer.has_value(), "the tokenizer loads");
    tokenizer_ = *std::move(tokenizer);
    answer(std::to_string((end - begin).count()));
  }

  void obey(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "docs" || command == "whole") {
      std::string path;
      words >> path;
      const std::string text = read_file(path);
      documents_ = command == "docs" ? cut_documents(text) : std::vector{text};
      answer(std::to_string(documents_.size()));
    } else if (command == "time") {
      size_t begin = 0;
      size_t end = 0;
      words >> begin >> end;
      time(begin, std::min(end, documents_.size()));
    } else if (command == "encode") {
      std::string in;
      std::string out;
      words >> in >> out;
      encode_file(in, out);
    }
  }

 private:
  void time(size_t begin, size_t end) {
    size_t bytes = 0;
    size_t count = 0;
    const int64_t start = cpu_ns();
    for (size_t i = begin; i < end; ++i) {
      ids_.clear();
      STATOR_ASSERT(tokenizer_->encode(documents_[i], {}, ids_).has_value(), "the text encodes");
      count += ids_.size();
      bytes += documents_[i].size();
    }
    const int64_t ns = cpu_ns() - start;
    answer(fmt::format("{} {} {}", bytes, ns, count));
  }

  void encode_file(const std::string& in, const std::string& out) {
    const std::string data = read_file(in);
    std::ofstream file(out, std::ios::binary);
    size_t texts = 0;
    for (size_t at = 0; at + 4 <= data.size(); ++texts) {
      uint32_t bytes = 0;
      std::memcpy(&bytes, data.data() + at, 4);
      ids_.clear();
      const auto text = std::string_view(data).substr(at + 4, bytes);
      STATOR_ASSERT(tokenizer_->encode(text, {}, ids_).has_value(), "the text encodes");
      const auto count = static_cast<uint32_t>(ids_.size());
      file.write(reinterpret_cast<const char*>(&count), 4);
      file.write(reinterpret_cast<const char*>(ids_.data()), 4 * static_cast<long>(ids_.size()));
      at += 4 + bytes;
    }
    answer(std::to_string(texts));
  }

  SystemClock clock_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<std::string> documents_;
  std::vector<TokenId> ids_;
};

}  // namespace
}  // namespace stator::tokenizer

int main(int argc, char** argv) {
  STATOR_ASSERT(argc == 2, "usage: stator_encode_driver_bench TOKENIZER_JSON");
  stator::tokenizer::Driver driver(argv[1]);
  for (std::string line; std::getline(std::cin, line);) {
    driver.obey(line);
  }
  return 0;
}
