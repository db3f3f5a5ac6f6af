// SPDX-License-Identifier: Apache-2.0
#include "stator/batches/batch_service.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <map>

#include "stator/core/random.h"

namespace stator::batches {
namespace {

using namespace std::chrono_literals;

/// Answers what `answers` allows at once, keeps the rest.
class Runner final : public LineRunner {
 public:
  bool run(const Call& call, Done done) override {
    EXPECT_EQ(call.path, "/v1/completions");
    EXPECT_EQ(call.priority, -100);
    MutexLock lock(mutex_);
    const std::string key(call.body);
    ++runs_[key];
    if (answers_ == 0) {
      held_.push_back(std::move(done));
      return true;
    }
    --answers_;
    const int status = key.contains("busy") && runs_[key] == 1 ? 503
                       : key.contains("bad")                   ? 400
                                                               : 200;
    done({status, "req", R"({"echo":)" + key + "}"});
    return true;
  }
  void allow(int answers) {
    MutexLock lock(mutex_);
    answers_ = answers;
  }
  int runs(const std::string& body) {
    MutexLock lock(mutex_);
    return runs_[body];
  }
  size_t held() {
    MutexLock lock(mutex_);
    return held_.size();
  }
  void release() {
    MutexLock lock(mutex_);
    for (Done& done : held_) {
      done({200, "req", "{}"});
    }
    held_.clear();
  }

 private:
  Mutex mutex_;
  int answers_ STATOR_GUARDED_BY(mutex_) = 1'000'000;
  std::map<std::string, int> runs_ STATOR_GUARDED_BY(mutex_);
  std::vector<Done> held_ STATOR_GUARDED_BY(mutex_);
};

class Batches : public testing::Test {
 protected:
  void TearDown() override {
    service_.reset();
    std::filesystem::remove_all(config_.folder);
  }
  void start() {
    auto service = BatchService::open(config_, metrics_, clock_);
    ASSERT_TRUE(service) << service.error().message();
    service_ = std::move(*service);
    service_->start(runner_);
  }
  api::ApiResult<ApiReply> ask(ApiCall call) {
    std::promise<api::ApiResult<ApiReply>> promise;
    EXPECT_TRUE(service_->ask(std::move(call), [&](api::ApiResult<ApiReply> reply) {
      promise.set_value(std::move(reply));
    }));
    return promise.get_future().get();
  }
  json::Value get(std::string_view path) {
    auto reply = ask({.method = "GET", .path = std::string(path)});
    EXPECT_TRUE(reply) << reply.error().message();
    return json::parse(reply->body).value();
  }
  std::string upload(const std::string& content) {
    auto reply = ask({.method = "POST",
                      .path = "/v1/files",
                      .content_type = "multipart/form-data; boundary=b",
                      .body = "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch"
                              "\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; "
                              "filename=\"in.jsonl\"\r\n\r\n" +
                              content + "\r\n--b--"});
    EXPECT_TRUE(reply) << reply.error().message();
    return std::string(json::parse(reply->body)->text_at({"id"}));
  }
  json::Value create(const std::string& content) {
    auto reply = ask({.method = "POST",
                      .path = "/v1/batches",
                      .body = R"({"input_file_id":")" + upload(content) +
                              R"(","endpoint":"/v1/completions","completion_window":"24h"})"});
    EXPECT_TRUE(reply) << reply.error().message();
    return json::parse(reply->body).value();
  }
  /// Asks until the batch has this status.
  json::Value wait_for(const std::string& id, std::string_view status) {
    while (true) {
      json::Value batch = get("/v1/batches/" + id);
      if (batch.text_at({"status"}) == status) {
        return batch;
      }
    }
  }
  std::string content(const json::Value& batch, std::string_view key) {
    auto reply = ask(
        {.method = "GET", .path = "/v1/files/" + std::string(batch.text_at({key})) + "/content"});
    EXPECT_TRUE(reply);
    return reply ? reply->body : "";
  }
  static std::string line(const std::string& id) {
    return R"({"custom_id":")" + id + R"(","method":"POST","url":"/v1/completions","body":{"p":")" +
           id + "\"}}\n";
  }
  static std::string body(const std::string& id) { return R"({"p":")" + id + "\"}"; }

  BatchConfig config_{.folder = testing::TempDir() + "/batches" +
                                std::to_string(Random::from_entropy().next())};
  Metrics metrics_;
  SystemClock clock_;
  Runner runner_;
  std::unique_ptr<BatchService> service_;
};

TEST_F(Batches, RunsEveryLineAndWritesBothFiles) {
  start();

  const json::Value batch = wait_for(
      std::string(create(line("a") + line("bad") + line("busy")).text_at({"id"})), "completed");

  EXPECT_EQ(json::to_text(*batch.find("request_counts")),
            R"({"total":3,"completed":2,"failed":1})");
  EXPECT_TRUE(content(batch, "output_file_id").contains(R"("body":{"echo":{"p":"a"}})"));
  EXPECT_TRUE(content(batch, "error_file_id").contains(R"("status_code":400)"));
  EXPECT_EQ(runner_.runs(body("busy")), 2);
  EXPECT_EQ(get("/v1/files").find("data")->size(), 3U);
}

TEST_F(Batches, NeitherLosesNorRepeatsALineWhenItIsStopped) {
  start();
  runner_.allow(3);
  std::string all;
  for (char c = 'a'; c < 'k'; ++c) {
    all += line(std::string(1, c));
  }
  const std::string id(create(all).text_at({"id"}));
  while (get("/v1/batches/" + id).find("request_counts")->find("completed")->as_int64() != 3 ||
         runner_.held() != 7) {
  }
  service_.reset();  // with seven lines in flight

  runner_.allow(1'000'000);
  start();
  const json::Value batch = wait_for(id, "completed");

  const std::string output = content(batch, "output_file_id");
  EXPECT_EQ(std::ranges::count(output, '\n'), 10);
  int twice = 0;
  for (char c = 'a'; c < 'k'; ++c) {
    EXPECT_TRUE(output.contains(R"("custom_id":")" + std::string(1, c) + "\""));
    twice += runner_.runs(body(std::string(1, c))) == 2 ? 1 : 0;
  }
  EXPECT_EQ(twice, 7);
}

TEST_F(Batches, CancelsWhatHasNotRun) {
  config_.inflight_max = 1;
  start();
  runner_.allow(0);
  const std::string id(create(line("a") + line("b")).text_at({"id"}));
  while (runner_.held() == 0) {
  }

  EXPECT_TRUE(ask({.method = "POST", .path = "/v1/batches/" + id + "/cancel"}));
  runner_.release();
  const json::Value batch = wait_for(id, "cancelled");

  EXPECT_EQ(std::ranges::count(content(batch, "output_file_id"), '\n'), 1);
  EXPECT_TRUE(content(batch, "error_file_id").contains("batch_cancelled"));
  EXPECT_FALSE(ask({.method = "POST", .path = "/v1/batches/" + id + "/cancel"}));
}

TEST_F(Batches, RefusesWhatIsWrong) {
  config_.file_bytes_max = 200;
  start();

  const json::Value failed = create("nonsense\n");
  EXPECT_EQ(failed.text_at({"status"}), "failed");
  EXPECT_EQ(failed.find("errors")->find("data")->elements()[0].text_at({"code"}),
            "invalid_json_line");
  EXPECT_EQ(ask({.method = "GET", .path = "/v1/files/file-x"}).error().code(), Code::kNotFound);
  EXPECT_EQ(ask({.method = "GET", .path = "/v1/batches/x"}).error().code(), Code::kNotFound);
  EXPECT_EQ(ask({.method = "POST", .path = "/v1/batches", .body = "{}"}).error().param, "endpoint");
  EXPECT_EQ(ask({.method = "POST", .path = "/v1/batches", .body = "["}).error().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(
      ask({.method = "POST",
           .path = "/v1/files",
           .content_type = "multipart/form-data; boundary=b",
           .body = "--b\r\nContent-Disposition: form-data; name=purpose\r\n\r\nbatch\r\n--b\r\n"
                   "Content-Disposition: form-data; name=file; filename=f\r\n\r\n" +
                   std::string(201, 'x') + "\r\n--b--"})
          .error()
          .code(),
      Code::kTooLarge);
}

TEST_F(Batches, ShowsFilesToTheirOwnerOnly) {
  start();
  const std::string id = upload(line("a"));

  EXPECT_EQ(ask({.method = "GET", .path = "/v1/files/" + id, .owner = "bob"}).error().code(),
            Code::kNotFound);
  EXPECT_TRUE(ask({.method = "DELETE", .path = "/v1/files/" + id}));
  EXPECT_FALSE(ask({.method = "GET", .path = "/v1/files/" + id}));
}

}  // namespace
}  // namespace stator::batches
