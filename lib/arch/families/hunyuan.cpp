#include "arch/families/hunyuan.h"

#include <cmath>

#include "arch/rope_config.h"

namespace automodel::arch {

void read_hunyuan(ConfigReader& config, ModelSpec& spec) {
  spec.head_norm = HeadNorm{.after_rope = true};
  spec.qkv_bias = spec.output_bias = config.boolean({"attention_bias"}, false);
  if (!config.boolean({"use_qk_norm"}, true))
    config.bad_value("use_qk_norm", "this family always has norms of queries and keys", "leave it out");
  config.ignore({"eod_token_id", "im_start_id", "im_end_id", "im_newline_id", "sep_token_id"});
  auto scaling = rope_settings(config);
  if (!scaling) return;
  scaling->ignore({"beta_fast", "beta_slow", "mscale", "mscale_all_dim"});
  const double alpha = scaling->number({"alpha"}, 0.0);
  if (spec.rope.kind != RopeKind::kDynamic || alpha == 0) return;
  const double width = spec.rope.rotary_dim;
  spec.rope = {.theta = spec.rope.theta * std::pow(alpha, width / (width - 2)), .rotary_dim = spec.rope.rotary_dim};
}

}  // namespace automodel::arch
