// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/model_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::perf {
namespace {

using testing::HasSubstr;

TEST(ModelShape, ReadsAConfig) {
  const ModelShape demo = *read_model_shape(STATOR_SOURCE_DIR "/models/demo");
  EXPECT_EQ(demo.layers, 4U);
  EXPECT_EQ(demo.hidden, 256U);
  EXPECT_EQ(demo.heads, 4U);
  EXPECT_EQ(demo.kv_heads, 2U);
  EXPECT_EQ(demo.head_dim, 64U);
  EXPECT_EQ(demo.experts, 0U);
}

TEST(ModelShape, FindsExpertsAndNestedTextModels) {
  const ModelShape shape = *parse_model_shape(R"({"text_config":{"num_hidden_layers":2,
    "hidden_size":64,"num_attention_heads":4,"vocab_size":100,"intermediate_size":256,
    "num_experts":8,"num_experts_per_tok":2,"moe_intermediate_size":32}})",
                                              "x");
  EXPECT_EQ(shape.experts, 8U);
  EXPECT_EQ(shape.experts_per_token, 2U);
  EXPECT_EQ(shape.intermediate, 32U);
  EXPECT_EQ(shape.head_dim, 16U);
  EXPECT_EQ(shape.kv_heads, 4U);
}

TEST(ModelShape, NamesTheFieldThatIsWrong) {
  EXPECT_THAT(parse_model_shape(R"({"num_hidden_layers":0})", "x").error().message(),
              HasSubstr("'x': num_hidden_layers must be"));
  EXPECT_THAT(parse_model_shape("[]", "x").error().message(), HasSubstr("JSON object"));
  EXPECT_EQ(read_model_shape("/no/such").error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace stator::perf
