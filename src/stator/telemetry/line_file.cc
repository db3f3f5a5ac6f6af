// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/line_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "stator/core/log.h"
#include "stator/io/io_error.h"

namespace stator::telemetry {
namespace {

using namespace std::chrono_literals;

constexpr Duration kWriteEvery = 200ms;  // for whoever follows the file
constexpr size_t kWakeBytes = size_t{256} << 10;
constexpr Duration kComplainEvery = 60s;
constexpr std::string_view kStandardOutput = "-";

Counter dropped(Metrics& metrics, const std::string& file, std::string_view reason) {
  return metrics.counter("stator_request_log_lines_dropped_total",
                         "lines about requests that are in no file",
                         {{"file", file}, {"reason", std::string(reason)}});
}

}  // namespace

namespace {

constexpr uint32_t kSegmentsMax = 1'000'000;
constexpr int kGzipWindowBits = 15 + 16;  // zlib's way to ask for a gzip header
constexpr int kGzipLevel = 3;
constexpr int kGzipMemory = 8;

std::string segment_path(const std::string& prefix, uint32_t number) {
  return fmt::format("{}.{:06}.jsonl.gz", prefix, number);
}

/// The number behind the last segment that is there.
uint32_t next_segment(const std::string& prefix) {
  namespace fs = std::filesystem;
  const fs::path path(prefix);
  const std::string begin = path.filename().string() + ".";
  uint32_t next = 0;
  std::error_code error;
  fs::directory_iterator entry(path.has_parent_path() ? path.parent_path() : ".", error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    uint32_t number = 0;
    if (name.starts_with(begin) && name.ends_with(".jsonl.gz") &&
        std::from_chars(name.data() + begin.size(), name.data() + name.size(), number).ec ==
            std::errc()) {
      next = std::max(next, number + 1);
    }
  }
  return next % kSegmentsMax;
}

/// One gzip member; empty: zlib has no memory.
std::string gzip(std::string_view text) {
  z_stream stream{};
  if (deflateInit2(&stream, kGzipLevel, Z_DEFLATED, kGzipWindowBits, kGzipMemory,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return {};
  }
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const bool done = deflate(&stream, Z_FINISH) == Z_STREAM_END;
  out.resize(done ? stream.total_out : 0);
  deflateEnd(&stream);
  return out;
}

}  // namespace

LineFile::LineFile(Options options, Clock& clock, Metrics& metrics)
    : options_(std::move(options)),
      clock_(clock),
      written_(metrics.counter("stator_request_log_lines_total", "lines about requests, written",
                               {{"file", options_.name}})),
      dropped_full_(dropped(metrics, options_.name, "buffer_full")),
      dropped_disk_(dropped(metrics, options_.name, "disk")) {}

Result<std::unique_ptr<LineFile>> LineFile::open(Options options, Clock& clock, Metrics& metrics) {
  std::unique_ptr<LineFile> made(new LineFile(std::move(options), clock, metrics));
  if (made->options_.compressed) {
    made->segment_ = next_segment(made->options_.path);
  }
  STATOR_CHECK(made->reopen());
  made->thread_ = net::Thread("lines", [self = made.get()] { self->loop(); });
  return made;
}

LineFile::~LineFile() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void LineFile::append(std::string_view line) {
  bool much = false;
  {
    const MutexLock lock(mutex_);
    if (waiting_.size() + line.size() > options_.buffer_bytes_max) {
      dropped_full_.add();
      return;
    }
    const bool was_less = waiting_.size() < kWakeBytes;
    waiting_ += line;
    much = was_less && waiting_.size() >= kWakeBytes;
  }
  if (much) {
    wake_.notify_one();
  }
}

std::string LineFile::file_path() const {
  return options_.compressed ? segment_path(options_.path, segment_) : options_.path;
}

Status LineFile::reopen() {
  if (options_.path == kStandardOutput) {
    file_ = io::FileDescriptor(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
    return file_.open() ? Status() : io::io_error("open", "standard output", errno);
  }
  io::FileDescriptor file(
      ::open(file_path().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0640));
  if (!file.open()) {
    return io::io_error("open", file_path(), errno);
  }
  struct stat found{};
  regular_ = ::fstat(file.get(), &found) == 0 && S_ISREG(found.st_mode);
  bytes_ = regular_ && !options_.compressed ? static_cast<uint64_t>(found.st_size) : 0;
  file_ = std::move(file);
  return {};
}

void LineFile::loop() {
  std::string lines;
  bool goes_on = true;
  while (goes_on) {
    lines.clear();
    {
      MutexLock lock(mutex_);
      if (!stopping_ && waiting_.size() < kWakeBytes) {
        wake_.wait_for(lock, kWriteEvery);
      }
      goes_on = !stopping_;
      lines.swap(waiting_);
    }
    if (!lines.empty()) {
      check_moved();
      write(lines);
    }
  }
}

void LineFile::write(const std::string& lines) {
  const bool limited = options_.bytes_max > 0 && regular_;
  std::string_view rest = lines;
  while (!rest.empty()) {
    size_t size = rest.size();
    if (limited && bytes_ + size > options_.bytes_max) {
      // As many lines as fit, and at least one.
      const size_t room = bytes_ < options_.bytes_max ? options_.bytes_max - bytes_ : 0;
      const size_t end = rest.substr(0, room).rfind('\n');
      if (end == std::string_view::npos && bytes_ > 0) {
        turn_over();
        continue;
      }
      size = end == std::string_view::npos ? rest.find('\n') + 1 : end + 1;
    }
    const std::string_view part = rest.substr(0, size);
    const auto count = static_cast<uint64_t>(std::ranges::count(part, '\n'));
    if (write_part(part)) {
      written_.add(count);
    } else {
      dropped_disk_.add(count);
    }
    rest.remove_prefix(size);
  }
}

bool LineFile::write_part(std::string_view part) {
  if (!file_.open() && !reopen()) {
    return false;
  }
  if (!options_.compressed) {
    return write_all(part);
  }
  const std::string packed = gzip(part);
  const off_t before = ::lseek(file_.get(), 0, SEEK_END);
  if (packed.empty() || !write_all(packed)) {
    broken_ = false;
    if (before >= 0 && ::ftruncate(file_.get(), before) != 0) {
      turn_over();  // behind a torn member nothing could be read
    }
    return false;
  }
  broken_ = false;
  bytes_ += part.size() - packed.size();
  return true;
}

bool LineFile::write_all(std::string_view text) {
  if (broken_ && ::write(file_.get(), "\n", 1) == 1) {
    broken_ = false;
  }
  while (!text.empty()) {
    const ssize_t put = ::write(file_.get(), text.data(), text.size());
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      complain(io::io_error("write", options_.path, put < 0 ? errno : ENOSPC).message());
      return false;
    }
    bytes_ += static_cast<uint64_t>(put);
    broken_ = text[static_cast<size_t>(put) - 1] != '\n';
    text.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

void LineFile::turn_over() {
  if (options_.compressed) {
    for (uint32_t old = segment_ + 1; old-- > options_.files_max;) {
      if (::unlink(segment_path(options_.path, old - options_.files_max).c_str()) != 0) {
        break;  // and so those before it are gone
      }
    }
    segment_ = (segment_ + 1) % kSegmentsMax;
    file_.reset();
    bytes_ = 0;
    if (Status opened = reopen(); !opened) {
      complain(opened.error().message());
    }
    return;
  }
  for (uint32_t i = options_.files_max; i > 1; --i) {
    std::rename(fmt::format("{}.{}", options_.path, i - 1).c_str(),
                fmt::format("{}.{}", options_.path, i).c_str());
  }
  if (std::rename(options_.path.c_str(), (options_.path + ".1").c_str()) != 0) {
    complain(io::io_error("rename", options_.path, errno).message());
  }
  file_.reset();
  bytes_ = 0;
  if (Status opened = reopen(); !opened) {
    complain(opened.error().message());
  }
}

void LineFile::check_moved() {
  if (file_.open() && !regular_) {
    return;
  }
  struct stat at_path{};
  struct stat own{};
  const bool same = file_.open() && ::stat(file_path().c_str(), &at_path) == 0 &&
                    ::fstat(file_.get(), &own) == 0 && at_path.st_ino == own.st_ino &&
                    at_path.st_dev == own.st_dev;
  if (!same) {
    if (Status opened = reopen(); !opened) {
      complain(opened.error().message());
    }
  }
}

void LineFile::complain(const std::string& why) {
  if (complained_ == TimePoint() || clock_.now() - complained_ >= kComplainEvery) {
    complained_ = clock_.now();
    log::error("telemetry", "lines about requests are lost; serving goes on", {{"why", why}});
  }
}

}  // namespace stator::telemetry
