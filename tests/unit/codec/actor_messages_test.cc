#include "codec/actor_messages.h"

#include <gtest/gtest.h>

#include "tests/unit/codec/header_agreement.h"
#include "tests/unit/codec/random_header.h"

namespace forebay::codec {
namespace {

TEST(ActorMessages, AssignmentsReadBackAsTheyWereWritten) {
  Prng prng(1);
  for (int i = 0; i < 2'000; ++i) {
    std::string bytes;
    std::vector<AssignmentFields> fields(prng.Below(5));
    std::vector<std::string> ids;
    const std::string partial = v1::Partial().SerializeAsString();
    for (AssignmentFields& f : fields) {
      const auto small = [&] { return static_cast<uint32_t>(RandomNumber(prng)); };
      f = {.attempt_id = RandomNumber(prng),
           .token = small(),
           .seed = RandomNumber(prng),
           .group_id = RandomNumber(prng),
           .attempt = small(),
           .source = small(),
           .version = {small(), small()},
           .lease_ms = small(),
           .eval_run = RandomNumber(prng),
           .task_id = RandomNumber(prng)};
      ids.push_back(RandomText(prng));
      std::string content;
      AppendTaskContent(ids.back(), "payload", "", &content);
      v1::Partial message;
      message.set_payload("half");
      AppendAssignment(f, content, message.SerializeAsString(), &bytes);
    }
    v1::SourceInfo info;
    info.set_name("math");
    AppendAcquireTail({info.SerializeAsString()}, "admission", 250, &bytes);
    v1::AcquireResponse response;
    ASSERT_TRUE(response.ParseFromString(bytes));
    ASSERT_EQ(response.assignments_size(), static_cast<int>(fields.size()));
    for (size_t k = 0; k < fields.size(); ++k) {
      const v1::Assignment& a = response.assignments(static_cast<int>(k));
      const AssignmentFields& f = fields[k];
      EXPECT_EQ(a.attempt_id(), f.attempt_id);
      EXPECT_EQ(a.token(), f.token);
      EXPECT_EQ(a.seed(), f.seed);
      EXPECT_EQ(a.group_id(), f.group_id);
      EXPECT_EQ(a.attempt(), f.attempt);
      EXPECT_EQ(a.source(), f.source);
      EXPECT_EQ(a.branch(), f.version.branch);
      EXPECT_EQ(a.version(), f.version.number);
      EXPECT_EQ(a.lease_ms(), f.lease_ms);
      EXPECT_EQ(a.eval_run(), f.eval_run);
      EXPECT_EQ(a.task_id(), f.task_id);
      EXPECT_EQ(a.external_id(), ids[k]);
      EXPECT_EQ(a.payload(), "payload");
      EXPECT_EQ(a.attributes(), "");
      EXPECT_EQ(a.partial().payload(), "half");
    }
    EXPECT_EQ(response.sources(0).name(), "math");
    EXPECT_EQ(response.reason(), "admission");
    EXPECT_EQ(response.retry_after_ms(), 250u);
  }
}

TEST(ActorMessages, TaskContentReadsBack) {
  std::string bytes;
  AppendTaskContent("id", std::string(500, 'p'), "attributes", &bytes);
  TaskContent content;
  ASSERT_TRUE(DecodeTaskContent(bytes, &content));
  EXPECT_EQ(content.external_id, "id");
  EXPECT_EQ(content.payload, std::string(500, 'p'));
  EXPECT_EQ(content.attributes, "attributes");
  EXPECT_FALSE(DecodeTaskContent(bytes.substr(0, 20), &content));
}

TEST(ActorMessages, PushRepliesReadBack) {
  std::string bytes;
  const std::vector<OutcomeFields> outcomes = {
      {.index = 3,
       .attempt_id = 1ull << 60,
       .result = 5,
       .field = "columns[2].bytes",
       .message = "is 1"},
      {.index = 0, .attempt_id = 0, .result = 2, .field = "", .message = ""}};
  AppendPushReply(7, 300, outcomes, &bytes);
  v1::PushReply reply;
  ASSERT_TRUE(reply.ParseFromString(bytes));
  EXPECT_EQ(reply.frame(), 7u);
  EXPECT_EQ(reply.accepted(), 300u);
  ASSERT_EQ(reply.outcomes_size(), 2);
  EXPECT_EQ(reply.outcomes(0).index(), 3u);
  EXPECT_EQ(reply.outcomes(0).attempt_id(), 1ull << 60);
  EXPECT_EQ(reply.outcomes(0).field(), "columns[2].bytes");
  EXPECT_EQ(reply.outcomes(0).message(), "is 1");
  EXPECT_EQ(reply.outcomes(1).result(), v1::PUSH_RESULT_DUPLICATE);
}

TEST(ActorMessages, RequestsAreReadAsProtobufReadsThem) {
  Prng prng(4);
  for (int i = 0; i < 20'000; ++i) {
    v1::AcquireRequest acquire;
    acquire.set_session(RandomNumber(prng));
    acquire.set_request_id(RandomNumber(prng));
    acquire.set_max(static_cast<uint32_t>(RandomNumber(prng)));
    for (uint64_t k = prng.Below(3); k > 0; --k) acquire.add_sources(RandomText(prng));
    acquire.mutable_version()->set_policy(RandomText(prng));
    acquire.mutable_version()->set_number(static_cast<uint32_t>(RandomNumber(prng)));
    acquire.set_loads_any_version(prng.Below(2) == 0);
    std::string bytes = acquire.SerializeAsString();
    ASSERT_EQ(AcquireDisagreement(bytes), "");
    Damage(&bytes, prng);
    ASSERT_EQ(AcquireDisagreement(bytes), "");

    v1::RenewRequest renew;
    renew.set_session(RandomNumber(prng));
    for (uint64_t k = prng.Below(5); k > 0; --k) {
      renew.add_attempt_ids(RandomNumber(prng));
      renew.add_tokens(static_cast<uint32_t>(RandomNumber(prng)));
      renew.add_generated_tokens(static_cast<uint32_t>(RandomNumber(prng)));
    }
    bytes = renew.SerializeAsString();
    ASSERT_EQ(RenewDisagreement(bytes), "");
    Damage(&bytes, prng);
    ASSERT_EQ(RenewDisagreement(bytes), "");
  }
}

}  // namespace
}  // namespace forebay::codec
