// Names of optimizers and of learning-rate schedules.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "foreign/trainers.h"

namespace automodel::foreign {
namespace {

struct OptimizerName {
  std::string_view theirs, ours;
  std::string_view states = "";  ///< of Adam's moments, where they do not have the masters' type
};
constexpr auto kOptimizers = std::to_array<OptimizerName>({
    {"adamw", "adamw"},
    {"adamw_torch", "adamw"},
    {"adamw_torch_fused", "adamw"},
    {"adamw_torch_xla", "adamw"},
    {"adamw_torch_npu_fused", "adamw"},
    {"adamw_hf", "adamw"},
    {"adamw_apex_fused", "adamw"},
    {"fusedadam", "adamw"},
    {"torch.optim.adamw", "adamw"},
    {"deepspeedcpuadam", "adamw"},
    {"adam", "adamw"},
    {"torch.optim.adam", "adam"},
    {"paged_adamw_32bit", "adamw", "float32 paged"},
    {"paged_adamw", "adamw", "float32 paged"},
    {"bitsandbytes.optim.pagedadamw", "adamw", "float32 paged"},
    {"bitsandbytes.optim.pagedadamw32bit", "adamw", "float32 paged"},
    {"adamw_bnb_8bit", "adamw", "8bit"},
    {"adamw_8bit", "adamw", "8bit"},
    {"adamw_torch_8bit", "adamw", "8bit"},
    {"ao_adamw_8bit", "adamw", "8bit"},
    {"adamw_torch_4bit", "adamw", "4bit"},
    {"ao_adamw_4bit", "adamw", "4bit"},
    {"ao_adamw_fp8", "adamw", "8bit"},
    {"paged_adamw_8bit", "adamw", "8bit paged"},
    {"bitsandbytes.optim.pagedadamw8bit", "adamw", "8bit paged"},
    {"bitsandbytes.optim.adamw8bit", "adamw", "8bit"},
    {"torchao.optim.adamw8bit", "adamw", "8bit"},
    {"torchao.optim.adamw4bit", "adamw", "4bit"},
    {"muon", "muon"},
    {"sgd", "sgd"},
    {"torch.optim.sgd", "sgd"},
});

}  // namespace

void apply_optimizer(const Setting<std::string>& name, const Surroundings& around, Resolved& out, Findings& findings) {
  std::string lower = *name;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto* row = std::ranges::find(kOptimizers, lower, &OptimizerName::theirs);
  if (row == kOptimizers.end()) {
    if (around.accept_adamw) {
      out.optimizer = {"adamw", "--accept-optimizer adamw"};
      return findings.cannot(fmt::format("{}: {}", name.key, *name), "planned as AdamW, as --accept-optimizer says");
    }
    return findings.refuse(fmt::format("{}: {}", name.key, *name),
                           "this optimizer's states have no equivalent, and its memory is why it is chosen; "
                           "--accept-optimizer adamw plans AdamW instead");
  }
  out.optimizer = {std::string(row->ours), name.key};
  if (row->states.empty()) return;
  out.optimizer_states = row->states;
  if (row->states == "float32 paged")
    return findings.note(fmt::format("{}: {}", name.key, *name),
                         "planned as AdamW; its pages may move to host memory where the device has no room");
  findings.cannot(
      fmt::format("{}: {}", name.key, *name),
      fmt::format("moments in {}: planned in bfloat16, which is an upper bound",
                  row->states.starts_with("4bit") ? "half a byte per parameter" : "one byte per parameter"));
}

void apply_scheduler(const Setting<std::string>& name, Resolved& out, Findings& findings) {
  if (!name) return;
  if (*name == "cosine" || *name == "linear") {
    out.lr_decay_style = name;
    if (!out.min_lr) out.min_lr = {0.0, name.key};
  } else if (*name == "constant" || *name == "constant_with_warmup") {
    out.lr_decay_style = {"constant", name.key};
  } else {
    findings.ignore(fmt::format("{}: {}", name.key, *name), "the learning rates of a plan do not matter");
  }
}

void say_partial_offload(const std::string& key, const std::string& what, Findings& findings) {
  findings.cannot(key, fmt::format("{} in host memory, the rest on the device: planned without it. Adam's masters and "
                                   "moments are 12 bytes per parameter of the rank's shard, weights 2",
                                   what));
}

}  // namespace automodel::foreign
