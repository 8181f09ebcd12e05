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

// Two sequences of 10 and 6 tokens with one column of each domain.
v1::RolloutHeader Good() {
  v1::RolloutHeader header;
  for (const uint32_t tokens : {10u, 6u}) {
    auto* sequence = header.add_sequences();
    sequence->set_tokens(tokens);
    sequence->set_prompt_tokens(4);
    sequence->set_loss_tokens(2);
    auto* first = sequence->add_versions();
    first->set_loss_tokens(1);
    auto* second = sequence->add_versions();
    second->set_offset(5);
    second->set_number(3);
    second->set_loss_tokens(1);
  }
  const auto add = [&](const char* name, v1::DType dtype, v1::Domain domain, uint64_t bytes) {
    auto* column = header.add_columns();
    column->set_name(name);
    column->set_dtype(dtype);
    column->set_domain(domain);
    column->set_bytes(bytes);
    return column;
  };
  add("tokens", v1::DTYPE_U32, v1::DOMAIN_TOKEN, 64);
  add("loss_mask", v1::DTYPE_U8, v1::DOMAIN_UNSPECIFIED, 16);
  auto* routed = add("routed_experts", v1::DTYPE_I16, v1::DOMAIN_TOKEN_BUT_LAST, 14 * 2 * 6);
  routed->add_inner(3);
  routed->add_inner(2);
  add("own.response", v1::DTYPE_F32, v1::DOMAIN_RESPONSE_TOKEN, 8 * 4);
  add("own.sequence", v1::DTYPE_F64, v1::DOMAIN_SEQUENCE, 16);
  auto* ragged = add("own.ragged", v1::DTYPE_I32, v1::DOMAIN_RAGGED, (11 + 7 + 3) * 4);
  ragged->add_sequence_bytes(44 + 12);
  ragged->add_sequence_bytes(28);
  auto* text = add("text", v1::DTYPE_U8, v1::DOMAIN_BLOB, 9);
  text->add_sequence_bytes(9);
  text->add_sequence_bytes(0);
  (*header.mutable_rewards())["reward"] = 1;
  return header;
}

FieldError Check(const v1::RolloutHeader& message, const HeaderRules& rules = {}) {
  const std::string bytes = message.SerializeAsString();
  RolloutHeader header;
  FieldError error;
  if (!DecodeRolloutHeader(bytes, &header, &error)) return error;
  return CheckRolloutHeader(header, bytes.size(), rules);
}

TEST(CheckRolloutHeader, AcceptsEachDomain) {
  const FieldError error = Check(Good());
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
    v1::RolloutHeader header = Good();
    wrong.spoil(&header);
    const FieldError error = Check(header);
    EXPECT_EQ(error.field, wrong.field) << error.message;
    EXPECT_FALSE(error.message.empty());
  }
}

TEST(CheckRolloutHeader, RefusesMoreThanTheLimitOfBytes) {
  const v1::RolloutHeader header = Good();
  uint64_t size = header.ByteSizeLong();
  for (const auto& column : header.columns()) size += column.bytes();
  EXPECT_TRUE(Check(header, {.rollout_bytes_max = size}).ok());
  EXPECT_EQ(Check(header, {.rollout_bytes_max = size - 1}).field, "bytes");
}

// The reader that has seen many headers, and one that sees its first.
void ExpectSameJudgement(const std::string& bytes, RolloutHeader* seasoned) {
  EXPECT_EQ(HeaderDisagreement(bytes, seasoned), "");
  RolloutHeader fresh;
  FieldError error;
  if (!DecodeRolloutHeader(bytes, &fresh, &error)) return;
  const FieldError expected = CheckRolloutHeader(fresh, bytes.size());
  const FieldError found = CheckRolloutHeader(*seasoned, bytes.size());
  EXPECT_EQ(found.field, expected.field);
  EXPECT_EQ(found.message, expected.message);
  if (found.ok()) seasoned->RememberColumns();
}

TEST(CheckRolloutHeader, RememberedColumnsAreJudgedAsNewOnes) {
  RolloutHeader seasoned;
  ExpectSameJudgement(Good().SerializeAsString(), &seasoned);
  ASSERT_EQ(seasoned.known_columns.size(), 7u);
  v1::RolloutHeader longer = Good();
  longer.mutable_columns(6)->set_bytes(10);
  longer.mutable_columns(6)->set_sequence_bytes(1, 1);
  ExpectSameJudgement(longer.SerializeAsString(), &seasoned);
  for (const HeaderColumn& column : seasoned.columns) EXPECT_TRUE(column.remembered);
  v1::RolloutHeader twice = Good();  // a known column, and one of its name that is not
  twice.mutable_columns(1)->set_name("tokens");
  ExpectSameJudgement(twice.SerializeAsString(), &seasoned);
  Prng prng(7);
  for (int i = 0; i < 5'000; ++i) {
    std::string bytes = Good().SerializeAsString();
    if (i % 4 > 0) Damage(&bytes, prng);
    ExpectSameJudgement(bytes, &seasoned);
    // What is appended to a known column overrides it, as with protobuf.
    v1::RolloutHeader header = Good();
    std::string column = header.columns(0).SerializeAsString();
    column += header.columns(static_cast<int>(prng.Below(7))).SerializeAsString();
    header.mutable_columns()->DeleteSubrange(0, 1);
    ExpectSameJudgement("\x2a" + std::string(1, static_cast<char>(column.size())) + column +
                            header.SerializeAsString(),
                        &seasoned);
  }
}

TEST(CheckRolloutHeader, PartsOfSequencesAddUpToTheColumn) {
  const std::string bytes = Good().SerializeAsString();
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
