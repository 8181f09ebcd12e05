#include "client/drift_report.h"

#include <bit>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "drift/sums.h"

namespace forebay::client {
namespace {

// The engine's log-probabilities, f32 or bf16.
class Logprobs {
 public:
  explicit Logprobs(const FetchedColumn& column) : column_(column) {}
  bool readable() const { return column_.dtype == DType::kF32 || column_.dtype == DType::kBf16; }
  size_t size() const { return column_.bytes.size() / (wide() ? sizeof(float) : 2); }
  double at(size_t row) const {
    uint32_t bits = 0;
    if (wide()) {
      std::memcpy(&bits, column_.bytes.data() + row * sizeof(float), sizeof(float));
    } else {
      uint16_t high = 0;
      std::memcpy(&high, column_.bytes.data() + row * sizeof(high), sizeof(high));
      bits = uint32_t{high} << 16;
    }
    return static_cast<double>(std::bit_cast<float>(bits));
  }

 private:
  bool wide() const { return column_.dtype == DType::kF32; }
  const FetchedColumn& column_;
};

absl::Status CheckRows(const char* name, size_t rows, size_t tokens) {
  if (rows >= tokens) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": has ", rows, " rows, the micro-batch ", tokens, " tokens"));
}

DriftPart PartOf(uint32_t sequence, uint32_t lag, uint32_t engine, const drift::Sums& sums) {
  return {.sequence = sequence,
          .lag = lag,
          .engine = engine,
          .tokens = static_cast<uint64_t>(sums.tokens),
          .k1 = sums.k1,
          .k2 = sums.k2,
          .k3 = sums.k3,
          .max_abs = sums.max_abs,
          .non_finite = static_cast<uint64_t>(sums.non_finite),
          .clamped = static_cast<uint64_t>(sums.clamped)};
}

class Maker {
 public:
  Maker(const MicroBatch& batch, const TokenLogprobs& logprobs, uint32_t train_version)
      : batch_(batch), logprobs_(logprobs), train_version_(train_version) {}

  absl::StatusOr<DriftReport> Make() {
    if (!batch_.spans.empty()) {
      return absl::InvalidArgumentError(
          "context: the micro-batch is a share of the tokens; drift is reported of whole "
          "sequences");
    }
    const FetchedColumn* mask = batch_.Find("loss_mask");
    const FetchedColumn* engine = batch_.Find("logprobs");
    if (mask == nullptr || engine == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("columns: the micro-batch was fetched without ",
                       mask == nullptr ? "loss_mask" : "logprobs"));
    }
    const size_t tokens =
        batch_.cu_seqlens.empty() ? 0 : static_cast<size_t>(batch_.cu_seqlens.back());
    const Logprobs engines(*engine);
    if (!engines.readable()) {
      return absl::InvalidArgumentError("columns: logprobs is neither f32 nor bf16");
    }
    const std::pair<const char*, size_t> rows[] = {{"loss_mask", mask->bytes.size()},
                                                   {"logprobs", engines.size()},
                                                   {"trainer", logprobs_.trainer.size()}};
    for (const auto& [name, has] : rows) {
      if (auto status = CheckRows(name, has, tokens); !status.ok()) return status;
    }
    if (!logprobs_.reference.empty()) {
      if (auto status = CheckRows("reference", logprobs_.reference.size(), tokens); !status.ok()) {
        return status;
      }
    }
    report_.engine_names = batch_.engine_names;
    size_t span = 0;
    for (uint32_t s = 0; s < batch_.sequences(); ++s) {
      const size_t count = s < batch_.sampled_counts.size() ? batch_.sampled_counts[s] : 0;
      if (count > batch_.sampled.size() - span) {
        return absl::InternalError("a micro-batch has fewer spans than its sequences say");
      }
      Sequence(s, {batch_.sampled.data() + span, count}, mask->bytes, engines);
      span += count;
    }
    return std::move(report_);
  }

 private:
  uint32_t Unnamed() {
    for (size_t i = 0; i < report_.engine_names.size(); ++i) {
      if (report_.engine_names[i].empty()) return static_cast<uint32_t>(i);
    }
    report_.engine_names.emplace_back();
    return static_cast<uint32_t>(report_.engine_names.size() - 1);
  }

  void Sequence(uint32_t s, absl::Span<const SampledSpan> spans, std::string_view mask,
                const Logprobs& engines) {
    const auto begin = static_cast<size_t>(batch_.cu_seqlens[s]);
    const auto end = static_cast<size_t>(batch_.cu_seqlens[s + 1]);
    std::map<std::pair<uint32_t, uint32_t>, drift::Sums> sums;  // by lag and engine
    drift::Sums reference;
    const SampledSpan whole{.version = batch_.versions[s], .engine = spans.empty() ? Unnamed() : 0};
    if (spans.empty()) spans = {&whole, 1};
    size_t span = 0;
    const size_t ahead = logprobs_.predicting ? 1 : 0;
    for (size_t row = begin; row + ahead < end; ++row) {
      if (mask[row] == 0) continue;
      const size_t token = row + ahead;
      while (span + 1 < spans.size() && spans[span + 1].offset <= token - begin) ++span;
      const uint32_t version = spans[span].version;
      const uint32_t lag = version < train_version_ ? train_version_ - version : 0;
      const auto trainer = static_cast<double>(logprobs_.trainer[row]);
      sums[{lag, spans[span].engine}].Count(trainer, engines.at(token));
      if (!logprobs_.reference.empty()) {
        reference.Count(static_cast<double>(logprobs_.reference[row]), trainer);
      }
    }
    for (const auto& [key, sum] : sums) {
      report_.engine.push_back(PartOf(s, key.first, key.second, sum));
    }
    if (!reference.empty()) report_.reference.push_back(PartOf(s, 0, 0, reference));
  }

  const MicroBatch& batch_;
  const TokenLogprobs& logprobs_;
  const uint32_t train_version_;
  DriftReport report_;
};

void ToWire(const std::vector<DriftPart>& parts, bool engines, v1::DriftParts* out) {
  for (const DriftPart& part : parts) {
    out->add_sequences(part.sequence);
    if (engines) {
      out->add_lags(part.lag);
      out->add_engines(part.engine);
    }
    out->add_tokens(part.tokens);
    out->add_k1(part.k1);
    out->add_k2(part.k2);
    out->add_k3(part.k3);
    out->add_max_abs(part.max_abs);
    out->add_non_finite(part.non_finite);
    out->add_clamped(part.clamped);
  }
}

}  // namespace

absl::StatusOr<DriftReport> MakeDriftReport(const MicroBatch& batch, const TokenLogprobs& logprobs,
                                            uint32_t train_version) {
  return Maker(batch, logprobs, train_version).Make();
}

void ToWire(const DriftReport& report, v1::ReportSequencesRequest* out) {
  out->mutable_engine_names()->Add(report.engine_names.begin(), report.engine_names.end());
  ToWire(report.engine, true, out->mutable_engine());
  ToWire(report.reference, false, out->mutable_reference());
}

}  // namespace forebay::client
