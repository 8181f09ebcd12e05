#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/prng.h"
#include "codec/rollout_header.h"
#include "forebay/v1/types.pb.h"
#include "tests/unit/codec/header_agreement.h"
#include "tests/unit/codec/random_header.h"

namespace forebay::codec {
namespace {

FieldError Check(const v1::RolloutHeader& message, const HeaderRules& rules = {}) {
  const std::string bytes = message.SerializeAsString();
  RolloutHeader header;
  FieldError error;
  if (!DecodeRolloutHeader(bytes, &header, &error)) return error;
  return CheckRolloutHeader(header, bytes.size(), rules);
}

TEST(CheckRolloutHeader, AcceptsEachDomain) {
  const FieldError error = Check(GoodHeader());
  EXPECT_TRUE(error.ok()) << error.field << " " << error.message;
}

struct Case {
  const char* field;
  std::function<void(v1::RolloutHeader*)> spoil;
};

TEST(CheckRolloutHeader, NamesTheFieldThatIsWrong) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Case> cases = {
      {"status", [](auto* h) { h->set_status(static_cast<v1::RolloutStatus>(4)); }},
      {"sequences", [](auto* h) { h->clear_sequences(); }},
      {"sequences[1].tokens", [](auto* h) { h->mutable_sequences(1)->set_tokens(0); }},
      {"sequences[0].prompt_tokens",
       [](auto* h) { h->mutable_sequences(0)->set_prompt_tokens(11); }},
      {"sequences[0].loss_tokens", [](auto* h) { h->mutable_sequences(0)->set_loss_tokens(11); }},
      {"sequences[0].advantage", [&](auto* h) { h->mutable_sequences(0)->set_advantage(nan); }},
      {"sequences[1].versions", [](auto* h) { h->mutable_sequences(1)->set_loss_tokens(3); }},
      {"sequences[0].versions[0].offset",
       [](auto* h) { h->mutable_sequences(0)->mutable_versions(0)->set_offset(1); }},
      {"sequences[0].versions[1].offset",
       [](auto* h) { h->mutable_sequences(0)->mutable_versions(1)->set_offset(0); }},
      {"sequences[0].versions[1].offset",
       [](auto* h) { h->mutable_sequences(0)->mutable_versions(1)->set_offset(10); }},
      {"sequences[1].versions[1].loss_tokens",
       [](auto* h) { h->mutable_sequences(1)->mutable_versions(1)->set_loss_tokens(2); }},
      {"sequences[0].turns[0]",
       [](auto* h) { h->mutable_sequences(0)->add_turns()->set_tokens(11); }},
      {"columns[0].name", [](auto* h) { h->mutable_columns(0)->set_name(""); }},
      {"columns[3].name", [](auto* h) { h->mutable_columns(3)->set_name(std::string(65, 'x')); }},
      {"columns[3].name", [](auto* h) { h->mutable_columns(3)->set_name("a b"); }},
      {"columns[3].name", [](auto* h) { h->mutable_columns(3)->set_name("tokens"); }},
      {"columns[3].dtype", [](auto* h) { h->mutable_columns(3)->clear_dtype(); }},
      {"columns[3].dtype", [](auto* h) { h->mutable_columns(3)->set_dtype(v1::DType(14)); }},
      {"columns[3].domain", [](auto* h) { h->mutable_columns(3)->set_domain(v1::Domain(7)); }},
      {"columns[2].inner",
       [](auto* h) {
         for (int i = 0; i < 3; ++i) h->mutable_columns(2)->add_inner(1);
       }},
      {"columns[2].inner[1]", [](auto* h) { h->mutable_columns(2)->set_inner(1, 0); }},
      {"columns[2].inner", [](auto* h) { h->mutable_columns(2)->clear_inner(); }},
      {"columns[0].dtype", [](auto* h) { h->mutable_columns(0)->set_dtype(v1::DTYPE_I64); }},
      {"columns[1].dtype", [](auto* h) { h->mutable_columns(1)->set_dtype(v1::DTYPE_F32); }},
      {"columns[1].domain", [](auto* h) { h->mutable_columns(1)->set_domain(v1::DOMAIN_BLOB); }},
      {"columns[0].bytes", [](auto* h) { h->mutable_columns(0)->set_bytes(60); }},
      {"columns[2].bytes", [](auto* h) { h->mutable_columns(2)->set_inner(0, 0xffffffff); }},
      {"columns[3].bytes", [](auto* h) { h->mutable_columns(3)->set_bytes(64); }},
      {"columns[4].bytes", [](auto* h) { h->mutable_columns(4)->set_bytes(8); }},
      {"columns[0].sequence_bytes", [](auto* h) { h->mutable_columns(0)->add_sequence_bytes(64); }},
      {"columns[5].sequence_bytes", [](auto* h) { h->mutable_columns(5)->clear_sequence_bytes(); }},
      {"columns[5].sequence_bytes",
       [](auto* h) { h->mutable_columns(5)->set_sequence_bytes(0, 52); }},
      {"columns[5].bytes",
       [](auto* h) {
         h->mutable_columns(5)->set_sequence_bytes(0, 57);
         h->mutable_columns(5)->set_sequence_bytes(1, 27);
       }},
      {"columns[6].sequence_bytes",
       [](auto* h) { h->mutable_columns(6)->set_sequence_bytes(1, UINT64_MAX); }},
      {"rewards[reward]", [&](auto* h) { (*h->mutable_rewards())["reward"] = double{nan}; }},
      {"rewards[reward]", [&](auto* h) { (*h->mutable_rewards())["reward"] = -1e308; }},
      {"rewards", [](auto* h) { (*h->mutable_rewards())[""] = 1; }},
      {"extra_json", [](auto* h) { h->set_extra_json(std::string(kExtraJsonBytesMax + 1, ' ')); }},
      {"source", [](auto* h) { h->set_source(std::string(257, 's')); }},
      {"site", [](auto* h) { h->set_site(std::string(257, 's')); }},
  };
  for (const Case& wrong : cases) {
    v1::RolloutHeader header = GoodHeader();
    wrong.spoil(&header);
    const FieldError error = Check(header);
    EXPECT_EQ(error.field, wrong.field) << error.message;
    EXPECT_FALSE(error.message.empty());
  }
}

TEST(CheckRolloutHeader, RefusesMoreThanTheLimitOfBytes) {
  const v1::RolloutHeader header = GoodHeader();
  uint64_t size = header.ByteSizeLong();
  for (const auto& column : header.columns()) size += column.bytes();
  EXPECT_TRUE(Check(header, {.rollout_bytes_max = size}).ok());
  EXPECT_EQ(Check(header, {.rollout_bytes_max = size - 1}).field, "bytes");
}

TEST(CheckRolloutHeader, PartsOfSequencesAddUpToTheColumn) {
  const std::string bytes = GoodHeader().SerializeAsString();
  RolloutHeader header;
  FieldError error;
  ASSERT_TRUE(DecodeRolloutHeader(bytes, &header, &error));
  for (const HeaderColumn& column : header.columns) {
    EXPECT_EQ(SequencePartBytes(header, column, 0) + SequencePartBytes(header, column, 1),
              column.bytes)
        << column.name;
  }
}

}  // namespace
}  // namespace forebay::codec
