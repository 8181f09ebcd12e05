#include "bench/load/script.h"

#include <gtest/gtest.h>

#include <cstring>

#include "bench/load/channel_arguments.h"

namespace forebay::bench {
namespace {

TEST(ParseScript, ReadsEachStepsMethodSizesAndFrames) {
  auto steps = ParseScript("unary:100>200 store:1048576x3>24 stream:64>900/300");
  ASSERT_TRUE(steps.ok()) << steps.status();
  ASSERT_EQ(steps->size(), 3u);
  EXPECT_FALSE((*steps)[0].stream);
  EXPECT_EQ((*steps)[0].request_bytes, 100u);
  EXPECT_EQ((*steps)[0].answer_bytes, 200u);
  EXPECT_EQ((*steps)[1].method, kStoreMethod);
  EXPECT_EQ((*steps)[1].requests, 3u);
  EXPECT_EQ((*steps)[2].answer_frame_bytes, 300u);
}

TEST(FormatScript, WritesWhatParseScriptReads) {
  for (const char* text : {"unary:100>200", "store:1048576x3>24", "stream:64>900/300 unary:9>1"}) {
    EXPECT_EQ(FormatScript(*ParseScript(text)), text);
  }
}

TEST(ParseScript, RefusesWhatItCannotRunAndNamesTheStep) {
  for (const char* bad : {"", "push:1>1", "unary:x>1", "unary:100", "stream:1>0", "unary:100x2>1",
                          "stream:100x0>1"}) {
    auto steps = ParseScript(bad);
    EXPECT_EQ(steps.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    if (*bad != 0) {
      EXPECT_NE(std::string(steps.status().message()).find(bad), std::string::npos) << bad;
    }
  }
}

TEST(ParseChannelArguments, TakesNamesWithIntegersAndNamesWhatIsNot) {
  auto arguments = ParseChannelArguments({"a.b=0", "c=-1"});
  ASSERT_TRUE(arguments.ok()) << arguments.status();
  EXPECT_EQ(*arguments, (ChannelArguments{{"a.b", 0}, {"c", -1}}));
  for (const char* bad : {"", "a", "=1", "a=", "a=x"}) {
    EXPECT_EQ(ParseChannelArguments({bad}).status().code(), absl::StatusCode::kInvalidArgument)
        << bad;
  }
}

grpc::ByteBuffer Bytes(size_t size) {
  grpc::Slice slice(std::string(size, 'x'));
  return grpc::ByteBuffer(&slice, 1);
}

TEST(ScriptConversation, SendsAStepsMessagesAtOnceAndEndsItWithTheirLastAnswer) {
  ScriptConversation talk({*ParseScript("stream:1000x3>10"), 1, 1});
  grpc::ByteBuffer message;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(talk.Next(0, &message));
    EXPECT_EQ(message.Length(), 1000u);
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(message.Dump(&slices).ok());
    LimitHeader header;
    std::memcpy(&header, slices[0].begin(), sizeof(header));
    EXPECT_EQ(header.answer_bytes, 10u);
  }
  EXPECT_FALSE(talk.Next(0, &message));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(talk.progress().operations, 0u);
    grpc::ByteBuffer answer = Bytes(10);
    ASSERT_TRUE(talk.Take(0, &answer).ok());
  }
  EXPECT_EQ(talk.progress().operations, 1u);
  EXPECT_EQ(talk.progress().payload_bytes, 3000u);
}

TEST(ScriptConversation, BeginsAStepWhenTheStepBeforeItIsAnsweredInFull) {
  ScriptConversation talk({*ParseScript("stream:40>100/60 stream:50>8"), 1, 64});
  grpc::ByteBuffer message;
  ASSERT_TRUE(talk.Next(0, &message));
  EXPECT_FALSE(talk.Next(1, &message));
  grpc::ByteBuffer answer = Bytes(60);
  ASSERT_TRUE(talk.Take(0, &answer).ok());
  EXPECT_FALSE(talk.Next(1, &message));
  answer = Bytes(40);
  ASSERT_TRUE(talk.Take(0, &answer).ok());
  ASSERT_TRUE(talk.Next(1, &message));
  EXPECT_EQ(talk.progress().operations, 0u);
  answer = Bytes(8);
  ASSERT_TRUE(talk.Take(1, &answer).ok());
  EXPECT_EQ(talk.progress().operations, 64u);
  EXPECT_TRUE(talk.Next(0, &message));
}

TEST(ScriptConversation, KeepsAsManyRoundsInFlightAsItsWindow) {
  ScriptConversation talk({*ParseScript("stream:40>8"), 3, 1});
  grpc::ByteBuffer message;
  int sent = 0;
  while (talk.Next(0, &message)) ++sent;
  EXPECT_EQ(sent, 3);
}

TEST(ScriptConversation, RefusesAnAnswerLargerThanAsked) {
  ScriptConversation talk({*ParseScript("unary:40>8"), 1, 1});
  grpc::ByteBuffer message;
  ASSERT_TRUE(talk.Next(0, &message));
  grpc::ByteBuffer answer = Bytes(9);
  EXPECT_EQ(talk.Take(0, &answer).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace forebay::bench
