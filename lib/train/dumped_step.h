// Our own computation of a step that another trainer has dumped: in float64, on one rank.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "against/dump.h"
#include "against/evidence.h"
#include "comm/world.h"

namespace automodel::train {

class DumpedStep final : public against::Laboratory {
 public:
  /// Loads the model of the dump in `folder` and the dump itself. Throws Error: missing-file, does-not-fit (in this
  /// machine's memory), and the problems of config.json, of the weights and of against::Dump::open.
  DumpedStep(std::filesystem::path folder, comm::World& world);
  ~DumpedStep() override;

  const against::Dump& dump() const { return *dump_; }
  /// Computes the step, row by row. Throws Error: dump-not-finite.
  against::Evidence evidence();

  std::optional<against::Relabelled> with_targets(const std::vector<std::int64_t>& targets) override;
  against::Values head_part() override;

 private:
  class Computation;
  struct Sums;

  Sums row_sums(Computation& computation, std::int64_t first, std::int64_t rows,
                const std::vector<std::int64_t>& targets) const;
  /// The gradient of a stored tensor, assembled from its parameters'.
  against::Values assembled(const Sums& sums, const against::DumpedGradient& gradient) const;

  std::filesystem::path folder_;
  comm::World& world_;
  std::unique_ptr<Computation> model_;
  std::optional<against::Dump> dump_;
  std::int64_t rows_at_once_ = 1;  ///< all, if the loss of a row depends on the other rows
};

}  // namespace automodel::train
