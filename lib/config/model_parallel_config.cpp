#include "config/model_parallel_config.h"

#include <fmt/format.h>

#include "config/reader.h"

namespace automodel::config {
namespace {

void read_callable(Reader& reader, const Node& node, const std::string& path, void*) {
  if (!node.is_null())
    reader.report("bad-value", node.where, path,
                  fmt::format("{} is a Python object in Megatron Core; a recipe can only leave it null", path),
                  "remove the key");
}

class PostInit {
 public:
  PostInit(ModelParallelConfig& config, Diagnostics& problems) : config_(config), problems_(problems) {}

  void run() {
    const int tp = config_.tensor_model_parallel_size();
    if (config_.sequence_parallel() && tp <= 1)
      refuse("sequence_parallel", "cannot use sequence parallelism without tensor parallelism",
             "set distributed.tp_size to 2 or more, or sequence_parallel: false");
    if (!config_.expert_tensor_parallel_size()) config_.expert_tensor_parallel_size = tp;
    shards("tensor_parallel_num_weight_shards", config_.tensor_parallel_num_weight_shards(),
           "tensor_model_parallel_size", tp, config_.gtp_weight_remat_size);
    shards("expert_tensor_parallel_num_weight_shards", config_.expert_tensor_parallel_num_weight_shards(),
           "expert_tensor_parallel_size", *config_.expert_tensor_parallel_size(), config_.expert_gtp_weight_remat_size);
    const int pp = config_.pipeline_model_parallel_size();
    if (pp > 1 && !config_.pipeline_dtype())
      refuse("pipeline_dtype", "when using pipeline parallelism, pipeline_dtype must be specified",
             "for example bfloat16, or the model's own type");
    if (!config_.autocast_dtype()) config_.autocast_dtype = config_.params_dtype().value_or(DType::kFloat32);
    deferral(pp);
    if (!config_.microbatch_group_size_per_vp_stage()) config_.microbatch_group_size_per_vp_stage = pp;
    if (config_.overlap_p2p_comm_warmup_flush() && (!config_.overlap_p2p_comm() || config_.batch_p2p_comm()))
      refuse("overlap_p2p_comm_warmup_flush",
             "overlapping in warm-up and flush needs overlap_p2p_comm and no batch_p2p_comm",
             "set overlap_p2p_comm: true and batch_p2p_comm: false");
    if (config_.fp16() && config_.bf16()) refuse("fp16", "only one of fp16 and bf16 can be true", "choose one");
  }

 private:
  void shards(std::string_view field, const std::optional<int>& given, std::string_view base_field, int base,
              Field<int>& derived) {
    if (!given) return;
    if (*given < base)
      return refuse(field, fmt::format("{} ({}) must be >= {} ({})", field, *given, base_field, base),
                    fmt::format("the nearest valid value is {}", base));
    if (base > 0 && *given % base != 0)
      return refuse(field, fmt::format("{} ({}) must be divisible by {} ({})", field, *given, base_field, base),
                    fmt::format("nearest valid values: {} and {}", *given / base * base, (*given / base + 1) * base));
    if (base > 0) derived = *given / base;
  }
  void deferral(int pp) {
    if (!config_.defer_embedding_wgrad_compute()) return;
    if (pp == 1)
      return refuse("defer_embedding_wgrad_compute",
                    "cannot defer embedding wgrad compute when pipeline model parallel is not used",
                    "set it to false, or distributed.pp_size to 2 or more");
    if (!config_.gradient_accumulation_fusion())
      return refuse("defer_embedding_wgrad_compute",
                    "cannot defer embedding wgrad compute when gradient accumulation fusion is not used",
                    "set gradient_accumulation_fusion: true");
    if (config_.wgrad_deferral_limit() < 0)
      refuse("wgrad_deferral_limit", "wgrad_deferral_limit must be 0 or more", "0 defers all microbatches");
  }
  void refuse(std::string_view key, std::string message, std::string help) {
    problems_.push_back({"bad-value", std::move(message), std::move(help), {}, std::string(key)});
  }

  ModelParallelConfig& config_;
  Diagnostics& problems_;
};

}  // namespace

TypeInfo Callable::config_type() {
  return {[]() -> std::string { return "null"; }, read_callable, [](const void*, Keys) -> Value { return nullptr; },
          detail::null_schema};
}

Diagnostics post_init(ModelParallelConfig& config, Diagnostics& warnings) {
  Diagnostics problems;
  PostInit(config, problems).run();
  if (config.expert_model_parallel_size() > 1 && config.tensor_model_parallel_size() > 1 && !config.sequence_parallel())
    warnings.push_back({"expert-tensor-parallel",
                        "expert and tensor parallelism together are meant to be used with sequence parallelism",
                        "set sequence_parallel: true",
                        {},
                        "sequence_parallel"});
  return problems;
}

}  // namespace automodel::config
