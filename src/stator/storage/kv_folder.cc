// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/kv_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "stator/core/flat_map.h"
#include "stator/io/io_error.h"
#include "stator/io/read_file.h"

namespace stator::storage {
namespace {

constexpr uint64_t kJournalBytesMax = uint64_t{4} << 30;

std::span<const std::byte> bytes_of(const std::optional<std::string>& text) {
  return text ? std::as_bytes(std::span(*text)) : std::span<const std::byte>();
}

Status read_at(int fd, std::span<std::byte> out, uint64_t offset) {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return got < 0 ? io::io_error("read", "g3.data", errno)
                     : Error(Code::kCorrupt, "g3.data ends before the block does");
    }
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return {};
}

}  // namespace

Result<KvFolder> KvFolder::open(const std::string& folder) {
  KvFolder made;
  STATOR_TRY(made.facts_, read_disk_folder(folder));
  STATOR_TRY(const auto checkpoint,
             io::read_file_if_present(folder + "/g3.ckpt", kJournalBytesMax));
  STATOR_TRY(const auto journal, io::read_file_if_present(folder + "/g3.log", kJournalBytesMax));
  made.blocks_ = replay(bytes_of(checkpoint), bytes_of(journal), made.facts_.slots).live;
  const std::string path = folder + "/g3.data";
  made.data_ = io::FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!made.data_.open()) {
    return io::io_error("open", path, errno);
  }
  return made;
}

Result<BlockHeader> KvFolder::read(const JournalRecord& block,
                                   std::vector<std::byte>& payload) const {
  std::vector<std::byte> header(BlockHeader::kBytes);
  const uint64_t offset = disk_stride(facts_.block_bytes) * block.slot;
  STATOR_CHECK(read_at(data_.get(), header, offset));
  STATOR_TRY(BlockHeader checked, check_header(header, {.space = facts_.space,
                                                        .name = block.name,
                                                        .payload_bytes = facts_.block_bytes}));
  payload.resize(facts_.block_bytes);
  STATOR_CHECK(read_at(data_.get(), payload, offset + BlockHeader::kBytes));
  STATOR_CHECK(check_payload(checked, payload));
  return checked;
}

std::vector<TopPrefix> top_prefixes(const std::vector<JournalRecord>& blocks) {
  struct Node {
    kv::LineageHash head;
    uint32_t children = 0;
    bool branched = false;  // it or one in front of it has several children
  };
  std::vector<const JournalRecord*> order;
  FlatMap<kv::LineageHash, Node> nodes;
  for (const JournalRecord& block : blocks) {
    order.push_back(&block);
    nodes.try_emplace(block.name.lineage);
  }
  std::ranges::sort(order, {},
                    [](const JournalRecord* block) { return block->name.lineage.position(); });
  const auto parent_of = [&](const JournalRecord& block) {
    return block.name.lineage.position() == 0 ? nodes.end() : nodes.find(block.parent);
  };
  for (const JournalRecord* block : order) {
    if (const auto parent = parent_of(*block); parent != nodes.end()) {
      ++parent->second.children;
    }
  }
  FlatMap<kv::LineageHash, TopPrefix> prefixes;
  for (const JournalRecord* block : order) {
    const auto parent = parent_of(*block);
    Node& node = nodes[block->name.lineage];
    node.head = parent == nodes.end() ? block->name.lineage : parent->second.head;
    node.branched =
        parent != nodes.end() && (parent->second.branched || parent->second.children > 1);
    TopPrefix& prefix = prefixes[node.head];
    prefix.head = node.head;
    ++prefix.blocks;
    const uint32_t depth = block->name.lineage.position() - node.head.position() + 1;
    prefix.depth = std::max(prefix.depth, depth);
    if (!node.branched) {
      prefix.shared_depth = std::max(prefix.shared_depth, depth);
    }
  }
  std::vector<TopPrefix> out;
  for (const auto& [head, prefix] : prefixes) {
    out.push_back(prefix);
  }
  std::ranges::sort(out, [](const TopPrefix& a, const TopPrefix& b) {
    return std::pair(b.blocks, a.head) < std::pair(a.blocks, b.head);
  });
  return out;
}

}  // namespace stator::storage
