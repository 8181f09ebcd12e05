// Reading a step's micro-batches.
#include <utility>

#include "client/connection.h"
#include "client/fetch_stream.h"
#include "forebay/trainer.h"

namespace forebay::client {
namespace {

void ToWire(const ColumnSlice& slice, v1::ColumnSlice* out) {
  out->set_column(slice.column);
  out->set_source(slice.source);
  for (const auto& ranges : slice.dimensions) {
    v1::IndexRanges* const dimension = out->add_dimensions();
    for (const IndexRange& range : ranges) {
      v1::IndexRange* const taken = dimension->add_ranges();
      taken->set_begin(range.begin);
      taken->set_end(range.end);
    }
  }
  if (slice.dtype.has_value()) out->set_dtype(static_cast<v1::DType>(*slice.dtype));
  if (slice.predicting) out->set_alignment(v1::MASK_ALIGNMENT_PREDICTING);
}

void ToWire(const ContextSlice& context, v1::ContextSlice* out) {
  out->set_order(static_cast<v1::ContextOrder>(context.order));
  out->set_size(context.size);
  out->set_rank(context.rank);
  out->set_pad_multiple(context.pad_multiple);
}

}  // namespace

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
  for (const ColumnSlice& slice : spec.slices) ToWire(slice, request.add_slices());
  if (spec.context.has_value()) ToWire(*spec.context, request.mutable_context());
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
