// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/media_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/api/media_parts.h"
#include "stator/core/keyed_hash.h"
#include "stator/json/writer.h"

namespace stator::frontend {
namespace {

using api::ApiError;
using api::ApiResult;
using api::ApiStatus;
using inference::MediaKind;

constexpr uint32_t kDepthMax = 128;

ApiError refuse(const std::string& path, std::string_view text) {
  return api::validation_error(path, fmt::format("{} {}", path, text));
}

std::string_view article(MediaKind kind) {
  return kind == MediaKind::kVideo ? "a video" : kind == MediaKind::kAudio ? "audio" : "an image";
}

/// What stands in the prompt where a template knows no media: what the model was trained to see.
std::string placeholder_text(const ServedModel& model, MediaKind kind) {
  const media::PromptRules& rules = model.assets->media_rules;
  const auto token = rules.placeholder(kind);
  if (!token) {
    return {};
  }
  const tokenizer::Tokenizer& tokenizer = *model.assets->tokenizer;
  const auto text = [&](std::optional<TokenId> id) {
    return id ? tokenizer.token_text(*id) : std::string();
  };
  return text(rules.image_begin()) + text(token) + text(rules.image_end());
}

/// Where in `ids` each medium's placeholder is, by kind; false if their numbers differ.
bool find_placeholders(std::span<const TokenId> ids, std::span<const media::BlobPtr> blobs,
                       const media::PromptRules& rules, std::vector<size_t>& places) {
  places.assign(blobs.size(), 0);
  for (const MediaKind kind : {MediaKind::kImage, MediaKind::kAudio, MediaKind::kVideo}) {
    std::vector<size_t> items;
    for (size_t i = 0; i < blobs.size(); ++i) {
      if (blobs[i]->kind == kind) {
        items.push_back(i);
      }
    }
    if (items.empty()) {
      continue;
    }
    const auto token = rules.placeholder(kind);
    if (!token || std::cmp_not_equal(std::ranges::count(ids, *token), items.size())) {
      return false;
    }
    size_t next = 0;
    for (size_t at = 0; at < ids.size(); ++at) {
      if (ids[at] == *token) {
        places[items[next++]] = at;
      }
    }
  }
  return true;
}

/// How many tokens a medium becomes; 0: nobody knows.
uint32_t expanded_tokens(const inference::MediaBlob& blob, const media::PromptRules& rules) {
  return blob.kind == MediaKind::kImage
             ? rules.image_tokens({.width = blob.width, .height = blob.height}).value_or(0)
             : 0;
}

/// Repeats placeholders and notes where they are.
void expand(std::vector<TokenId>& ids, const std::vector<size_t>& places,
            const media::PromptRules& rules, std::vector<inference::MediaItem>& items) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  std::ranges::sort(order, {}, [&](size_t i) { return places[i]; });
  std::vector<TokenId> out;
  size_t from = 0;
  for (const size_t i : order) {
    out.insert(out.end(), ids.begin() + static_cast<ptrdiff_t>(from),
               ids.begin() + static_cast<ptrdiff_t>(places[i]));
    items[i].token_begin = static_cast<uint32_t>(out.size());
    items[i].token_count = expanded_tokens(*items[i].blob, rules);
    out.insert(out.end(), std::max(items[i].token_count, 1U), ids[places[i]]);
    from = places[i] + 1;
  }
  out.insert(out.end(), ids.begin() + static_cast<ptrdiff_t>(from), ids.end());
  ids = std::move(out);
}

void add_member(json::Writer& json, std::string_view key, const std::string& value) {
  if (!value.empty()) {
    json.key(key).raw(value);
  }
}

std::string make_chat_json(const api::ChatInput& chat, const std::string& template_arguments) {
  std::string out;
  json::Writer json(out);
  json.begin_object();
  json.key("messages").raw(chat.messages_json);
  add_member(json, "tools", chat.tools_json);
  add_member(json, "documents", chat.documents_json);
  add_member(json, "chat_template_kwargs", template_arguments);
  json.key("add_generation_prompt").value(chat.add_generation_prompt);
  if (chat.continue_final_message) {
    json.key("continue_final_message").value(true);
  }
  json.end_object();
  return out;
}

/// The prompt's text between the media, for engines that mark them in it.
ApiResult<std::vector<std::string>> make_pieces(const api::ChatInput& chat, size_t media,
                                                const MediaPromptContext& context) {
  // Nobody's text has it: this process alone knows the hash's key.
  const std::string mark = fmt::format("<<medium-{:016x}>>", keyed_hash(chat.messages_json));
  std::string part;
  json::Writer json(part);
  json.begin_object().key("type").value("text").key("text").value(mark).end_object();
  const bool parts = context.model.assets->chat_template->traits().content_parts;
  api::ChatInput marked = chat;
  marked.messages_json = parts ? api::replace_media(chat.messages_json, kDepthMax,
                                                    [&](size_t, MediaKind) { return part; })
                               : api::flatten_media(chat.messages_json, kDepthMax,
                                                    [&](size_t, MediaKind) { return mark; });
  STATOR_TRY(const std::string text,
             context.encoder.render_chat(marked, context.model, context.now, context.cancel));
  std::vector<std::string> pieces;
  size_t from = 0;
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, from)) {
    pieces.push_back(text.substr(from, at - from));
    from = at + mark.size();
  }
  pieces.push_back(text.substr(from));
  if (pieces.size() != media + 1) {
    pieces.clear();  // the template repeats or drops some
    return pieces;
  }
  // Servers put BOS in front by themselves.
  const tokenizer::Tokenizer& tokenizer = *context.model.assets->tokenizer;
  std::vector<TokenId> front;
  STATOR_CHECK(tokenizer.encode("", {.add_special = tokenizer::AddSpecial::kYes}, front));
  const std::string added = tokenizer.decode(front, tokenizer::SkipSpecial::kNo);
  if (!added.empty() && pieces.front().starts_with(added)) {
    pieces.front().erase(0, added.size());
  }
  return pieces;
}

}  // namespace

ApiStatus check_media(const api::ChatInput& chat, const ServedModel& model,
                      const media::MediaConfig& config) {
  if (chat.media.size() > config.items_max) {
    return refuse(chat.media[config.items_max].path,
                  fmt::format("is one too many: a request has at most {} images, recordings and "
                              "videos here (media.items_max)",
                              config.items_max));
  }
  for (const inference::MediaPart& part : chat.media) {
    if (!model.media.has(part.kind)) {
      return refuse(part.path,
                    fmt::format("is {}, but model '{}' takes {}: leave it out, or serve the model "
                                "with an engine that takes it (stator worker --media {})",
                                article(part.kind), model.name,
                                model.media.any() ? "text and " + model.media.text() + " only"
                                                  : std::string("text only"),
                                to_string(part.kind)));
    }
  }
  return {};
}

ApiError to_api_error(media::LoadError failed) {
  Error error(failed.error.code(),
              fmt::format("Validation: {}: {}", failed.path, failed.error.message()));
  return {std::move(error), std::move(failed.path)};
}

ApiResult<MediaBatch> read_inline_media(api::ChatInput& chat, const media::MediaConfig& config,
                                        net::ByteBudget* budget) {
  MediaBatch batch;
  batch.blobs.resize(chat.media.size());
  for (size_t i = 0; i < chat.media.size(); ++i) {
    inference::MediaPart& part = chat.media[i];
    if (!media::is_data_url(part.source)) {
      batch.wanted.push_back(
          {.kind = part.kind, .source = std::move(part.source), .path = part.path});
      continue;
    }
    auto raw = media::read_data_url(part.source, config.bytes_max);
    part.source = std::string();  // it may be large
    auto blob = raw ? media::make_blob(part.kind, std::move(*raw), config, budget)
                    : Result<media::BlobPtr>(std::move(raw.error()));
    if (!blob) {
      return to_api_error({.error = std::move(blob.error()), .path = part.path});
    }
    batch.blobs[i] = std::move(*blob);
  }
  return batch;
}

void add_fetched(MediaBatch& batch, std::vector<media::BlobPtr> fetched) {
  size_t next = 0;
  for (media::BlobPtr& blob : batch.blobs) {
    if (blob == nullptr && next < fetched.size()) {
      blob = std::move(fetched[next++]);
    }
  }
  batch.wanted.clear();
}

ApiStatus check_total(const api::ChatInput& chat, const MediaBatch& batch,
                      const media::MediaConfig& config) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < batch.blobs.size(); ++i) {
    bytes += batch.blobs[i]->bytes.size();
    if (bytes > config.request_bytes_max) {
      return ApiError(Error(Code::kTooLarge,
                            fmt::format("{}: the media of one request may have {} bytes together "
                                        "(media.request_bytes_max)",
                                        chat.media[i].path, config.request_bytes_max)),
                      chat.media[i].path);
    }
  }
  return {};
}

ApiResult<std::string> render_with_media(const api::ChatInput& chat,
                                         const MediaPromptContext& context) {
  const ServedModel& model = context.model;
  if (model.assets->chat_template == nullptr ||
      model.assets->chat_template->traits().content_parts) {
    return context.encoder.render_chat(chat, model, context.now, context.cancel);
  }
  api::ChatInput flat = chat;
  flat.messages_json =
      api::flatten_media(chat.messages_json, kDepthMax,
                         [&](size_t, MediaKind kind) { return placeholder_text(model, kind); });
  return context.encoder.render_chat(flat, model, context.now, context.cancel);
}

ApiResult<MediaPrompt> make_media_prompt(const api::ChatInput& chat,
                                         std::vector<media::BlobPtr> blobs,
                                         const MediaPromptContext& context) {
  const ServedModel& model = context.model;
  const media::PromptRules& rules = model.assets->media_rules;
  STATOR_TRY(std::string text, render_with_media(chat, context));
  MediaPrompt prompt;
  prompt.text = text;
  STATOR_TRY(prompt.ids, context.encoder.encode_text(std::move(text), model, context.options));
  auto media = std::make_shared<inference::MediaInput>();
  std::vector<size_t> places;
  const bool found =
      !prompt.ids.is_cut_short && find_placeholders(prompt.ids.ids, blobs, rules, places);
  for (size_t i = 0; i < blobs.size(); ++i) {
    media->items.push_back({.blob = std::move(blobs[i]), .detail = chat.media[i].detail});
  }
  if (prompt.ids.is_cut_short) {
    prompt.media = std::move(media);
    return prompt;
  }
  if (found) {
    expand(prompt.ids.ids, places, rules, media->items);
  }
  prompt.ids.sequences =
      hash_media_blocks(prompt.ids.ids, media->items, model.block_size, context.options.hash_seed);
  STATOR_TRY(const std::string arguments, context.encoder.template_arguments(chat));
  media->chat_json = make_chat_json(chat, arguments);
  if (model.media_in_text) {
    STATOR_TRY(media->pieces, make_pieces(chat, media->items.size(), context));
  }
  prompt.media = std::move(media);
  return prompt;
}

std::string describe_media(const inference::MediaInput& media) {
  std::string out;
  json::Writer json(out);
  json.begin_array();
  for (const inference::MediaItem& item : media.items) {
    json.begin_object().key("kind").value(to_string(item.blob->kind));
    json.key("hash").value(fmt::format("{:016x}", item.blob->hash()));
    json.key("token_begin").value(item.token_begin);
    json.key("token_count").value(item.token_count).end_object();
  }
  json.end_array();
  return out;
}

std::vector<blocks::SequenceHash> hash_media_blocks(std::span<const TokenId> tokens,
                                                    std::span<const inference::MediaItem> items,
                                                    uint32_t block_size, uint64_t seed) {
  std::vector<blocks::SequenceHash> sequences;
  std::vector<uint64_t> touching;
  for (size_t begin = 0; begin + block_size <= tokens.size(); begin += block_size) {
    touching.clear();
    for (const inference::MediaItem& item : items) {
      const size_t end = item.token_begin + size_t{std::max(item.token_count, 1U)};
      if (item.token_begin < begin + block_size && end > begin) {
        touching.push_back(item.blob->hash());
      }
    }
    std::ranges::sort(touching);
    touching.erase(std::ranges::unique(touching).begin(), touching.end());
    const auto local = blocks::hash_block(tokens.subspan(begin, block_size), seed, touching);
    sequences.push_back(sequences.empty() ? blocks::chain(local)
                                          : blocks::chain(sequences.back(), local));
  }
  return sequences;
}

}  // namespace stator::frontend
