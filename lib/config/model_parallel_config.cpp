#include "config/model_parallel_config.h"

#include <fmt/format.h>

#include "config/reader.h"

namespace automodel::config {
namespace {

void read_callable(Reader& reader, const Node& node, const std::string& path, void*) {
  if (!node.is_null())
    reader.refuse("bad-value", path, node.where)
        .says("{} is a Python object in Megatron Core; a recipe can only leave it null", path)
        .hint("remove the key");
}

class PostInit {
 public:
  PostInit(ModelParallelConfig& config, Diagnostics& problems) : config_(config), problems_(problems) {}

  void run() {
    const int tp = config_.tensor_model_parallel_size();
    if (config_.sequence_parallel() && tp <= 1)
      problems_.add("bad-value", "sequence_parallel")
          .says("cannot use sequence parallelism without tensor parallelism")
          .hint("set distributed.tp_size to 2 or more, or sequence_parallel: false");
    if (!config_.expert_tensor_parallel_size()) config_.expert_tensor_parallel_size = tp;
    shards("tensor_parallel_num_weight_shards", config_.tensor_parallel_num_weight_shards(),
           "tensor_model_parallel_size", tp, config_.gtp_weight_remat_size);
    shards("expert_tensor_parallel_num_weight_shards", config_.expert_tensor_parallel_num_weight_shards(),
           "expert_tensor_parallel_size", *config_.expert_tensor_parallel_size(), config_.expert_gtp_weight_remat_size);
    const int pp = config_.pipeline_model_parallel_size();
    if (pp > 1 && !config_.pipeline_dtype())
      problems_.add("bad-value", "pipeline_dtype")
          .says("when using pipeline parallelism, pipeline_dtype must be specified")
          .hint("for example bfloat16, or the model's own type");
    if (!config_.autocast_dtype()) config_.autocast_dtype = config_.params_dtype().value_or(DType::kFloat32);
    deferral(pp);
    if (!config_.microbatch_group_size_per_vp_stage()) config_.microbatch_group_size_per_vp_stage = pp;
    if (config_.overlap_p2p_comm_warmup_flush() && (!config_.overlap_p2p_comm() || config_.batch_p2p_comm()))
      problems_.add("bad-value", "overlap_p2p_comm_warmup_flush")
          .says("overlapping in warm-up and flush needs overlap_p2p_comm and no batch_p2p_comm")
          .hint("set overlap_p2p_comm: true and batch_p2p_comm: false");
    if (config_.fp16() && config_.bf16())
      problems_.add("bad-value", "fp16").says("only one of fp16 and bf16 can be true").hint("choose one");
  }

 private:
  void shards(std::string_view field, const std::optional<int>& given, std::string_view base_field, int base,
              Field<int>& derived) {
    if (!given) return;
    if (*given < base)
      return void(problems_.add("bad-value", std::string(field))
                      .says("{} ({}) must be >= {} ({})", field, *given, base_field, base)
                      .hint("the nearest valid value is {}", base));
    if (base > 0 && *given % base != 0)
      return void(problems_.add("bad-value", std::string(field))
                      .says("{} ({}) must be divisible by {} ({})", field, *given, base_field, base)
                      .hint("nearest valid values: {} and {}", *given / base * base, (*given / base + 1) * base));
    if (base > 0) derived = *given / base;
  }
  void deferral(int pp) {
    if (!config_.defer_embedding_wgrad_compute()) return;
    if (pp == 1)
      return void(problems_.add("bad-value", "defer_embedding_wgrad_compute")
                      .says("cannot defer embedding wgrad compute when pipeline model parallel is not used")
                      .hint("set it to false, or distributed.pp_size to 2 or more"));
    if (!config_.gradient_accumulation_fusion())
      return void(problems_.add("bad-value", "defer_embedding_wgrad_compute")
                      .says("cannot defer embedding wgrad compute when gradient accumulation fusion is not used")
                      .hint("set gradient_accumulation_fusion: true"));
    if (config_.wgrad_deferral_limit() < 0)
      problems_.add("bad-value", "wgrad_deferral_limit")
          .says("wgrad_deferral_limit must be 0 or more")
          .hint("0 defers all microbatches");
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
    warnings.add("expert-tensor-parallel", "sequence_parallel")
        .says("expert and tensor parallelism together are meant to be used with sequence parallelism")
        .hint("set sequence_parallel: true");
  return problems;
}

}  // namespace automodel::config
