// SPDX-License-Identifier: Apache-2.0
#include "stator/media/media_config.h"

namespace stator::media {

void describe(ConfigSchema& schema, MediaConfig& config) {
  schema.text("media.allowed_hosts", config.allowed_hosts,
              "hosts that URLs of images, audio and video may name: a list such as "
              "images.example,*.cdn.example,files.example:8443; empty = every public host",
              {.flag = "media-allowed-hosts"});
  schema.boolean("media.allow_private", config.allow_private,
                 "fetch media from private addresses, bare addresses and any port, too: only where "
                 "every client is trusted with the network of this process",
                 {.flag = "media-allow-private", .env_peer = "DYN_MM_ALLOW_INTERNAL"});
  schema.text("media.local_folder", config.local_folder,
              "file: URLs below this folder are read; empty = none",
              {.flag = "media-local-folder"});
  schema.bytes("media.max_bytes", config.bytes_max, "largest image, recording or video",
               {.flag = "media-max-bytes"});
  schema.bytes("media.request_bytes_max", config.request_bytes_max,
               "those of one request together; workers of other processes take at most 12 MiB");
  schema.bytes("media.held_bytes_max", config.held_bytes_max,
               "memory for media of all requests together, beyond: overload status");
  schema.integer("media.image_pixels_max", config.image_pixels_max, 1, uint64_t{1} << 40,
                 "width times height of one image, by its header");
  schema.integer("media.items_max", config.items_max, 1, 256, "media of one request");
  schema.integer("media.redirects_max", config.redirects_max, 0, 10,
                 "redirects followed to one item, each checked as the first URL was");
  schema.integer("media.fetches_max", config.fetches_max, 1, 4096,
                 "fetches at once, beyond: they wait");
  schema.duration("media.timeout", config.timeout,
                  "of one fetch, with its redirects and its wait for a place");
  schema.duration("media.connect_timeout", config.connect_timeout, "for each connection");
  schema.bytes("media.cache_bytes", config.cache_bytes,
               "memory for media that were fetched, 0 = none");
  schema.duration("media.cache_ttl", config.cache_ttl,
                  "how long a fetched item is used for the same URL");
  schema.text("media.user_agent", config.user_agent, "User-Agent of fetches");
}

}  // namespace stator::media
