// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/trace_file.h"

#include <zlib.h>

#include <array>
#include <filesystem>
#include <ios>
#include <streambuf>
#include <system_error>
#include <type_traits>

namespace stator::loadgen {
namespace {

constexpr size_t kBufferBytes = 256 << 10;

struct CloseFile {
  void operator()(gzFile file) const { gzclose_r(file); }
};
using File = std::unique_ptr<std::remove_pointer_t<gzFile>, CloseFile>;

/// zlib passes files through that are not compressed.
class FileBuffer final : public std::streambuf {
 public:
  explicit FileBuffer(File file) : file_(std::move(file)) {}

 protected:
  int_type underflow() override {
    const int got = gzread(file_.get(), buffer_.data(), kBufferBytes);
    if (got > 0) {
      setg(buffer_.data(), buffer_.data(), buffer_.data() + got);
      return traits_type::to_int_type(buffer_.front());
    }
    int problem = Z_OK;  // a compressed file that was cut off ends with one
    gzerror(file_.get(), &problem);
    if (got < 0 || problem != Z_OK) {
      // The only way for a buffer to make its stream bad, which catches it.
      throw std::ios_base::failure("damaged");
    }
    return traits_type::eof();
  }

 private:
  File file_;
  std::array<char, kBufferBytes> buffer_;
};

class FileStream final : public std::istream {
 public:
  explicit FileStream(File file) : std::istream(nullptr), buffer_(std::move(file)) {
    rdbuf(&buffer_);
  }

 private:
  FileBuffer buffer_;
};

}  // namespace

Result<std::unique_ptr<std::istream>> open_trace_file(const std::string& path) {
  if (std::error_code unknown; std::filesystem::is_directory(path, unknown)) {
    return Error(Code::kInvalidArgument, "the trace '" + path + "' is a folder: name a file");
  }
  File file(gzopen(path == "-" ? "/dev/stdin" : path.c_str(), "rb"));
  if (file == nullptr) {
    return Error(Code::kNotFound, "cannot open the trace '" + path + "'");
  }
  gzbuffer(file.get(), kBufferBytes);
  return std::make_unique<FileStream>(std::move(file));
}

}  // namespace stator::loadgen
