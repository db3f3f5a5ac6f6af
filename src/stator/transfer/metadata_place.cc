// SPDX-License-Identifier: Apache-2.0
#include "stator/transfer/metadata_place.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "stator/io/read_file.h"
#include "stator/io/replace_file.h"
#include "stator/json/value.h"
#include "stator/net/http_client.h"
#include "stator/text/base64.h"
#include "stator/transfer/socket_io.h"

namespace stator::transfer {
namespace {

constexpr Duration kLimit = std::chrono::seconds(2);
constexpr std::string_view kMagic = "SXMX";
constexpr std::string_view kEtcdPrefix = "/nixl/agents/";
constexpr std::string_view kEtcdLabel = "/metadata";
constexpr std::string_view kFileEnd = ".metadata";
constexpr size_t kListMax = 10'000;

std::string spell(std::string_view bytes) {
  std::string out;
  text::append_base64(out, bytes);
  return out;
}

/// A name becomes a file or a key: no separators.
Status check_name(const std::string& agent) {
  if (agent.empty() || agent.size() > 255 || agent.contains('/') || agent.contains('\0') ||
      agent == "." || agent == "..") {
    return Error(Code::kInvalidArgument,
                 fmt::format("'{}' is no name of an agent for a metadata store", agent));
  }
  return {};
}

class EtcdPlace final : public MetadataPlace {
 public:
  explicit EtcdPlace(std::string base) : base_(std::move(base)) {}
  Status put(const std::string& agent, const std::string& blob) override {
    STATOR_CHECK(check_name(agent));
    json::Value body = json::Value::object();
    body["key"] = key(agent);
    body["value"] = spell(blob);
    STATOR_TRY([[maybe_unused]] const json::Value done, call("put", body));
    return {};
  }
  Result<std::string> get(const std::string& agent) override {
    STATOR_CHECK(check_name(agent));
    json::Value body = json::Value::object();
    body["key"] = key(agent);
    STATOR_TRY(const json::Value answer, call("range", body));
    const json::Value& value = answer.at("kvs").at(size_t{0}).at("value");
    if (value.is_null()) {
      return Error(Code::kNotFound, fmt::format("no agent {} has left metadata in etcd", agent));
    }
    auto blob = text::decode_base64(value.text());
    if (!blob) {
      return Error(Code::kCorrupt, "etcd gave no base64");
    }
    return std::move(*blob);
  }
  Status erase(const std::string& agent) override {
    STATOR_CHECK(check_name(agent));
    json::Value body = json::Value::object();
    body["key"] = key(agent);
    STATOR_TRY([[maybe_unused]] const json::Value done, call("deleterange", body));
    return {};
  }
  Result<std::vector<std::string>> list(const std::string& prefix) override {
    const std::string first = std::string(kEtcdPrefix) + prefix;
    std::string behind = first;
    ++behind.back();  // of what begins so; the last byte is ASCII
    json::Value body = json::Value::object();
    body["key"] = spell(first);
    body["range_end"] = spell(behind);
    body["keys_only"] = true;
    body["limit"] = kListMax;
    STATOR_TRY(const json::Value answer, call("range", body));
    std::vector<std::string> names;
    for (const json::Value& entry : answer.at("kvs").elements()) {
      const auto name = text::decode_base64(entry.at("key").text());
      if (name && name->starts_with(kEtcdPrefix) && name->ends_with(kEtcdLabel)) {
        names.push_back(name->substr(kEtcdPrefix.size(),
                                     name->size() - kEtcdPrefix.size() - kEtcdLabel.size()));
      }
    }
    return names;
  }

 private:
  static std::string key(const std::string& agent) {
    return spell(fmt::format("{}{}{}", kEtcdPrefix, agent, kEtcdLabel));
  }
  Result<json::Value> call(std::string_view what, const json::Value& body) const {
    STATOR_TRY(const net::HttpClientResponse answer,
               net::http_request({.method = "POST",
                                  .url = fmt::format("{}/v3/kv/{}", base_, what),
                                  .headers = {{"Content-Type", "application/json"}},
                                  .body = json::to_text(body)},
                                 {.connect_timeout = kLimit, .timeout = kLimit}));
    if (answer.status != 200) {
      return Error(Code::kUnavailable,
                   fmt::format("etcd at {} answers {}: {}", base_, answer.status, answer.body));
    }
    return json::parse(answer.body);
  }
  const std::string base_;
};

class FolderPlace final : public MetadataPlace {
 public:
  explicit FolderPlace(std::string folder) : folder_(std::move(folder)) {}
  Status put(const std::string& agent, const std::string& blob) override {
    STATOR_CHECK(check_name(agent));
    return io::replace_file(path(agent), blob);
  }
  Result<std::string> get(const std::string& agent) override {
    STATOR_CHECK(check_name(agent));
    return io::read_file(path(agent));
  }
  Status erase(const std::string& agent) override {
    STATOR_CHECK(check_name(agent));
    std::error_code error;
    std::filesystem::remove(path(agent), error);
    return error ? Status(Error(Code::kIo,
                                fmt::format("removing {}: {}", path(agent), error.message())))
                 : Status();
  }

  Result<std::vector<std::string>> list(const std::string& prefix) override {
    std::vector<std::string> names;
    std::error_code error;
    for (std::filesystem::directory_iterator at(folder_, error), end; !error && at != end;
         at.increment(error)) {
      const std::string name = at->path().filename().string();
      if (name.starts_with(prefix) && name.ends_with(kFileEnd) && names.size() < kListMax) {
        names.push_back(name.substr(0, name.size() - kFileEnd.size()));
      }
    }
    if (error) {
      return Error(Code::kIo, fmt::format("reading {}: {}", folder_, error.message()));
    }
    std::ranges::sort(names);
    return names;
  }

 private:
  std::string path(const std::string& agent) const {
    return fmt::format("{}/{}{}", folder_, agent, kFileEnd);
  }
  const std::string folder_;
};

struct Texts {
  MetadataFrame head;
  std::string name;
  std::string blob;
};

bool send_texts(int fd, MetadataFrame::Kind kind, std::string_view name, std::string_view blob) {
  const std::string head = encode({.kind = kind,
                                   .name_bytes = static_cast<uint32_t>(name.size()),
                                   .blob_bytes = static_cast<uint32_t>(blob.size())}) +
                           std::string(name);
  return send_all(fd, std::as_bytes(std::span(head)), std::as_bytes(std::span(blob)));
}

std::optional<Texts> receive_texts(int fd) {
  std::string head(MetadataFrame::kBytes, '\0');
  if (!receive_all(fd, std::as_writable_bytes(std::span(head)))) {
    return std::nullopt;
  }
  const auto decoded = decode_metadata_frame(head);
  if (!decoded) {
    return std::nullopt;
  }
  Texts out{.head = *decoded,
            .name = std::string(decoded->name_bytes, '\0'),
            .blob = std::string(decoded->blob_bytes, '\0')};
  return receive_all(fd, std::as_writable_bytes(std::span(out.name))) &&
                 receive_all(fd, std::as_writable_bytes(std::span(out.blob)))
             ? std::optional(std::move(out))
             : std::nullopt;
}

class PeerPlace final : public MetadataPlace {
 public:
  PeerPlace(std::string host, uint16_t port) : host_(std::move(host)), port_(port) {}
  Status put(const std::string& agent, const std::string& blob) override {
    STATOR_TRY([[maybe_unused]] const std::string done,
               ask(MetadataFrame::Kind::kPut, agent, blob));
    return {};
  }
  Result<std::string> get(const std::string& agent) override {
    return ask(MetadataFrame::Kind::kGet, agent, {});
  }
  Status erase(const std::string& agent) override {
    STATOR_TRY([[maybe_unused]] const std::string done,
               ask(MetadataFrame::Kind::kErase, agent, {}));
    return {};
  }

  Result<std::vector<std::string>> list(const std::string& /*prefix*/) override {
    return Error(Code::kUnsupported, "an agent (tcp://) lists no others: use etcd:// or file://");
  }

 private:
  Result<std::string> ask(MetadataFrame::Kind kind, const std::string& agent,
                          const std::string& blob) const {
    if (agent.size() > MetadataFrame::kNameMax || blob.size() > MetadataFrame::kBlobMax) {
      return Error(Code::kTooLarge, "metadata of an agent is at most 64 MiB");
    }
    const io::FileDescriptor connection = connect_tcp(host_, port_, kLimit);
    std::optional<Texts> answer;
    if (connection.open() && send_texts(connection.get(), kind, agent, blob)) {
      answer = receive_texts(connection.get());
    }
    if (!answer) {
      return Error(Code::kUnavailable,
                   fmt::format("no agent gives its metadata at {}:{}", host_, port_));
    }
    if (answer->head.kind == MetadataFrame::Kind::kNotFound) {
      return Error(Code::kNotFound,
                   fmt::format("the agent at {}:{} is not {}", host_, port_, agent));
    }
    if (answer->head.kind != MetadataFrame::Kind::kOk) {
      return Error(Code::kInvalidArgument,
                   fmt::format("the agent at {}:{} refuses: {}", host_, port_, answer->blob));
    }
    return std::move(answer->blob);
  }
  const std::string host_;
  const uint16_t port_;
};

}  // namespace

std::string encode(const MetadataFrame& frame) {
  std::string out(kMagic);
  for (const uint32_t word :
       {static_cast<uint32_t>(frame.kind), frame.name_bytes, frame.blob_bytes}) {
    out.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  return out;
}

std::optional<MetadataFrame> decode_metadata_frame(std::string_view bytes) {
  if (bytes.size() != MetadataFrame::kBytes || !bytes.starts_with(kMagic)) {
    return std::nullopt;
  }
  std::array<uint32_t, 3> words{};
  std::memcpy(words.data(), bytes.data() + kMagic.size(), sizeof words);
  if (words[0] < 1 || words[0] > 6 || words[1] > MetadataFrame::kNameMax ||
      words[2] > MetadataFrame::kBlobMax) {
    return std::nullopt;
  }
  return MetadataFrame{.kind = static_cast<MetadataFrame::Kind>(words[0]),
                       .name_bytes = words[1],
                       .blob_bytes = words[2]};
}

Result<std::unique_ptr<MetadataPlace>> open_metadata_place(std::string_view url) {
  const auto rest = [&](std::string_view scheme) {
    return url.starts_with(scheme) ? std::optional(url.substr(scheme.size())) : std::nullopt;
  };
  if (const auto place = rest("etcd://"); place && !place->empty()) {
    return std::make_unique<EtcdPlace>(fmt::format("http://{}", *place));
  }
  if (const auto folder = rest("file://"); folder && !folder->empty()) {
    return std::make_unique<FolderPlace>(std::string(*folder));
  }
  if (const auto address = rest("tcp://"); address && address->contains(':')) {
    const size_t colon = address->rfind(':');
    const std::string_view digits = address->substr(colon + 1);
    uint16_t port = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (error == std::errc() && end == digits.data() + digits.size() && port > 0) {
      return std::make_unique<PeerPlace>(std::string(address->substr(0, colon)), port);
    }
  }
  return Error(
      Code::kInvalidArgument,
      fmt::format("'{}' is not etcd://HOST:PORT, file:///FOLDER or tcp://ADDRESS:PORT", url));
}

Result<std::unique_ptr<MetadataListener>> MetadataListener::start(Agent& agent,
                                                                  const std::string& host,
                                                                  uint16_t port) {
  io::FileDescriptor listener = listen_tcp(host, port);
  if (!listener.open()) {
    return Error(Code::kUnavailable, fmt::format("cannot listen on {}:{}", host, port));
  }
  return std::unique_ptr<MetadataListener>(new MetadataListener(agent, std::move(listener), port));
}

MetadataListener::MetadataListener(Agent& agent, io::FileDescriptor listener, uint16_t port)
    : agent_(agent),
      listener_(std::move(listener)),
      port_(port),
      thread_("transfer-md", [this] { serve(); }) {}

MetadataListener::~MetadataListener() {
  stopping_ = true;
  ::shutdown(listener_.get(), SHUT_RDWR);  // wakes accept()
  thread_.join();
}

void MetadataListener::serve() {
  while (!stopping_) {
    const io::FileDescriptor connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.open()) {
      set_up_socket(connection.get(), kLimit);
      answer(connection.get());
    }
  }
}

void MetadataListener::answer(int connection) {
  const auto asked = receive_texts(connection);
  if (!asked) {
    return;
  }
  using Kind = MetadataFrame::Kind;
  if (asked->head.kind == Kind::kGet) {
    const bool mine = asked->name.empty() || asked->name == agent_.name();
    send_texts(connection, mine ? Kind::kOk : Kind::kNotFound, {},
               mine ? agent_.local_md() : std::string());
  } else if (asked->head.kind == Kind::kPut) {
    std::string peer;
    const Outcome loaded = agent_.load_remote_md(asked->blob, peer);
    send_texts(connection, loaded == Outcome::kSuccess ? Kind::kOk : Kind::kRefused, {},
               to_string(loaded));
  } else if (asked->head.kind == Kind::kErase) {
    agent_.invalidate_remote_md(asked->name);
    send_texts(connection, Kind::kOk, {}, {});
  } else {
    send_texts(connection, Kind::kRefused, {}, "no request");
  }
}

}  // namespace stator::transfer
