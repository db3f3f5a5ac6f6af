// SPDX-License-Identifier: Apache-2.0
#include "stator/services/load_json.h"

#include "stator/json/writer.h"

namespace stator::services {

void write_load(json::Writer& out, const SlotLoad& load, std::string_view prefix) {
  const std::string name(prefix);
  out.key("worker_id").value(load.worker.worker.value());
  out.key("dp_rank").value(load.worker.dp_rank);
  out.key(name + "_prefill_tokens").value(load.prefill_tokens);
  out.key(name + "_decode_blocks").value(load.decode_blocks);
  out.key("active_requests").value(load.requests);
}

std::string render_potential_loads(std::span<const SlotLoad> loads) {
  std::string body;
  json::Writer out(body);
  out.begin_array();
  for (const SlotLoad& load : loads) {
    out.begin_object();
    write_load(out, load, "potential");
    out.end_object();
  }
  out.end_array();
  return body;
}

}  // namespace stator::services
