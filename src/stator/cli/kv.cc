// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <vector>

#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/cli/kv_view.h"
#include "stator/cli/operator_listener.h"
#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/json/value.h"
#include "stator/storage/aligned_buffer.h"
#include "stator/storage/kv_folder.h"

namespace stator::cli {
namespace {

using storage::JournalRecord;
using storage::KvFolder;

/// First bytes of an export; records (header, payload) follow.
constexpr std::string_view kExportMagic = "STKVEXP1";
constexpr size_t kTopShown = 20;
constexpr size_t kProgressEvery = 1000;

bool wants_json(const Invocation& invocation) {
  return invocation.options.contains("--json");
}

json::Value as_json(const JournalRecord& block) {
  json::Value out = json::Value::object();
  out["block"] = block.name.lineage.text();
  out["position"] = block.name.lineage.position();
  out["parent"] =
      block.name.lineage.position() == 0 ? json::Value() : json::Value(block.parent.text());
  out["slot"] = block.slot;
  return out;
}

json::Value facts_json(const std::string& dir, const KvFolder& folder) {
  const storage::DiskFolder& facts = folder.facts();
  json::Value out = json::Value::object();
  out["dir"] = dir;
  out["namespace"] = storage::to_hex(facts.space);
  out["block_tokens"] = facts.block_tokens;
  out["block_bytes"] = facts.block_bytes;
  out["blocks_max"] = facts.slots;
  out["blocks"] = folder.blocks().size();
  out["tokens"] = folder.blocks().size() * facts.block_tokens;
  out["bytes"] = folder.blocks().size() * storage::disk_stride(facts.block_bytes);
  return out;
}

TierUse disk_use(const KvFolder& folder) {
  const uint64_t stride = storage::disk_stride(folder.facts().block_bytes);
  return {.tier = "disk",
          .blocks = static_cast<double>(folder.blocks().size()),
          .blocks_max = static_cast<double>(folder.facts().slots),
          .bytes = static_cast<double>(folder.blocks().size() * stride)};
}

Status list_folder(const Invocation& invocation, const std::string& dir) {
  STATOR_TRY(const KvFolder folder, KvFolder::open(dir));
  if (wants_json(invocation)) {
    json::Value out = facts_json(dir, folder);
    json::Value list = json::Value::array();
    for (const JournalRecord& block : folder.blocks()) {
      list.push_back(as_json(block));
    }
    out["list"] = std::move(list);
    print(json::to_text(out) + "\n");
    return {};
  }
  const storage::DiskFolder& facts = folder.facts();
  print(fmt::format("{}: namespace {}, {} tokens and {} bytes a block\n{}", dir,
                    storage::to_hex(facts.space), facts.block_tokens, facts.block_bytes,
                    draw_tiers({disk_use(folder)})));
  return {};
}

Status verify_folder(const Invocation& invocation, const std::string& dir) {
  STATOR_TRY(const KvFolder folder, KvFolder::open(dir));
  size_t good = 0;
  size_t stale = 0;
  json::Value damaged = json::Value::array();
  std::vector<std::byte> payload;
  for (size_t i = 0; i < folder.blocks().size(); ++i) {
    const JournalRecord& block = folder.blocks()[i];
    const auto header = folder.read(block, payload);
    if (header) {
      ++good;
    } else if (header.error().code() == Code::kNotFound) {
      ++stale;
    } else {
      json::Value one = as_json(block);
      one["error"] = header.error().message();
      damaged.push_back(std::move(one));
    }
    if (app::stderr_is_terminal() && i % kProgressEvery == 0) {
      print_status(fmt::format("\r{} of {} blocks", i, folder.blocks().size()));
    }
  }
  if (app::stderr_is_terminal()) {
    print_status("\r\x1b[K");
  }
  json::Value out = facts_json(dir, folder);
  out["good"] = good;
  out["stale"] = stale;
  out["corrupt"] = damaged.size();
  const size_t corrupt = damaged.size();
  if (wants_json(invocation)) {
    out["damaged"] = std::move(damaged);
    print(json::to_text(out) + "\n");
  } else {
    for (const json::Value& one : damaged.elements()) {
      print(fmt::format("{} in slot {}: {}\n", one.text_at({"block"}),
                        json::to_text(one.at("slot")), one.text_at({"error"})));
    }
    print(fmt::format("{} blocks: {} good, {} damaged, {} replaced by others meanwhile\n",
                      folder.blocks().size(), good, corrupt, stale));
  }
  return corrupt == 0 ? Status()
                      : Error(Code::kIo,  // status 1: the command line was right
                              fmt::format("{} blocks are damaged; an engine finds that itself, "
                                          "drops them and computes them again",
                                          corrupt));
}

Status top_folder(const Invocation& invocation, const std::string& dir) {
  STATOR_TRY(const KvFolder folder, KvFolder::open(dir));
  const auto prefixes = storage::top_prefixes(folder.blocks());
  const uint32_t tokens = folder.facts().block_tokens;
  json::Value list = json::Value::array();
  std::string text =
      fmt::format("{:>8} {:>10} {:>10}  {}\n", "blocks", "shared", "longest", "prefix (tokens)");
  for (size_t i = 0; i < std::min(prefixes.size(), kTopShown); ++i) {
    const storage::TopPrefix& prefix = prefixes[i];
    json::Value one = json::Value::object();
    one["prefix"] = prefix.head.text();
    one["blocks"] = prefix.blocks;
    one["bytes"] = prefix.blocks * storage::disk_stride(folder.facts().block_bytes);
    one["shared_tokens"] = uint64_t{prefix.shared_depth} * tokens;
    one["longest_tokens"] = uint64_t{prefix.depth} * tokens;
    list.push_back(std::move(one));
    text += fmt::format("{:>8} {:>10} {:>10}  {}\n", prefix.blocks,
                        uint64_t{prefix.shared_depth} * tokens, uint64_t{prefix.depth} * tokens,
                        prefix.head.text());
  }
  if (wants_json(invocation)) {
    json::Value out = facts_json(dir, folder);
    out["prefixes"] = std::move(list);
    text = json::to_text(out) + "\n";
  }
  print(text);
  return {};
}

Status export_folder(const Invocation& invocation, const std::string& dir,
                     const std::string& file) {
  STATOR_TRY(const KvFolder folder, KvFolder::open(dir));
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << kExportMagic;
  std::vector<std::byte> payload;
  std::vector<std::byte> encoded(storage::BlockHeader::kBytes);
  size_t written = 0;
  for (const JournalRecord& block : folder.blocks()) {
    const auto header = folder.read(block, payload);
    if (!header) {
      continue;  // damaged or replaced: counted below
    }
    storage::encode(*header, encoded);
    out.write(reinterpret_cast<const char*>(encoded.data()),
              static_cast<std::streamsize>(encoded.size()));
    out.write(reinterpret_cast<const char*>(payload.data()),
              static_cast<std::streamsize>(payload.size()));
    ++written;
  }
  out.flush();
  if (!out) {
    return Error(Code::kIo, fmt::format("cannot write {}", file));
  }
  const size_t left_out = folder.blocks().size() - written;
  print(wants_json(invocation)
            ? fmt::format(R"({{"exported":{},"left_out":{}}})"
                          "\n",
                          written, left_out)
            : fmt::format("{} blocks exported to {}, {} left out\n", written, file, left_out));
  return {};
}

bool read_exactly(std::istream& in, std::span<std::byte> out) {
  in.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
  return in.gcount() == static_cast<std::streamsize>(out.size());
}

Error cut_short(const std::string& file, size_t imported) {
  return {Code::kIo,
          fmt::format("{} ends within a block: {} blocks before it are imported", file, imported)};
}

json::Value header_json(const storage::BlockHeader& header) {
  json::Value out = json::Value::object();
  out["namespace"] = storage::to_hex(header.space);
  out["check"] = storage::to_hex(header.name.check);
  out["payload_bytes"] = header.payload_bytes;
  out["generation"] = header.generation;
  out["unix_ms"] = header.unix_ms;
  out["tp_rank"] = header.tp_rank;
  out["tp_size"] = header.tp_size;
  out["layer_first"] = header.layer_first;
  out["layer_last"] = header.layer_last;
  json::Value crcs = json::Value::array();
  for (const uint32_t crc : header.group_crcs) {
    crcs.push_back(fmt::format("{:08x}", crc));
  }
  out["group_crc32c"] = std::move(crcs);
  json::Value tokens = json::Value::array();
  for (const TokenId token : header.tokens) {
    tokens.push_back(token);
  }
  out["tokens"] = std::move(tokens);
  return out;
}

/// The record of one block: its name, header and whether its bytes are whole.
Status inspect_folder(const Invocation& invocation, const std::string& dir) {
  const std::string wanted = option_of(invocation, "--block", "");
  const auto lineage = kv::LineageHash::parse(wanted);
  if (!lineage) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("stator kv inspect needs --block BLOCK, as `stator kv ls --json` names "
                    "it{}",
                    wanted.empty() ? "" : ", not " + wanted));
  }
  STATOR_TRY(const KvFolder folder, KvFolder::open(dir));
  const auto found = std::ranges::find(
      folder.blocks(), *lineage, [](const JournalRecord& block) { return block.name.lineage; });
  if (found == folder.blocks().end()) {
    return Error(Code::kNotFound, fmt::format("{} has no block {}", dir, wanted));
  }
  std::vector<std::byte> payload;
  const auto header = folder.read(*found, payload);
  json::Value out = as_json(*found);
  if (header) {
    out["header"] = header_json(*header);
  } else {
    out["error"] = header.error().message();
  }
  out["good"] = header.has_value();
  const bool json = wants_json(invocation);
  if (json) {
    print(json::to_text(out) + "\n");
  } else {
    for (const json::Value* part : {&out, out.find("header")}) {
      for (size_t i = 0; part != nullptr && i < part->members().size(); ++i) {
        const auto& [key, value] = part->members()[i];
        if (key != "header") {
          print(fmt::format("{:<14} {}\n", key, json::to_text(value)));
        }
      }
    }
  }
  return header ? Status() : Error(Code::kIo, header.error().message());
}

Status import_folder(const Invocation& invocation, const std::string& dir,
                     const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string magic(kExportMagic.size(), '\0');
  in.read(magic.data(), static_cast<std::streamsize>(magic.size()));
  if (magic != kExportMagic) {
    return Error(Code::kInvalidArgument, fmt::format("{} is no export of `stator kv`", file));
  }
  uint64_t bytes = 0;
  if (const std::string text = option_of(invocation, "--bytes", ""); !text.empty()) {
    STATOR_TRY(bytes, parse_bytes(text));
  }
  SystemClock clock;
  Metrics metrics;
  std::unique_ptr<storage::DiskTier> tier;
  std::vector<std::byte> encoded(storage::BlockHeader::kBytes);
  size_t imported = 0;
  size_t refused = 0;
  while (read_exactly(in, encoded)) {
    STATOR_TRY(const storage::BlockHeader header, storage::decode_header(encoded), file);
    if (tier == nullptr) {
      const auto there = storage::read_disk_folder(dir);
      const uint64_t stride = storage::disk_stride(header.payload_bytes);
      const uint64_t held = there ? there->slots * stride : uint64_t{0};
      STATOR_TRY(tier, storage::DiskTier::open(
                           {.folder = dir,
                            .bytes = bytes > 0 ? bytes : std::max(held, stride * 16),
                            .block_bytes = header.payload_bytes,
                            .block_tokens = static_cast<uint32_t>(header.tokens.size()),
                            .space = header.space},
                           clock, metrics));
    }
    if (header.payload_bytes != tier->options().block_bytes ||
        header.space != tier->options().space) {
      return Error(Code::kInvalidArgument, "the export mixes namespaces");
    }
    const storage::AlignedBuffer payload(header.payload_bytes);
    if (!read_exactly(in, payload.bytes())) {
      return cut_short(file, imported);
    }
    const bool good = storage::check_payload(header, payload.bytes()).has_value() &&
                      tier->write({.name = header.name,
                                   .parent = header.parent,
                                   .tokens = header.tokens,
                                   .payload = payload.bytes()})
                          .has_value();
    ++(good ? imported : refused);
  }
  if (in.gcount() > 0) {
    return cut_short(file, imported);
  }
  print(wants_json(invocation)
            ? fmt::format(R"({{"imported":{},"refused":{}}})"
                          "\n",
                          imported, refused)
            : fmt::format("{} blocks imported into {}, {} refused (there already, or damaged)\n",
                          imported, dir, refused));
  return {};
}

Status drop_folder(const Invocation& invocation, const std::string& dir) {
  const std::string wanted = option_of(invocation, "--block", "");
  const auto head = kv::LineageHash::parse(wanted);
  if (!wanted.empty() && !head) {
    return Error(Code::kInvalidArgument,
                 fmt::format("--block {}: give a block as `stator kv ls --json` names it", wanted));
  }
  STATOR_TRY(const KvFolder folder, KvFolder::open(dir));
  SystemClock clock;
  Metrics metrics;
  const storage::DiskFolder& facts = folder.facts();
  STATOR_TRY(auto tier, storage::DiskTier::open(
                            {.folder = dir,
                             .bytes = facts.slots * storage::disk_stride(facts.block_bytes),
                             .block_bytes = facts.block_bytes,
                             .block_tokens = facts.block_tokens,
                             .space = facts.space},
                            clock, metrics));
  std::vector<JournalRecord> order = folder.blocks();
  std::ranges::sort(order, {},
                    [](const JournalRecord& block) { return block.name.lineage.position(); });
  FlatSet<kv::LineageHash> dropped;
  for (const JournalRecord& block : order) {
    const bool goes = !head || block.name.lineage == *head ||
                      (block.name.lineage.position() > 0 && dropped.contains(block.parent));
    if (goes && tier->drop(block.name)) {
      dropped.insert(block.name.lineage);
    }
  }
  print(wants_json(invocation) ? fmt::format(R"({{"dropped":{}}})"
                                             "\n",
                                             dropped.size())
                               : fmt::format("{} blocks dropped\n", dropped.size()));
  return {};
}

Status list_server(const Invocation& invocation, const std::string& url) {
  STATOR_TRY(const auto headers, read_credentials(invocation));
  STATOR_TRY(const ServerTiers server, fetch_tiers(url, headers));
  if (!wants_json(invocation)) {
    print(draw_tiers(server.tiers));
    return {};
  }
  json::Value out = json::Value::object();
  out["url"] = url;
  json::Value list = json::Value::array();
  for (const TierUse& tier : server.tiers) {
    json::Value one = json::Value::object();
    one["tier"] = tier.tier;
    one["blocks"] = static_cast<uint64_t>(tier.blocks);
    one["blocks_max"] = static_cast<uint64_t>(tier.blocks_max);
    one["bytes"] = static_cast<uint64_t>(tier.bytes);
    one["integrity_errors"] = static_cast<uint64_t>(tier.integrity_errors);
    one["enabled"] = tier.enabled;
    list.push_back(std::move(one));
  }
  out["tiers"] = std::move(list);
  print(json::to_text(out) + "\n");
  return {};
}

/// The folder of the server's disk tier, when it is on this host.
Result<std::string> folder_of(const Invocation& invocation, const std::string& url) {
  STATOR_TRY(const auto headers, read_credentials(invocation));
  STATOR_TRY(const ServerTiers server, fetch_tiers(url, headers));
  if (server.disk_folder.empty()) {
    return Error(Code::kNotFound, fmt::format("{} has no disk tier (--kv-disk)", url));
  }
  return server.disk_folder;
}

Status run_on_folder(const Invocation& invocation, const std::string& what,
                     const std::string& dir) {
  const std::string file = option_of(invocation, "--file", "");
  if ((what == "export" || what == "import") && file.empty()) {
    return Error(Code::kInvalidArgument, fmt::format("stator kv {} needs --file FILE", what));
  }
  if (what == "ls") {
    return list_folder(invocation, dir);
  }
  if (what == "inspect") {
    return inspect_folder(invocation, dir);
  }
  if (what == "verify") {
    return verify_folder(invocation, dir);
  }
  if (what == "top") {
    return top_folder(invocation, dir);
  }
  if (what == "export") {
    return export_folder(invocation, dir, file);
  }
  if (what == "import") {
    return import_folder(invocation, dir, file);
  }
  return drop_folder(invocation, dir);
}

constexpr std::string_view kWhats[] = {"ls",     "inspect", "verify", "top",
                                       "export", "import",  "drop"};

}  // namespace

Status run_kv(Invocation& invocation) {
  const std::string what = invocation.positionals.empty() ? "ls" : invocation.positionals.front();
  if (what == "hold") {
    return run_kv_hold(invocation);
  }
  if (std::ranges::find(kWhats, what) == std::end(kWhats)) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("stator kv {}: WHAT is ls, inspect, verify, top, export, import, drop or hold",
                    what));
  }
  std::string dir = option_of(invocation, "--dir", "");
  if (dir.empty()) {
    const std::string url = option_of(invocation, "--url", "");
    const std::string from = url.empty() ? "http://127.0.0.1:8000" : url;
    if (what == "ls") {
      return list_server(invocation, from);
    }
    if (what == "import" || what == "drop") {
      return Error(Code::kInvalidArgument,
                   fmt::format("stator kv {} needs --dir DIR of a stopped engine", what));
    }
    STATOR_TRY(dir, folder_of(invocation, from));
  }
  return run_on_folder(invocation, what, dir);
}

}  // namespace stator::cli
