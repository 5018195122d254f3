#include "metrics/step_record.h"

namespace automodel::metrics {

namespace {

void add_known(RecordView& view, std::string_view key, const std::optional<double>& value) {
  if (value) view.metrics.push_back({key, *value});
}

}  // namespace

RecordView view_of(const StepRecord& r) {
  Metric mfu{"mfu", nullptr};
  if (r.mfu) mfu.value = *r.mfu;
  RecordView out{r.step,
                 r.epoch,
                 r.timestamp,
                 {{"loss", r.loss},
                  {"grad_norm", r.grad_norm},
                  {"lr", r.lr},
                  {"mem", r.mem},
                  {"tps", r.tps},
                  {"tps_per_gpu", r.tps_per_gpu},
                  mfu,
                  {"num_tokens_per_step", r.num_tokens_per_step},
                  {"num_label_tokens", r.num_label_tokens},
                  {"step_time", r.step_time}}};
  add_known(out, "accuracy", r.accuracy);
  add_known(out, "ce_loss", r.ce_loss);
  add_known(out, "kd_loss", r.kd_loss);
  return out;
}

RecordView view_of(const ValidationRecord& r) {
  RecordView out{r.step,
                 r.epoch,
                 r.timestamp,
                 {{"val_loss", r.val_loss}, {"lr", r.lr}, {"num_label_tokens", r.num_label_tokens}, {"mem", r.mem}}};
  add_known(out, "accuracy", r.accuracy);
  add_known(out, "ce_loss", r.ce_loss);
  add_known(out, "kd_loss", r.kd_loss);
  return out;
}

RecordView view_of(const RankTimes& t) {
  return {t.step,
          t.epoch,
          t.timestamp,
          {{"steps", t.steps},
           {"data", t.data},
           {"compute", t.compute},
           {"gradients", t.gradients},
           {"optimizer", t.optimizer},
           {"waiting", t.waiting}}};
}

}  // namespace automodel::metrics
