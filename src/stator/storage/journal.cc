// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "stator/core/crc32c.h"
#include "stator/core/raw_bytes.h"
#include "stator/io/io_error.h"
#include "stator/io/read_file.h"
#include "stator/io/records.h"
#include "stator/io/replace_file.h"

namespace stator::storage {
namespace {

/// 64 bytes for each of 2^26 slots; a file beyond it is not ours.
constexpr uint64_t kFileBytesMax = uint64_t{4} << 30;
/// A journal is compacted when it has this many times the live records, and no sooner than this.
constexpr size_t kCompactFactor = 4;
constexpr size_t kCompactRecordsMin = 16'384;

}  // namespace

std::array<std::byte, JournalRecord::kBytes> encode(const JournalRecord& record) {
  std::array<std::byte, JournalRecord::kBytes> out{};
  put_raw(out, 4, record.op);
  put_raw(out, 8, record.slot);
  put_raw(out, 12, record.generation);
  put_raw(out, 16, record.name.lineage.big_endian());
  put_raw(out, 32, record.parent.big_endian());
  put_raw(out, 48, record.name.check);
  put_raw(out, 0, crc32c(std::span(out).subspan(4)));
  return out;
}

std::optional<JournalRecord> decode_record(std::span<const std::byte> bytes) {
  if (bytes.size() != JournalRecord::kBytes ||
      get_raw<uint32_t>(bytes, 0) != crc32c(bytes.subspan(4))) {
    return std::nullopt;
  }
  const auto op = get_raw<uint8_t>(bytes, 4);
  if (op != static_cast<uint8_t>(JournalRecord::Op::kPut) &&
      op != static_cast<uint8_t>(JournalRecord::Op::kDelete)) {
    return std::nullopt;
  }
  return JournalRecord{
      .op = static_cast<JournalRecord::Op>(op),
      .slot = get_raw<uint32_t>(bytes, 8),
      .generation = get_raw<uint32_t>(bytes, 12),
      .name = {.lineage = kv::LineageHash::from_big_endian(get_raw<Digest>(bytes, 16)),
               .check = get_raw<Digest>(bytes, 48)},
      .parent = kv::LineageHash::from_big_endian(get_raw<Digest>(bytes, 32))};
}

Replayed replay(std::span<const std::byte> checkpoint, std::span<const std::byte> journal,
                uint32_t slots) {
  constexpr size_t kGone = SIZE_MAX;
  Replayed out;
  std::vector<JournalRecord> puts;
  puts.reserve(checkpoint.size() / JournalRecord::kBytes);
  std::vector<size_t> put_of(slots, kGone);  // by slot: where in `puts`
  const auto apply = [&](const JournalRecord& record) {
    ++out.records;
    if (record.slot >= slots) {
      return;  // the tier was larger
    }
    if (record.op == JournalRecord::Op::kDelete) {
      put_of[record.slot] = kGone;
      return;
    }
    put_of[record.slot] = puts.size();
    puts.push_back(record);
  };
  for (const auto part : {checkpoint, journal}) {
    const std::string_view bytes(reinterpret_cast<const char*>(part.data()), part.size());
    out.good_bytes = io::read_records(bytes, [&](std::string_view rest) -> size_t {
      const auto record =
          decode_record(std::as_bytes(std::span(rest.substr(0, JournalRecord::kBytes))));
      if (!record) {
        return 0;
      }
      apply(*record);
      return JournalRecord::kBytes;
    });
  }
  for (size_t i = 0; i < puts.size(); ++i) {
    if (put_of[puts[i].slot] == i) {
      out.live.push_back(puts[i]);
    }
  }
  return out;
}

Result<Journal> Journal::open(const std::string& folder, uint32_t slots) {
  Journal journal;
  journal.folder_ = folder;
  const std::string path = folder + "/g3.log";
  STATOR_TRY(const auto checkpoint, io::read_file_if_present(folder + "/g3.ckpt", kFileBytesMax));
  STATOR_TRY(const auto log, io::read_file_if_present(path, kFileBytesMax));
  const auto bytes = [](const std::optional<std::string>& text) {
    return text ? std::as_bytes(std::span(*text)) : std::span<const std::byte>();
  };
  Replayed replayed = replay(bytes(checkpoint), bytes(log), slots);
  journal.live_ = std::move(replayed.live);
  journal.file_ = io::FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!journal.file_.open()) {
    return io::io_error("open", path, errno);
  }
  if (::ftruncate(journal.file_.get(), static_cast<off_t>(replayed.good_bytes)) != 0) {
    return io::io_error("shorten", path, errno);
  }
  journal.bytes_ = replayed.good_bytes;
  return journal;
}

Status Journal::append(const JournalRecord& record) {
  const auto bytes = encode(record);
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t wrote = ::pwrite(file_.get(), bytes.data() + done, bytes.size() - done,
                                   static_cast<off_t>(bytes_ + done));
    if (wrote < 0 && errno == EINTR) {
      continue;
    }
    if (wrote <= 0) {
      return io::io_error("write", folder_ + "/g3.log", wrote < 0 ? errno : EIO);
    }
    done += static_cast<size_t>(wrote);
  }
  bytes_ += bytes.size();
  return {};
}

bool Journal::wants_checkpoint(size_t live) const {
  return bytes_ / JournalRecord::kBytes > std::max(kCompactRecordsMin, kCompactFactor * live);
}

Status Journal::checkpoint(std::span<const JournalRecord> records) {
  STATOR_TRY(auto file, io::FileReplacement::create(folder_ + "/g3.ckpt", 0600));
  std::string buffer;
  for (const JournalRecord& record : records) {
    const auto bytes = encode(record);
    buffer.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (buffer.size() >= (size_t{1} << 20)) {
      STATOR_CHECK(file.write(buffer));
      buffer.clear();
    }
  }
  STATOR_CHECK(file.write(buffer));
  STATOR_CHECK(file.commit());
  if (::ftruncate(file_.get(), 0) != 0) {
    return io::io_error("empty", folder_ + "/g3.log", errno);
  }
  bytes_ = 0;
  return {};
}

}  // namespace stator::storage
