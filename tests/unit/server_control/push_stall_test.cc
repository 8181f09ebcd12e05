// Pushes that stop half-way: whose memory they hold, and when it goes back.
#include <gmock/gmock.h>

#include "tests/unit/server_control/daemon_client.h"

namespace forebay::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Three megabytes: two of them do not fit.
constexpr uint32_t kTokens = 600'000;

class StalledPush : public DaemonTest {
 protected:
  void StartWithTwoAssignments() {
    node::Config config;
    config.memory_payload_bytes_max = uint64_t{5} << 20;
    config.limits_push_stall_ms = 20;
    Start(config);
    PutSource("math", 2, 4);
    OpenSession();
    acquired_ = Acquire(2);
    ASSERT_EQ(acquired_.assignments_size(), 2);
  }
  // Sends the header and a tenth of the payload, and keeps the rest.
  std::unique_ptr<PushStream> Half(const v1::Assignment& assignment, grpc::ClientContext* context,
                                   v1::PushFrame* rest, uint32_t tokens = kTokens) {
    v1::PushFrame frame = Frame(assignment, tokens, 1);
    const std::string payload = frame.payload();
    frame.set_payload(payload.substr(0, payload.size() / 10));
    rest->set_payload(payload.substr(payload.size() / 10));
    auto stream = Push(context);
    EXPECT_TRUE(stream->Write(SerializeBody(frame)));
    EXPECT_EQ(Reply(stream.get()).accepted(), 0u);
    return stream;
  }
  static v1::PushReply Reply(PushStream* stream) {
    grpc::ByteBuffer body;
    v1::PushReply reply;
    EXPECT_TRUE(stream->Read(&body) && ParseBody(&body, &reply));
    return reply;
  }
  // What the server says when it ends the stream.
  static grpc::Status EndOf(PushStream* stream) {
    grpc::ByteBuffer body;
    EXPECT_FALSE(stream->Read(&body));
    return stream->Finish();
  }
  void Release(const v1::Assignment& assignment) {
    v1::ReleaseRequest release;
    release.set_session(1);
    release.add_attempt_ids(assignment.attempt_id());
    release.add_tokens(assignment.token());
    Good<v1::ReleaseResponse>("ActorService/Release", release);
  }

  v1::AcquireResponse acquired_;
  v1::PushFrame rest_;
};

TEST_F(StalledPush, GivesItsMemoryToThoseWhoWait) {
  StartWithTwoAssignments();
  grpc::ClientContext context;
  auto stalled = Half(acquired_.assignments(0), &context, &rest_);
  EXPECT_EQ(PushOne(Frame(acquired_.assignments(1), kTokens, 1)).accepted(), 1u);
  const grpc::Status end = EndOf(stalled.get());
  EXPECT_EQ(end.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(end.error_message(),
              AllOf(HasSubstr("payload: lacks 2700000 bytes"), HasSubstr("wait for memory"),
                    HasSubstr("limits.push_stall_ms")));
  EXPECT_THAT(Get("/metrics"), HasSubstr("forebay_pushes_stalled_total{reason=\"memory\"} 1"));
}

TEST_F(StalledPush, EndsWhenItsLeaseIsOverAndOnlyThen) {
  StartWithTwoAssignments();
  const uint32_t tokens = 1'000;
  grpc::ClientContext first_context, second_context;
  v1::PushFrame rest_of_second;
  auto first = Half(acquired_.assignments(0), &first_context, &rest_, tokens);
  auto second = Half(acquired_.assignments(1), &second_context, &rest_of_second, tokens);
  Release(acquired_.assignments(1));
  const grpc::Status end = EndOf(second.get());
  EXPECT_EQ(end.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(end.error_message(), HasSubstr("lease is over"));
  EXPECT_THAT(Get("/metrics"), HasSubstr("forebay_pushes_stalled_total{reason=\"lease_over\"} 1"));
  // The other has stood still for as long, at nobody's cost, and goes on.
  EXPECT_TRUE(first->Write(SerializeBody(rest_)));
  EXPECT_EQ(Reply(first.get()).accepted(), 1u);
}

}  // namespace
}  // namespace forebay::server
