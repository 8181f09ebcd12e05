// Random but well-formed messages, and random damage, for the tests of the decoders.
//
// Values; not thread-safe.
#pragma once

#include <algorithm>
#include <string>

#include "base/prng.h"
#include "forebay/v1/types.pb.h"

namespace forebay::codec {

inline std::string RandomText(Prng& prng) {
  static constexpr const char* kTexts[] = {
      "",      "reward", "tokens", "loss_mask", "caf\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x8c\x8a",
      "a.b_c9"};
  return kTexts[prng.Below(8)];
}

inline uint64_t RandomNumber(Prng& prng) { return prng.Next() >> prng.Below(64); }

// Any numbers: it need not pass the checks.
inline v1::RolloutHeader RandomHeader(Prng& prng) {
  v1::RolloutHeader header;
  header.set_attempt_id(RandomNumber(prng));
  header.set_token(static_cast<uint32_t>(RandomNumber(prng)));
  header.set_status(static_cast<v1::RolloutStatus>(prng.Below(5)));
  for (uint64_t i = prng.Below(4); i > 0; --i) {
    auto* sequence = header.add_sequences();
    sequence->set_tokens(static_cast<uint32_t>(RandomNumber(prng)));
    sequence->set_prompt_tokens(static_cast<uint32_t>(RandomNumber(prng)));
    if (prng.Below(2) == 0) sequence->set_advantage(static_cast<float>(prng.Unit()));
    for (uint64_t k = prng.Below(4); k > 0; --k) {
      auto* run = sequence->add_versions();
      run->set_offset(static_cast<uint32_t>(RandomNumber(prng)));
      run->set_branch(static_cast<uint32_t>(prng.Below(3)));
      run->set_number(static_cast<uint32_t>(RandomNumber(prng)));
      run->set_loss_tokens(static_cast<uint32_t>(RandomNumber(prng)));
    }
    for (uint64_t k = prng.Below(3); k > 0; --k) {
      auto* turn = sequence->add_turns();
      turn->set_offset(static_cast<uint32_t>(RandomNumber(prng)));
      turn->set_role(RandomText(prng));
      turn->mutable_sampling()->set_top_k(-1);
      turn->mutable_sampling()->set_seed(RandomNumber(prng));
    }
  }
  for (uint64_t i = prng.Below(5); i > 0; --i) {
    auto* column = header.add_columns();
    column->set_name(RandomText(prng));
    column->set_dtype(static_cast<v1::DType>(prng.Below(15)));
    for (uint64_t k = prng.Below(6); k > 0; --k) {
      column->add_inner(static_cast<uint32_t>(RandomNumber(prng)));
    }
    column->set_domain(static_cast<v1::Domain>(prng.Below(8)));
    column->set_missing(prng.Unit());
    column->set_bytes(RandomNumber(prng));
    if (prng.Below(2) == 0) column->set_crc32c(static_cast<uint32_t>(prng.Below(2)));
    for (uint64_t k = prng.Below(3); k > 0; --k) column->add_sequence_bytes(RandomNumber(prng));
  }
  for (uint64_t i = prng.Below(4); i > 0; --i) {
    (*header.mutable_rewards())[RandomText(prng)] = prng.Unit();
  }
  header.set_duration_ms(RandomNumber(prng));
  header.set_extra_json(RandomText(prng));
  header.set_partial(prng.Below(2) == 0);
  header.set_source(RandomText(prng));
  header.set_site(RandomText(prng));
  return header;
}

// Passes the checks: two sequences of 10 and 6 tokens with one column of each domain.
inline v1::RolloutHeader GoodHeader() {
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

inline void Damage(std::string* bytes, Prng& prng) {
  for (uint64_t i = prng.Below(4); i > 0 && !bytes->empty(); --i) {
    const size_t at = prng.Below(bytes->size());
    switch (prng.Below(4)) {
      case 0:
        (*bytes)[at] = static_cast<char>(prng.Next());
        break;
      case 1:
        bytes->erase(at, 1 + prng.Below(4));
        break;
      case 2:
        bytes->insert(at, 1 + prng.Below(4), static_cast<char>(prng.Next()));
        break;
      default:
        bytes->append(*bytes, at, 40);
    }
  }
}

}  // namespace forebay::codec
