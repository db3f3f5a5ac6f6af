// SPDX-License-Identifier: Apache-2.0
#include "stator/weights/hub_cache.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <memory>
#include <vector>

namespace stator::weights {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNameBytesMax = 96;
constexpr size_t kPathPartBytesMax = 200;

bool is_name_part(std::string_view part) {
  return !part.empty() && part.size() <= kNameBytesMax && part.front() != '.' &&
         std::ranges::all_of(part, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

/// What a hub may name a file or a branch's part, for us: plain in a URL as in a path.
bool is_path_part(std::string_view part) {
  return !part.empty() && part.size() <= kPathPartBytesMax && part.front() != '.' &&
         std::ranges::all_of(part, [](unsigned char c) {
           return std::isalnum(c) != 0 || std::string_view("-_.+=@").contains(static_cast<char>(c));
         });
}

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

std::string hex_digest(EVP_MD_CTX* context) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  EVP_DigestFinal_ex(context, digest.data(), &length);
  std::string text;
  for (unsigned i = 0; i < length; ++i) {
    text += fmt::format("{:02x}", digest[i]);
  }
  return text;
}

std::string folder_name(std::string_view name) {
  std::string folder = "models--";
  for (const char c : name) {
    folder += c == '/' ? std::string("--") : std::string(1, c);
  }
  return folder;
}

Status make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    return Error(Code::kIo, fmt::format("cannot make the cache folder '{}': {}; set hub.cache_dir",
                                        path.string(), error.message()));
  }
  return {};
}

struct DigestFree {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

}  // namespace

bool is_hub_name(std::string_view name) {
  const size_t slash = name.find('/');
  return slash != std::string_view::npos && is_name_part(name.substr(0, slash)) &&
         is_name_part(name.substr(slash + 1));
}

std::optional<HubModel> parse_hub_model(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const std::string_view suffix = colon == text.npos ? "" : text.substr(colon + 1);
  if (!is_hub_name(name) || (colon != text.npos && !is_name_part(suffix))) {
    return std::nullopt;
  }
  return HubModel{std::string(name), std::string(suffix)};
}

namespace {

constexpr std::string_view kGguf = ".gguf";
constexpr size_t kNamedFilesMax = 20;

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

/// "model-Q4_K_M.gguf" and "model.q4_k_m.gguf" are of "Q4_K_M", "model-IQ4_K_M.gguf" is not.
bool has_suffix(std::string_view file, std::string_view suffix) {
  const std::string stem = lower_case(file.substr(0, file.size() - kGguf.size()));
  const std::string wanted = lower_case(suffix);
  if (!stem.ends_with(wanted)) {
    return false;
  }
  const size_t before = stem.size() - wanted.size();
  return before == 0 || std::isalnum(static_cast<unsigned char>(stem[before - 1])) == 0;
}

}  // namespace

Result<std::string> choose_gguf(std::vector<std::string> files, std::string_view suffix) {
  std::erase_if(files, [](const std::string& file) {
    return !is_path_part(file) || !file.ends_with(kGguf) || file.contains("mmproj");
  });
  std::ranges::sort(files);
  const auto find = [&](std::string_view wanted) {
    return std::ranges::find_if(
        files, [wanted](const std::string& file) { return has_suffix(file, wanted); });
  };
  auto found = suffix.empty() ? find("Q4_K_M") : find(suffix);
  if (suffix.empty() && found == files.end()) {
    found = find("Q8_0");
  }
  if (suffix.empty() && found == files.end()) {
    found = files.begin();
  }
  if (found == files.end()) {
    std::string names;
    for (size_t i = 0; i < std::min(files.size(), kNamedFilesMax); ++i) {
      names += (names.empty() ? "" : ", ") + files[i];
    }
    return Error(Code::kNotFound,
                 files.empty()
                     ? std::string("there is no .gguf file")
                     : fmt::format("no .gguf file ends with '{}'; there are {}", suffix, names));
  }
  if (found->contains("-of-0")) {
    return Error(Code::kUnsupported,
                 fmt::format("'{}' is a part of a model in several files, which is not read: join "
                             "them with llama-gguf-split --merge",
                             *found));
  }
  return *found;
}

bool is_commit(std::string_view text) {
  return text.size() >= 7 && text.size() <= 64 && std::ranges::all_of(text, is_hex);
}

bool is_revision(std::string_view text) {
  size_t parts = 0;
  for (size_t at = 0; at <= text.size(); ++parts) {
    const size_t slash = std::min(text.find('/', at), text.size());
    if (!is_path_part(text.substr(at, slash - at))) {
      return false;
    }
    at = slash + 1;
  }
  return parts > 0;
}

std::string blob_name(std::string_view etag) {
  if (is_commit(etag)) {
    return std::string(etag);
  }
  const std::unique_ptr<EVP_MD_CTX, DigestFree> context(EVP_MD_CTX_new());
  EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  EVP_DigestUpdate(context.get(), etag.data(), etag.size());
  return "etag-" + hex_digest(context.get());
}

bool is_wanted_file(std::string_view name) {
  if (const size_t slash = name.find('/'); slash != std::string_view::npos) {
    // How sentence-transformers pool: "1_Pooling/config.json". Other subfolders have other formats.
    const std::string_view folder = name.substr(0, slash);
    return is_path_part(folder) && folder.ends_with("_Pooling") &&
           name.substr(slash + 1) == "config.json";
  }
  if (!is_path_part(name)) {
    return false;
  }
  return name.ends_with(".json") || name.ends_with(".safetensors") || name.ends_with(".jinja");
}

HubCache::HubCache(fs::path cache_dir, std::string_view name)
    : root_(std::move(cache_dir) / folder_name(name)) {}

std::optional<fs::path> HubCache::find_gguf(const std::string& revision,
                                            std::string_view suffix) const {
  const auto folder = folder_of(revision);
  if (!folder) {
    return std::nullopt;
  }
  std::vector<std::string> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(*folder, ignored)) {
    // exists() follows the link: one whose blob is missing does not count.
    if (fs::exists(entry.path(), ignored)) {
      files.push_back(entry.path().filename().string());
    }
  }
  const auto chosen = choose_gguf(std::move(files), suffix);
  return chosen ? std::optional(*folder / *chosen) : std::nullopt;
}

std::optional<fs::path> HubCache::folder_of(const std::string& revision) const {
  std::string commit;
  std::ifstream ref(root_ / "refs" / revision);
  if (!(ref >> commit)) {
    commit = revision;  // a commit was asked for directly
  }
  if (!is_commit(commit)) {
    return std::nullopt;  // no snapshot has such a name
  }
  return snapshot(commit);
}

std::optional<fs::path> HubCache::find_snapshot(const std::string& revision) const {
  const auto found = folder_of(revision);
  if (!found) {
    return std::nullopt;
  }
  const fs::path& folder = *found;
  std::error_code ignored;
  const bool has_texts =
      fs::exists(folder / "config.json", ignored) && fs::exists(folder / "tokenizer.json", ignored);
  bool has_weights = false;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    // exists() follows the link: one whose blob is missing does not count.
    has_weights |= entry.path().extension() == ".safetensors" && fs::exists(entry.path(), ignored);
  }
  return has_texts && has_weights ? std::optional(folder) : std::nullopt;
}

Status HubCache::prepare(const std::string& commit) const {
  STATOR_CHECK(make_folder(root_ / "refs"));
  STATOR_CHECK(make_folder(root_ / "blobs"));
  return make_folder(snapshot(commit));
}

Status HubCache::link(const std::string& commit, const std::string& file,
                      const std::string& etag) const {
  const fs::path target = snapshot(commit) / file;
  std::error_code error;
  fs::path blobs = fs::path("..") / "..";
  if (target.parent_path() != snapshot(commit)) {
    blobs /= "..";
    STATOR_CHECK(make_folder(target.parent_path()));
  }
  fs::remove(target, error);
  fs::create_symlink(blobs / "blobs" / etag, target, error);
  if (error) {
    return Error(Code::kIo, fmt::format("cannot link '{}': {}", target.string(), error.message()));
  }
  return {};
}

Status HubCache::write_ref(const std::string& revision, const std::string& commit) const {
  const fs::path ref = root_ / "refs" / revision;
  STATOR_CHECK(make_folder(ref.parent_path()));  // a branch may be called a/b
  std::ofstream file(ref, std::ios::trunc);
  file << commit;
  if (!file.flush()) {
    return Error(Code::kIo, "cannot write " + ref.string());
  }
  return {};
}

Result<bool> verify_blob(const fs::path& file, std::string_view etag) {
  const bool hex = std::ranges::all_of(etag, [](unsigned char c) { return std::isxdigit(c) != 0; });
  if (!hex || (etag.size() != 64 && etag.size() != 40)) {
    return true;
  }
  std::error_code error;
  const uintmax_t size = fs::file_size(file, error);
  std::ifstream in(file, std::ios::binary);
  if (error || !in) {
    return Error(Code::kIo, "cannot read " + file.string());
  }
  const std::unique_ptr<EVP_MD_CTX, DigestFree> context(EVP_MD_CTX_new());
  EVP_DigestInit_ex(context.get(), etag.size() == 64 ? EVP_sha256() : EVP_sha1(), nullptr);
  if (etag.size() == 40) {
    const std::string header = fmt::format("blob {}", size);
    EVP_DigestUpdate(context.get(), header.c_str(), header.size() + 1);
  }
  std::vector<char> buffer(1 << 20);
  while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || in.gcount() > 0) {
    EVP_DigestUpdate(context.get(), buffer.data(), static_cast<size_t>(in.gcount()));
  }
  return hex_digest(context.get()) == etag;
}

}  // namespace stator::weights
