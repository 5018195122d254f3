// Shapes of the tensors entering and leaving each stage, computed from the configuration instead of by running the
// stages.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "arch/model_spec.h"
#include "arch/shape.h"
#include "base/dtype.h"

namespace automodel::plan {

struct TensorMeta {
  arch::Shape shape = {};
  DType dtype = DType::kBFloat16;
  bool operator==(const TensorMeta&) const = default;
  /// Bytes of the tensor.
  std::int64_t bytes() const { return shape.elements() * size_of(dtype); }
};

struct StageIo {
  TensorMeta input = {};
  TensorMeta output = {};
  bool operator==(const StageIo&) const = default;
};

struct StageShapeRequest {
  std::int64_t hidden = 0;
  std::int64_t vocab = 0;
  std::int64_t microbatch_size = 1;     ///< sequences
  std::int64_t sequence_length = 1;     ///< tokens of the whole sequence
  DType dtype = DType::kBFloat16;       ///< of hidden states and logits
  bool return_hidden_states = false;    ///< the last stage returns hidden states even though it has a head
  int carried_in = 0, carried_out = 0;  ///< tensors of hidden states that come and go beside the residual stream
};

/// Input [microbatch, sequence] int64 on the first stage, else [microbatch, sequence, (1 + carried_in) * hidden];
/// output [microbatch, sequence, vocab] with a head, else [microbatch, sequence, (1 + carried_out) * hidden]. The
/// sequence is not divided for sequence or context parallelism here; the executor handles that. Like NeMo AutoModel's
/// _precompute_stage_shapes.
StageIo stage_io(const StageShapeRequest& request, bool is_first, bool has_head);

/// The shapes of all stages, updated when the sequence length changes between steps.
class StageShapes {
 public:
  /// `head_stage`: the stage with the head, or -1.
  StageShapes(const StageShapeRequest& request, int stages, int head_stage);
  const StageIo& operator[](int stage) const { return io_[static_cast<std::size_t>(stage)]; }
  int size() const { return static_cast<int>(io_.size()); }
  const StageShapeRequest& request() const { return request_; }
  /// Tokens per microbatch.
  std::int64_t tokens() const { return request_.microbatch_size * request_.sequence_length; }
  /// Recomputes the shapes for another length; returns false if the length is unchanged (reset_pp_stage_shapes).
  bool reset(std::int64_t sequence_length);

 private:
  StageShapeRequest request_;
  int head_stage_;
  std::vector<StageIo> io_;
};

}  // namespace automodel::plan
