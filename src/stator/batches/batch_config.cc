// SPDX-License-Identifier: Apache-2.0
#include "stator/batches/batch_config.h"

namespace stator::batches {

void describe(ConfigSchema& schema, BatchConfig& config) {
  schema.text("batches.folder", config.folder,
              "folder of /v1/files and /v1/batches; empty: neither is served");
  schema.bytes("batches.file_bytes_max", config.file_bytes_max, "of one uploaded file");
  schema.bytes("batches.folder_bytes_max", config.folder_bytes_max,
               "of all files together; beyond, uploads are refused");
  schema.integer("batches.files_max", config.files_max, 1, 1 << 24, "files kept at once");
  schema.integer("batches.batches_max", config.batches_max, 1, 1 << 20,
                 "batches known at once; beyond, the oldest that ended are forgotten");
  schema.integer("batches.lines_max", config.lines_max, 1, 1 << 24, "requests of one batch");
  schema.integer("batches.inflight_max", config.inflight_max, 1, 65536,
                 "requests of all batches that run at once");
  schema.integer("batches.priority", config.priority, -1'000'000, 1'000'000,
                 "priority of their requests; those of clients have 0");
  schema.duration("batches.output_keep", config.output_keep, "how long results are kept");
}

}  // namespace stator::batches
