// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/etcd_discovery.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <future>

#include "stator/core/mutex.h"
#include "stator/net/shard.h"
#include "stator/proto/etcd/v3/etcd.grpc.pb.h"

namespace stator::discovery {
namespace {

using namespace std::chrono_literals;
namespace pb = etcdserverpb;

/// A store that answers, or hangs where it is told to, until the caller gives up.
class FakeEtcd final : public pb::KV::Service,
                       public pb::Watch::Service,
                       public pb::Lease::Service {
 public:
  FakeEtcd() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(static_cast<pb::KV::Service*>(this));
    builder.RegisterService(static_cast<pb::Watch::Service*>(this));
    builder.RegisterService(static_cast<pb::Lease::Service*>(this));
    server_ = builder.BuildAndStart();
  }
  ~FakeEtcd() override { server_->Shutdown(gpr_time_from_millis(0, GPR_TIMESPAN)); }

  EtcdOptions options() const {
    EtcdOptions options;
    options.endpoints = {"127.0.0.1:" + std::to_string(port_)};
    options.call_timeout = 1h;  // nothing ends by itself
    return options;
  }

  enum class Hang : uint8_t { kNothing, kPuts, kEverything };
  /// kEverything ends the watches, too: their owners have to ask again.
  void set_hang(Hang hang) {
    const MutexLock lock(mutex_);
    hang_ = hang;
    changed_.notify_all();
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
    while (watches_ == 0) {
      changed_.wait(lock);
    }
  }
  /// Somebody else's record appears.
  void publish(const InstanceRecord& record) {
    const MutexLock lock(mutex_);
    pb::WatchResponse event;
    event.mutable_header()->set_revision(++revision_);
    pb::Event& put = *event.add_events();
    put.set_type(pb::Event::PUT);
    put.mutable_kv()->set_key("stator/v1/instances/" + record.key.to_string());
    put.mutable_kv()->set_value(to_json(record));
    put.mutable_kv()->set_mod_revision(revision_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }

 private:
  grpc::Status answer(grpc::ServerContext* call, bool hangs) {
    MutexLock lock(mutex_);
    stuck_ += hangs ? 1 : 0;
    changed_.notify_all();
    while (hangs && !call->IsCancelled()) {
      changed_.wait_for(lock, 5ms);
    }
    stuck_ -= hangs ? 1 : 0;
    return grpc::Status::OK;
  }
  bool hangs(Hang least) {
    const MutexLock lock(mutex_);
    return hang_ >= least;
  }

  grpc::Status Range(grpc::ServerContext* call, const pb::RangeRequest*,
                     pb::RangeResponse* response) override {
    response->mutable_header()->set_cluster_id(1);
    response->mutable_header()->set_revision(1);
    return answer(call, hangs(Hang::kEverything));
  }
  grpc::Status Put(grpc::ServerContext* call, const pb::PutRequest*, pb::PutResponse*) override {
    return answer(call, hangs(Hang::kPuts));
  }
  grpc::Status Txn(grpc::ServerContext* call, const pb::TxnRequest*, pb::TxnResponse*) override {
    return answer(call, hangs(Hang::kEverything));
  }
  grpc::Status LeaseGrant(grpc::ServerContext* call, const pb::LeaseGrantRequest*,
                          pb::LeaseGrantResponse* response) override {
    response->set_id(7);
    response->set_ttl(10);
    return answer(call, hangs(Hang::kEverything));
  }
  grpc::Status LeaseRevoke(grpc::ServerContext* call, const pb::LeaseRevokeRequest*,
                           pb::LeaseRevokeResponse*) override {
    return answer(call, hangs(Hang::kEverything));
  }
  grpc::Status Watch(
      grpc::ServerContext* call,
      grpc::ServerReaderWriter<pb::WatchResponse, pb::WatchRequest>* stream) override {
    pb::WatchRequest request;
    pb::WatchResponse response;
    response.set_created(true);
    stream->Read(&request);
    stream->Write(response);
    MutexLock lock(mutex_);
    ++watches_;
    changed_.notify_all();
    while (!call->IsCancelled() && hang_ != Hang::kEverything) {
      if (events_.empty()) {
        changed_.wait_for(lock, 5ms);
        continue;
      }
      response = std::move(events_.front());
      events_.pop_front();
      stream->Write(response);
    }
    --watches_;
    return grpc::Status::OK;
  }

  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  Mutex mutex_;
  std::condition_variable_any changed_;
  Hang hang_ STATOR_GUARDED_BY(mutex_) = Hang::kNothing;
  int stuck_ STATOR_GUARDED_BY(mutex_) = 0;
  int watches_ STATOR_GUARDED_BY(mutex_) = 0;
  int64_t revision_ STATOR_GUARDED_BY(mutex_) = 1;
  std::deque<pb::WatchResponse> events_ STATOR_GUARDED_BY(mutex_);
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
