// SPDX-License-Identifier: Apache-2.0
#include "stator/api/pool_response.h"

#include <gtest/gtest.h>

namespace stator::api {
namespace {

PoolFrame frame(PoolEncoding encoding = PoolEncoding::kFloat) {
  return {.identity = {.id = "embd-1", .model = "m", .created_s = 7},
          .prompt_tokens = 5,
          .encoding = encoding};
}

TEST(PoolResponse, EmbeddingsAreAListOfNumbers) {
  const float values[] = {0.5F, -1.25F};
  const PoolRow rows[] = {{.values = values, .width = 2}};
  std::string out;

  append_embeddings(out, frame(), rows);

  EXPECT_EQ(out, R"({"object":"list","model":"m","data":[{"object":"embedding","index":0,)"
                 R"("embedding":[0.5,-1.25]}],"usage":{"prompt_tokens":5,"total_tokens":5}})");
}

TEST(PoolResponse, Base64HasEveryLengthOfTail) {
  // python3: base64.b64encode(struct.pack("<3f", 1, -2.5, 0.1)), and of the first one and two.
  const float values[] = {1.0F, -2.5F, 0.1F};
  const std::string_view wanted[] = {"AACAPw==", "AACAPwAAIMA=", "AACAPwAAIMDNzMw9"};
  for (size_t count = 1; count <= 3; ++count) {
    const PoolRow rows[] = {{.values = std::span(values).first(count), .width = 3}};
    std::string out;
    append_embeddings(out, frame(PoolEncoding::kBase64), rows);
    EXPECT_TRUE(out.contains("\"embedding\":\"" + std::string(wanted[count - 1]) + "\"}")) << out;
  }
}

TEST(PoolResponse, VectorsPerTokenAreAListOfLists) {
  const float values[] = {1, 2, 3, 4};
  const PoolRow rows[] = {{.values = values, .width = 2, .is_matrix = true}};
  std::string out;

  append_pooling(out, frame(), rows);

  EXPECT_TRUE(out.contains(R"({"index":0,"object":"pooling","data":[[1,2],[3,4]]})")) << out;
  EXPECT_EQ(binary_metadata(frame(), rows),
            R"({"id":"embd-1","created":7,"model":"m","data":[{"index":0,"embed_dtype":"float32",)"
            R"("endianness":"little","start":0,"end":16,"shape":[2,2]}],)"
            R"("usage":{"prompt_tokens":5,"total_tokens":5}})");
}

TEST(PoolResponse, ClassesNameTheLikeliest) {
  const float values[] = {0.25F, 0.75F};
  const PoolRow rows[] = {{.values = values, .width = 2}};
  const std::string labels[] = {"no", "yes"};
  std::string out;

  append_classes(out, frame(), rows, labels);

  EXPECT_TRUE(out.contains(R"({"index":0,"label":"yes","probs":[0.25,0.75],"num_classes":2})"))
      << out;
}

TEST(PoolResponse, RankedDocumentsKeepTheirIndex) {
  const RankedDocument documents[] = {{.index = 2, .score = 0.5F, .text = "b"},
                                      {.index = 0, .score = 0.25F, .text = std::nullopt}};
  std::string out;

  append_ranking(out, frame(), documents);

  EXPECT_TRUE(
      out.contains(R"("results":[{"index":2,"relevance_score":0.5,"document":{"text":"b"}},)"
                   R"({"index":0,"relevance_score":0.25}])"))
      << out;
}

TEST(PoolResponse, ShorterVectorsAreUnitVectorsAgain) {
  std::vector<float> values = {3, 4, 12, 0, 0, 1};

  shorten(values, 3, 2);

  EXPECT_EQ(values, (std::vector<float>{0.6F, 0.8F, 0, 0}));
}

}  // namespace
}  // namespace stator::api
