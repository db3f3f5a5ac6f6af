// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/line_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <istream>
#include <utility>

#include "stator/core/byte_order_mark.h"

namespace stator::simulator {
namespace {

constexpr size_t kChunkBytes = 256 << 10;

}  // namespace

Error LineReader::fail(std::string_view field, std::string_view what) const {
  return {Code::kInvalidArgument, fmt::format("{}:{}: {}: {}", name_, number_, field, what)};
}

/// Reads more behind what is there; false at the end of the input.
bool LineReader::fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const size_t needed = end_ + kChunkBytes + kPadding;
  if (buffer_.size() < needed) {
    buffer_.resize(std::max(needed, buffer_.size() * 2));
  }
  input_.read(buffer_.data() + end_, kChunkBytes);
  const auto got = static_cast<size_t>(input_.gcount());
  end_ += got;
  return got > 0;
}

Result<bool> LineReader::read_line(std::string_view& line) {
  size_t searched = 0;
  while (true) {
    const size_t left = end_ - begin_ - searched;
    const char* from = buffer_.data() + begin_ + searched;
    const char* found =
        left == 0 ? nullptr : static_cast<const char*>(std::memchr(from, '\n', left));
    size_t length = end_ - begin_;
    size_t taken = length;
    if (found != nullptr) {
      length = static_cast<size_t>(found - buffer_.data()) - begin_;
      taken = length + 1;
    } else if (length <= kLineBytesMax) {
      searched = length;
      if (fill()) {
        continue;
      }
      if (input_.bad()) {
        return fail("file", "cannot be read further: damaged or cut off");
      }
      if (length == 0) {
        return false;
      }
    }
    ++number_;
    if (length > kLineBytesMax) {
      return fail("line", fmt::format("longer than {} bytes", kLineBytesMax));
    }
    line = {buffer_.data() + begin_, length};
    begin_ += taken;
    return true;
  }
}

Result<bool> LineReader::next(std::string_view& line) {
  if (std::exchange(has_peeked_, false)) {
    line = peeked_;
    return true;
  }
  do {
    STATOR_TRY(const bool found, read_line(line));
    if (!found) {
      return false;
    }
    if (number_ == 1 && line.starts_with(kByteOrderMark)) {
      line.remove_prefix(kByteOrderMark.size());
    }
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
  } while (line.find_first_not_of(" \t") == std::string_view::npos);
  return true;
}

Result<bool> LineReader::peek(std::string_view& line) {
  STATOR_TRY(const bool found, next(peeked_));
  has_peeked_ = found;
  line = peeked_;
  return found;
}

}  // namespace stator::simulator
