// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/etcd_discovery.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <utility>

#include "stator/core/mutex.h"
#include "stator/net/grpc_server.h"
#include "stator/net/shard.h"
#include "stator/proto/etcd/v3/etcd.pb.h"

namespace stator::discovery {
namespace {

using namespace std::chrono_literals;
namespace pb = etcdserverpb;

/// A store that answers, or hangs where it is told to, until the caller gives up.
class FakeEtcd {
 public:
  enum class Hang : uint8_t { kNothing, kPuts, kEverything };

  FakeEtcd() {
    shards_.start();
    net::GrpcServer::Methods methods;
    pb::RangeResponse range;
    range.mutable_header()->set_cluster_id(1);
    range.mutable_header()->set_revision(1);
    pb::LeaseGrantResponse lease;
    lease.set_id(7);
    lease.set_ttl(10);
    const auto serve = [&](const std::string& path, Hang least, std::string answer) {
      methods["/etcdserverpb." + path] = [this, least, answer = std::move(answer)](auto call) {
        return std::make_shared<Method>(*this, std::move(call), least, answer);
      };
    };
    serve("KV/Range", Hang::kEverything, range.SerializeAsString());
    serve("KV/Put", Hang::kPuts, "");
    serve("KV/Txn", Hang::kEverything, "");
    serve("Lease/LeaseGrant", Hang::kEverything, lease.SerializeAsString());
    serve("Lease/LeaseRevoke", Hang::kEverything, "");
    methods["/etcdserverpb.Watch/Watch"] = [this](auto call) {
      return std::make_shared<Watching>(*this, std::move(call));
    };
    server_ = std::move(
        net::GrpcServer::listen({}, std::move(methods), shards_.shard(0), metrics_).value());
  }
  FakeEtcd(const FakeEtcd&) = delete;
  FakeEtcd& operator=(const FakeEtcd&) = delete;
  ~FakeEtcd() {
    server_->stop({});
    shards_.stop();
  }

  EtcdOptions options() const {
    EtcdOptions options;
    options.endpoints = {"127.0.0.1:" + std::to_string(server_->port())};
    options.call_timeout = 1h;  // nothing ends by itself
    return options;
  }

  /// kEverything ends the watches, too: their owners have to ask again.
  void set_hang(Hang hang) {
    std::map<Watching*, std::shared_ptr<net::GrpcServerCall>> ended;
    {
      const MutexLock lock(mutex_);
      hang_ = hang;
      if (hang == Hang::kEverything) {
        ended.swap(watches_);
      }
    }
    for (const auto& [watching, call] : ended) {
      call->finish({});
    }
  }
  /// Returns when a call hangs.
  void wait_until_stuck() {
    MutexLock lock(mutex_);
    while (stuck_ == 0) {
      changed_.wait(lock);
    }
  }
  void wait_until_watched() {
    MutexLock lock(mutex_);
    while (watches_.empty()) {
      changed_.wait(lock);
    }
  }
  /// Somebody else's record appears.
  void publish(const InstanceRecord& record) {
    pb::WatchResponse event;
    event.mutable_header()->set_revision(2);
    pb::Event& put = *event.add_events();
    put.set_type(pb::Event::PUT);
    put.mutable_kv()->set_key("stator/v1/instances/" + record.key.to_string());
    put.mutable_kv()->set_value(to_json(record));
    put.mutable_kv()->set_mod_revision(2);
    std::map<Watching*, std::shared_ptr<net::GrpcServerCall>> watches;
    {
      const MutexLock lock(mutex_);
      watches = watches_;
    }
    for (const auto& [watching, call] : watches) {
      call->send(event.SerializeAsString());
      call->flush();
    }
  }

 private:
  class Method final : public net::GrpcCallHandler {
   public:
    Method(FakeEtcd& store, std::shared_ptr<net::GrpcServerCall> call, Hang least,
           std::string answer)
        : store_(store), call_(std::move(call)), least_(least), answer_(std::move(answer)) {}
    void on_message(std::string_view /*message*/) override {}
    void on_half_closed() override {
      const MutexLock lock(store_.mutex_);
      stuck_ = store_.hang_ >= least_;
      if (stuck_) {
        ++store_.stuck_;
        store_.changed_.notify_all();
      } else {
        call_->send(answer_);
        call_->finish({});
      }
    }
    void on_gone() override {
      const MutexLock lock(store_.mutex_);
      store_.stuck_ -= stuck_ ? 1 : 0;
    }

   private:
    FakeEtcd& store_;
    const std::shared_ptr<net::GrpcServerCall> call_;
    const Hang least_;
    const std::string answer_;
    bool stuck_ = false;
  };
  class Watching final : public net::GrpcCallHandler {
   public:
    Watching(FakeEtcd& store, std::shared_ptr<net::GrpcServerCall> call)
        : store_(store), call_(std::move(call)) {}
    void on_message(std::string_view /*message*/) override {
      pb::WatchResponse created;
      created.set_created(true);
      call_->send(created.SerializeAsString());
      call_->flush();
      const MutexLock lock(store_.mutex_);
      store_.watches_[this] = call_;
      store_.changed_.notify_all();
    }
    void on_half_closed() override {}
    void on_gone() override {
      const MutexLock lock(store_.mutex_);
      store_.watches_.erase(this);
    }

   private:
    FakeEtcd& store_;
    const std::shared_ptr<net::GrpcServerCall> call_;
  };

  Mutex mutex_;
  std::condition_variable_any changed_;
  Hang hang_ STATOR_GUARDED_BY(mutex_) = Hang::kNothing;
  int stuck_ STATOR_GUARDED_BY(mutex_) = 0;
  std::map<Watching*, std::shared_ptr<net::GrpcServerCall>> watches_ STATOR_GUARDED_BY(mutex_);
  SystemClock clock_;
  Metrics metrics_;
  net::ShardSet shards_{1, clock_, metrics_};
  std::unique_ptr<net::GrpcServer> server_;
};

InstanceRecord make_record(uint64_t worker) {
  InstanceRecord record;
  record.key = {"default", "backend", "generate", WorkerId(worker)};
  record.incarnation = Incarnation(1);
  record.address = "127.0.0.1:1";
  record.model.name = "demo";
  return record;
}

/// Set when an instance is added.
class Hears final : public DiscoveryListener {
 public:
  void on_synced() override {}
  void on_added(const InstanceRecord& record) override { added.set_value(record.key.worker); }
  void on_updated(const InstanceRecord&) override {}
  void on_removed(const InstanceRecord&) override {}
  std::promise<WorkerId> added;
};

class EtcdDiscoveryTest : public ::testing::Test {
 protected:
  ~EtcdDiscoveryTest() override { shards_.stop(); }
  std::unique_ptr<Discovery> open() {
    auto opened = open_etcd_discovery(store_.options(), clock_, metrics_);
    EXPECT_TRUE(opened.has_value());
    store_.wait_until_watched();
    return std::move(*opened);
  }

  SystemClock clock_;
  Metrics metrics_;
  net::ShardSet shards_{1, clock_, metrics_};
  FakeEtcd store_;
};

TEST_F(EtcdDiscoveryTest, AStoreThatIsSlowToWriteDelaysNobodyWhoWatches) {
  shards_.start();
  const auto discovery = open();
  Hears hears;
  std::unique_ptr<Watch> watch;
  ASSERT_TRUE(shards_.shard(0).run_and_wait(
      [&] { watch = discovery->watch({}, shards_.shard(0), hears); }));
  const auto registration = discovery->register_instance(make_record(1));
  ASSERT_TRUE(registration.has_value()) << registration.error().message();
  store_.set_hang(FakeEtcd::Hang::kPuts);
  ASSERT_TRUE((*registration)->update(make_record(1)).has_value());
  store_.wait_until_stuck();

  store_.publish(make_record(2));

  EXPECT_EQ(hears.added.get_future().get(), WorkerId(2));
  EXPECT_TRUE(shards_.shard(0).run_and_wait([&] { watch.reset(); }));
}

TEST_F(EtcdDiscoveryTest, ItsEndDoesNotWaitForAFrozenStore) {
  auto discovery = open();
  store_.set_hang(FakeEtcd::Hang::kEverything);
  store_.wait_until_stuck();  // the watch is over, and is to be opened again
  discovery.reset();
}

}  // namespace
}  // namespace stator::discovery
