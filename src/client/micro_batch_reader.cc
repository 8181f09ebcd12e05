// Reading a step's micro-batches.
#include <utility>

#include "client/connection.h"
#include "client/fetch_stream.h"
#include "forebay/trainer.h"

namespace forebay::client {

MicroBatchReader::MicroBatchReader(std::unique_ptr<FetchStream> stream)
    : stream_(std::move(stream)) {}

MicroBatchReader::~MicroBatchReader() = default;

absl::StatusOr<bool> MicroBatchReader::Next(MicroBatch* batch, const CallOptions& options) {
  return stream_->Next(batch, options);
}

std::unique_ptr<MicroBatchReader> Step::ReadSome(uint32_t mini_batch, uint32_t micro_batch,
                                                 bool one, const FetchSpec& spec) const {
  v1::FetchRequest request;
  request.set_generation(trainer_->generation_);
  request.set_step(number_);
  request.set_revision(plan_.revision);
  request.set_dp_rank(trainer_->options_.dp_rank);
  request.mutable_columns()->Add(spec.columns.begin(), spec.columns.end());
  request.set_mask_alignment(spec.predicting_mask ? v1::MASK_ALIGNMENT_PREDICTING
                                                  : v1::MASK_ALIGNMENT_TOKEN);
  request.set_fill_missing(spec.fill_missing);
  request.mutable_reward_keys()->Add(spec.reward_keys.begin(), spec.reward_keys.end());
  std::vector<v1::FetchRequest> requests;
  if (one) {
    request.set_mini_batch(mini_batch);
    request.set_micro_batch(micro_batch);
    requests.push_back(std::move(request));
  } else {
    for (uint32_t mini = 0; mini < plan_.mini_batches.size(); ++mini) {
      for (uint32_t micro = 0; micro < plan_.mini_batches[mini].micro_batches_per_rank; ++micro) {
        request.set_mini_batch(mini);
        request.set_micro_batch(micro);
        requests.push_back(request);
      }
    }
  }
  return std::make_unique<MicroBatchReader>(
      std::make_unique<FetchStream>(trainer_->connection_, std::move(requests), spec));
}

std::unique_ptr<MicroBatchReader> Step::Read(const FetchSpec& spec) const {
  return ReadSome(0, 0, false, spec);
}

absl::StatusOr<MicroBatch> Step::Fetch(uint32_t mini_batch, uint32_t micro_batch,
                                       const FetchSpec& spec, const CallOptions& options) const {
  MicroBatch batch;
  auto got = ReadSome(mini_batch, micro_batch, true, spec)->Next(&batch, options);
  if (!got.ok()) return got.status();
  return batch;
}

}  // namespace forebay::client
