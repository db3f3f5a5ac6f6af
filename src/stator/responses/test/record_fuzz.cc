// SPDX-License-Identifier: Apache-2.0
// Files of stored responses: what is read from one is written as it was read.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/responses/record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator::responses;
  Record record = read_record(std::string_view(reinterpret_cast<const char*>(data), size));
  if (record.op != "put") {
    return 0;
  }
  const Record again = read_record(put_record(record.response));
  STATOR_ASSERT(again.op == "put" && again.response.id == record.response.id &&
                    again.response.owner == record.response.owner &&
                    again.response.input_json == record.response.input_json &&
                    again.response.output_json == record.response.output_json &&
                    again.response.events == record.response.events,
                "a response that was read is the one that is written");
  mark_interrupted(record.response);
  return 0;
}
