#include "plan/stage_shapes.h"

#include "base/error.h"

namespace automodel::plan {

StageIo stage_io(const StageShapeRequest& r, bool is_first, bool has_head) {
  const TensorMeta tokens = {{r.microbatch_size, r.sequence_length}, DType::kInt64};
  const auto hidden = [&](int carried) {
    return TensorMeta{{r.microbatch_size, r.sequence_length, (1 + carried) * r.hidden}, r.dtype};
  };
  const TensorMeta logits = {{r.microbatch_size, r.sequence_length, r.vocab}, r.dtype};
  return {is_first ? tokens : hidden(r.carried_in),
          has_head && !r.return_hidden_states ? logits : hidden(r.carried_out)};
}

StageShapes::StageShapes(const StageShapeRequest& request, int stages, int head_stage)
    : request_(request), head_stage_(head_stage), io_(static_cast<std::size_t>(stages)) {
  AUTOMODEL_CHECK(
      request.microbatch_size >= 0 && request.sequence_length >= 0 && request.hidden > 0 && request.vocab > 0,
      "shapes need sizes");
  for (int stage = 0; stage < stages; ++stage)
    io_[static_cast<std::size_t>(stage)] = stage_io(request_, stage == 0, stage == head_stage_);
}

bool StageShapes::reset(std::int64_t sequence_length) {
  if (sequence_length == request_.sequence_length) return false;
  request_.sequence_length = sequence_length;
  *this = StageShapes(request_, size(), head_stage_);
  return true;
}

}  // namespace automodel::plan
