// Steps between the wire and the ledger.
//
// Pure functions.
#pragma once

#include "absl/status/statusor.h"
#include "forebay/v1/trainer.pb.h"
#include "ledger/messages.h"
#include "ledger/step.h"
#include "server/catalog.h"

namespace forebay::server {

ledger::Mesh FromWire(const v1::Mesh& mesh);
// NotFound for a source that the catalog does not know. Ranges are the ledger's to check.
absl::StatusOr<ledger::StepSpec> FromWire(const v1::StepSpec& spec, const CatalogSnapshot& catalog);
void ToWire(const ledger::Totals& totals, v1::Totals* out);
v1::StepState ToWire(ledger::StepState state);
// All but `waiting` and `waited_ms`, which the ledger's primary knows.
void ToWire(const ledger::Step& step, v1::OpenStepResponse* out);

}  // namespace forebay::server
