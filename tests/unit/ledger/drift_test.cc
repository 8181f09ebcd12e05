// What trainers report of drift: counted once, judged at the commit, held until it is lifted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/limits.h"
#include "tests/unit/drift/make.h"
#include "tests/unit/ledger/harness.h"

namespace forebay::ledger {
namespace {

using ::testing::HasSubstr;

class DriftOfSteps : public ::testing::Test {
 protected:
  DriftOfSteps() {
    source = h.PutTrainSource();
    h.Attach();
  }
  ReportSequences Report(uint64_t step, MicroBatchRef ref, double d = 0.5, int tokens = 10) const {
    ReportSequences c{h.generation, StepId(step), h.step(step).revision, ref, {}, {}, {}};
    c.report.engines = {"engine-a"};
    c.engine_parts = {
        {.sequence = 0, .engine = 0, .lag = 0, .sums = drift::CellOf(0, 1, 0, 0, d, tokens).sums}};
    return c;
  }
  double tokens() const { return h.state.drift().reports.Sum().All().tokens; }

  Harness h;
  SourceId source;
};

TEST_F(DriftOfSteps, CountsOnceHoweverOftenItComes) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec()).ok());
  const auto first = h.Do<ReportReply>(Report(1, {0, 0, 0}));
  ASSERT_TRUE(first.status.ok()) << first.status;
  EXPECT_FALSE(first.already_counted);
  EXPECT_TRUE(h.Do<ReportReply>(Report(1, {0, 0, 0})).already_counted);
  EXPECT_EQ(tokens(), 10);
  EXPECT_FALSE(h.Do<ReportReply>(Report(1, {1, 0, 0})).already_counted);
  EXPECT_EQ(tokens(), 20);
  const ReportSequences again = Report(1, {1, 0, 0});
  ASSERT_TRUE(h.Commit(1).status.ok());
  // An answer was lost, and the step was committed meanwhile.
  const auto late = h.Do<ReportReply>(again);
  EXPECT_TRUE(late.status.ok()) << late.status;
  EXPECT_TRUE(late.already_counted);
  EXPECT_EQ(tokens(), 20);
}

TEST_F(DriftOfSteps, CountsUnderTheRevisionThatIsTrained) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec()).ok());
  const ReportSequences old = Report(1, {0, 0, 0}, 0.5, 7);
  ASSERT_TRUE(h.Do<ReportReply>(old).status.ok());
  StepSpec spec = h.Spec();
  spec.token_budget = 256;
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(1), spec, true}).ok());
  EXPECT_EQ(h.Do<ReportReply>(old).status.code(), absl::StatusCode::kAborted);
  ASSERT_TRUE(h.Do<ReportReply>(Report(1, {0, 0, 0})).status.ok());
  EXPECT_EQ(tokens(), 10);
  ASSERT_TRUE(h.Commit(1, 2).status.ok());
  EXPECT_EQ(tokens(), 10);
}

TEST_F(DriftOfSteps, DoesNotCountWhatIsNotTrained) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec()).ok());
  ASSERT_TRUE(h.Do<ReportReply>(Report(1, {0, 0, 0})).status.ok());
  ASSERT_TRUE(h.Run(AbortStep{h.generation, StepId(1), "no more"}).ok());
  EXPECT_EQ(tokens(), 0);
}

TEST_F(DriftOfSteps, RefusesByFieldAndLimit) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec()).ok());
  const auto refusal = [&](auto spoil) {
    ReportSequences c = Report(1, {0, 0, 0});
    spoil(c);
    const uint64_t before = h.state.Hash();
    const absl::Status status = h.Do<ReportReply>(c).status;
    EXPECT_EQ(h.state.Hash(), before);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal([](auto& c) { c.micro_batch.dp_rank = 2; }), HasSubstr("dp_rank: 2"));
  EXPECT_THAT(refusal([](auto& c) { c.micro_batch.mini_batch = 9; }), HasSubstr("mini_batch: 9"));
  EXPECT_THAT(refusal([](auto& c) { c.micro_batch.micro_batch = 99; }), HasSubstr("micro_batch"));
  EXPECT_THAT(refusal([](auto& c) { c.step = StepId(2); }), HasSubstr("step: 2 is not open"));
  EXPECT_THAT(refusal([](auto& c) { c.revision = Revision(7); }), HasSubstr("revision: 7"));
  EXPECT_THAT(refusal([](auto& c) { c.engine_parts[0].sequence = 99; }),
              HasSubstr("engine.sequences[0]: 99, less than "));
  EXPECT_THAT(refusal([](auto& c) { c.engine_parts[0].engine = 1; }),
              HasSubstr("engine.engines[0]: 1, less than 1"));
  EXPECT_THAT(refusal([](auto& c) { c.engine_parts[0].lag = 1; }),
              HasSubstr("engine.lags[0]: 1, less than 1"));
  EXPECT_THAT(refusal([](auto& c) { c.engine_parts[0].sums.k3 = -1; }), HasSubstr("engine.k3[0]"));
  EXPECT_THAT(refusal([](auto& c) { c.engine_parts[0].sums.tokens = 1e6; }),
              HasSubstr("engine.tokens[0]: with it sequence 0 has 1e+06, its loss tokens are "));
  EXPECT_THAT(refusal([](auto& c) {
                c.engine_parts.push_back(c.engine_parts[0]);
                c.engine_parts[1].sums.non_finite = 1e6;
              }),
              HasSubstr("engine.tokens[1]: with it sequence 0 has "));
  EXPECT_THAT(refusal([](auto& c) {
                c.reference_parts = c.engine_parts;
                c.reference_parts[0].engine = 1;
              }),
              HasSubstr("reference.engines[0]: 1, less than 1"));
  EXPECT_THAT(refusal([](auto& c) { c.engine_parts.resize(65'537); }),
              HasSubstr("engine: 65537 parts, at most 65536"));
}

// What is in a log was proposed by somebody else, perhaps.
TEST_F(DriftOfSteps, ChecksWhatIsApplied) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec()).ok());
  ReportSequences c = Report(1, {0, 0, 0});
  c.report.engine = {drift::CellOf(source.value, 20, 0, 0, 0.5, 10)};
  EXPECT_TRUE(h.state.Check(c).ok());
  c.report.engine[0].source = SourceId(5);
  EXPECT_THAT(h.state.Check(c).message(), HasSubstr("engine.sources[0]: 5, less than 1"));
  c.report.engine[0] = drift::CellOf(source.value, 20, 0, 0, 0.5, 10);
  c.report.engine[0].sums.non_finite = 1e6;
  EXPECT_THAT(h.state.Check(c).message(),
              HasSubstr("engine.tokens: 1.00001e+06, the micro-batch has "));
}

TEST_F(DriftOfSteps, IsBySourceAndLengthOfThePlansSequences) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec()).ok());
  ASSERT_TRUE(h.Do<ReportReply>(Report(1, {0, 0, 0})).status.ok());
  const auto view = h.state.ViewMicroBatch(StepId(1), h.step(1).revision, {0, 0, 0});
  ASSERT_TRUE(view.ok());
  const drift::Table table = h.state.drift().reports.Sum();
  EXPECT_EQ(table.sources.at(source).All().tokens, 10);
  EXPECT_EQ(table.lengths.at(drift::LengthBucket(view->slots[0].tokens)).All().tokens, 10);
  EXPECT_EQ(table.engines.at("engine-a").mismatch().tokens, 10);
}

TEST_F(DriftOfSteps, HoldsSteps) {
  h.primary.SetDriftRules({.hold_k3 = 0.2});
  ASSERT_TRUE(h.OpenFilled(1, h.Spec()).ok());
  ASSERT_TRUE(h.Do<ReportReply>(Report(1, {0, 0, 0}, -0.5)).status.ok());  // k3 = 0.107
  ASSERT_TRUE(h.Commit(1).status.ok());
  EXPECT_FALSE(h.state.drift().hold.has_value());

  ASSERT_TRUE(h.OpenFilled(2, h.Spec()).ok());
  ASSERT_TRUE(h.Do<ReportReply>(Report(2, {0, 0, 0}, -1)).status.ok());  // k3 = 0.368
  ASSERT_TRUE(h.Commit(2).status.ok());
  ASSERT_TRUE(h.state.drift().hold.has_value());
  EXPECT_EQ(h.state.drift().hold->step, StepId(2));
  EXPECT_NEAR(h.state.drift().hold->k3, 0.3679, 1e-4);
  ASSERT_TRUE(h.OpenFilled(3, h.Spec()).ok());
  EXPECT_EQ(h.step(3).state, StepState::kOpen);
  EXPECT_EQ(h.step(3).groups.size(), 4u);
  EXPECT_THAT(h.primary.Waiting(StepId(3), h.now), HasSubstr("held since step 2"));
  h.state.CheckInvariants();

  const auto lift = [&](const std::string& why) { return h.Do<LiftReply>(LiftHold{why}); };
  EXPECT_TRUE(lift("it was a bad batch").lifted);
  EXPECT_FALSE(h.state.drift().hold.has_value());
  EXPECT_EQ(h.step(3).state, StepState::kSealed);
  EXPECT_TRUE(lift("again").status.ok());
  EXPECT_FALSE(lift("again").lifted);
  EXPECT_THAT(lift(std::string(kReasonBytesMax + 1, 'x')).status.message(),
              HasSubstr("reason: 1025 bytes, at most 1024"));
}

TEST_F(DriftOfSteps, RewindingEndsTheHold) {
  h.primary.SetDriftRules({.hold_k3 = 0.2});
  h.Train(1);
  ASSERT_TRUE(h.OpenFilled(2, h.Spec()).ok());
  ASSERT_TRUE(h.Do<ReportReply>(Report(2, {0, 0, 0}, -1)).status.ok());
  ASSERT_TRUE(h.Commit(2).status.ok());
  ASSERT_TRUE(h.state.drift().hold.has_value());
  ASSERT_TRUE(h.GoBack(1).status.ok());
  EXPECT_FALSE(h.state.drift().hold.has_value());
}

TEST_F(DriftOfSteps, SurvivesASnapshot) {
  h.primary.SetDriftRules({.hold_k3 = 0.2});
  ASSERT_TRUE(h.OpenFilled(1, h.Spec()).ok());
  ASSERT_TRUE(h.Do<ReportReply>(Report(1, {0, 0, 0}, -1)).status.ok());
  ASSERT_TRUE(h.Commit(1).status.ok());
  std::string bytes;
  codec::Writer writer(&bytes);
  h.state.Snapshot(writer);
  State restored{Options{}};
  codec::Reader reader(bytes);
  ASSERT_TRUE(restored.Restore(reader));
  EXPECT_EQ(restored.Hash(), h.state.Hash());
  EXPECT_EQ(restored.drift().reports.Sum(), h.state.drift().reports.Sum());
  EXPECT_TRUE(restored.drift().hold.has_value());
}

}  // namespace
}  // namespace forebay::ledger
