#include "ops/distillation.h"

#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "ops/element_type.h"

namespace automodel::ops {
namespace {

/// [ranks, rows, k]: each rank's numbers per row.
at::Tensor of_all(const HeadLoss& loss, const at::Tensor& mine) {
  return loss.gather ? loss.gather(mine.contiguous()) : mine.unsqueeze(0);
}

/// For each of `parts` [rows, share], the logarithm over the whole vocabulary of the sum of exponentials, [rows, 1].
std::vector<at::Tensor> log_sums(const HeadLoss& loss, const std::vector<at::Tensor>& parts) {
  std::vector<at::Tensor> mine;
  for (const auto& part : parts) {
    if (part.size(1) == 0) {  // a rank whose share is padding
      const auto none = at::zeros({part.size(0), 1}, part.options());
      mine.push_back(at::full_like(none, -std::numeric_limits<double>::infinity()));
      mine.push_back(none);
      continue;
    }
    const auto largest = part.amax(1, true);
    mine.push_back(largest);
    mine.push_back((part - largest).exp_().sum(1, true));
  }
  const auto all = of_all(loss, at::cat(mine, 1));
  std::vector<at::Tensor> out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto largest = all.select(2, static_cast<std::int64_t>(2 * i));
    const auto sums = all.select(2, static_cast<std::int64_t>(2 * i + 1));
    const auto top = largest.amax(0);
    out.push_back((top + (sums * (largest - top).exp()).sum(0).log()).unsqueeze(1));
  }
  return out;
}

}  // namespace

LessonSums lesson_loss(at::Tensor logits, const at::Tensor& teacher, const at::Tensor& labels, const HeadLoss& loss,
                       const Factor& scale, bool gradient) {
  const auto& lesson = *loss.lesson;
  const double ratio = lesson.ratio, temperature = lesson.temperature;
  const bool labelled = ratio < 1;
  const auto type = compute_type(logits.scalar_type());
  const auto columns = loss.gather ? loss.columns : logits.size(1);
  const auto share = logits.narrow(1, 0, columns).to(type);
  const bool warm = temperature != 1;
  const auto cooled = [&](const at::Tensor& x) { return warm ? x / temperature : x; };
  const auto cool = cooled(share), taught = cooled(teacher.narrow(1, 0, columns).to(type));
  auto inputs = std::vector<at::Tensor>{cool, taught};
  if (labelled && warm) inputs.push_back(share);
  const auto sums = log_sums(loss, inputs);

  const auto counted = labels.ne(loss.ignore);
  const auto log_student = cool - sums[0], log_teacher = taught - sums[1];
  const auto wanted = log_teacher.exp();
  const auto terms = at::where(wanted.gt(0), wanted * (log_teacher - log_student), at::zeros_like(wanted));
  std::vector<at::Tensor> rows = {terms.sum(1, true)};
  const auto place = labels - loss.first;
  const auto here = counted.logical_and(place.ge(0)).logical_and(place.lt(columns));
  const auto safe = place.masked_fill(here.logical_not(), 0).unsqueeze(1);
  at::Tensor logs;
  if (labelled) {
    logs = warm ? share - sums[2] : log_student;
    rows.push_back(columns == 0 ? at::zeros({share.size(0), 1}, share.options())
                                : logs.gather(1, safe).masked_fill(here.logical_not().unsqueeze(1), 0));
  }
  const auto whole =
      of_all(loss, at::cat(rows, 1)).sum(0).to(at::kDouble).masked_fill(counted.logical_not().unsqueeze(1), 0);
  LessonSums out{.divergence = whole.select(1, 0).sum() * (temperature * temperature)};
  out.cross_entropy = labelled ? whole.select(1, 1).sum().neg() : at::zeros_like(out.divergence);
  if (!gradient) return out;

  auto slope = (log_student.exp() - wanted) * (ratio * temperature);
  if (labelled) {
    auto soft = logs.exp();
    if (columns > 0) soft.scatter_add_(1, safe, here.to(type).neg().unsqueeze(1));
    slope.add_(soft, 1 - ratio);
  }
  slope.mul_(scale.value).masked_fill_(counted.logical_not().unsqueeze(1), 0);
  if (scale.device.defined()) slope.mul_(scale.device.to(type));
  logits.narrow(1, 0, columns).copy_(slope);
  logits.narrow(1, columns, logits.size(1) - columns).zero_();
  return out;
}

}  // namespace automodel::ops
