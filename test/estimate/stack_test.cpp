#include <cmath>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "arch/counts.h"
#include "estimate/score_time.h"
#include "planned.h"
#include "report/plan_text.h"

namespace automodel::estimate {
using namespace plan;
namespace {

using test::planned;

constexpr const char* kLlama =
    "model_type: llama, hidden_size: 4096, intermediate_size: 14336, num_hidden_layers: 4, num_attention_heads: 32,\n"
    "    num_key_value_heads: 8, vocab_size: 32000, max_position_embeddings: 65536";
constexpr const char* kExperts =
    "model_type: qwen3_moe, hidden_size: 2048, intermediate_size: 6144, num_hidden_layers: 4, num_attention_heads: "
    "32,\n"
    "    num_key_value_heads: 4, head_dim: 128, vocab_size: 32000, max_position_embeddings: 4096, num_experts: 64,\n"
    "    num_experts_per_tok: 8, moe_intermediate_size: 768";
constexpr const char* kDeepseek =
    "model_type: deepseek_v3, hidden_size: 256, intermediate_size: 512, moe_intermediate_size: 64, num_hidden_layers: "
    "6,\n"
    "    num_attention_heads: 4, num_key_value_heads: 4, n_routed_experts: 8, n_shared_experts: 1, vocab_size: 1000,\n"
    "    num_experts_per_tok: 2, n_group: 2, topk_group: 1, q_lora_rank: 64, kv_lora_rank: 32, qk_nope_head_dim: 32,\n"
    "    qk_rope_head_dim: 16, v_head_dim: 32, max_position_embeddings: 4096, num_nextn_predict_layers: 1";

std::string recipe(const std::string& model, const std::string& distributed, const std::string& hardware,
                   const std::string& rest = "", int length = 4096, int batch = 64, int local = 1) {
  return fmt::format(
      "device: cuda\nmodel:\n  torch_dtype: bfloat16\n  config: {{{}}}\ndistributed: {{{}}}\n"
      "dataset: {{_target_: mock, seq_length: {}}}\nstep_scheduler: {{global_batch_size: {}, local_batch_size: {}}}\n"
      "hardware: {{profile: {}}}\n{}",
      model, distributed, length, batch, local, hardware, rest);
}
/// The same with the stack that such recipes are usually run with.
std::string usual(const std::string& model, const std::string& distributed, const std::string& hardware,
                  const std::string& rest = "", int length = 4096, int batch = 64, int local = 1) {
  const bool named = hardware.find("stack: ") != std::string::npos;
  const bool megatron = distributed.find("megatron_fsdp") != std::string::npos || model.starts_with(kExperts) ||
                        model.starts_with(kDeepseek) || rest.find("sequence_parallel") != std::string::npos;
  const std::string stack = megatron ? ", stack: transformer_engine" : ", stack: pytorch";
  return recipe(model, distributed, hardware + (named ? "" : stack), rest, length, batch, local);
}
const Hardware& hardware_of(const EstimatedPlan& plan) {
  return plan.estimate->hardware;
}
double forward(const EstimatedPlan& plan) {
  return plan.estimate->time.stages[0].forward;
}
AxisTraffic experts_of(const EstimatedPlan& plan) {
  for (const auto& each : plan.estimate->time.traffic)
    if (each.axis == mesh::Axis::kEp) return each;
  FAIL("no traffic of experts");
  return {};
}

}  // namespace

TEST_CASE("a plan estimates this program unless the recipe names another stack, and then says so", "[plan]") {
  const auto stack = [](const std::string& distributed, const std::string& hardware, const std::string& rest = "") {
    return planned(recipe(kLlama, distributed, hardware, rest)).stack;
  };
  using config::Stack;
  CHECK(stack("strategy: fsdp2, dp_size: 8", "h100") == Stack::kOwn);
  CHECK(stack("strategy: megatron_fsdp, dp_size: 8", "h100") == Stack::kOwn);
  CHECK(stack("strategy: fsdp2, dp_size: 8", "h100, stack: pytorch") == Stack::kPytorch);
  const auto text = [](const char* named) {
    return report::to_text(
        planned(recipe(kLlama, "strategy: fsdp2, dp_size: 8, mp_policy: {param_dtype: bfloat16}", named)),
        report::ActionFormat::kNone);
  };
  // What is printed are the types of the bytes: FSDP2 has weights and moments in the recipe's dtype.
  CHECK(text("h100").find("\nassumes ") == std::string::npos);
  CHECK(text("h100").find("master weights float32, gradients float32") != std::string::npos);
  CHECK(text("h100, stack: pytorch")
            .find("\nassumes   PyTorch's FSDP2 or DDP, not this program (hardware.stack: pytorch)") !=
        std::string::npos);
  CHECK(text("h100, stack: pytorch").find("compute bfloat16, weights bfloat16, gradients bfloat16\n") !=
        std::string::npos);
}

TEST_CASE("on a CPU bandwidths are used, and options of a GPU stack give warnings", "[plan]") {
  const auto plan = [](const std::string& hardware) {
    const auto text = recipe(kLlama, "strategy: ddp, dp_size: 2", "cpu" + hardware);
    return planned("device: cpu" + text.substr(text.find('\n')));
  };
  const auto usual = plan(""), slow = plan(", node_bandwidth: 0.5, network_bandwidth: 0.25");
  CHECK(usual.warnings.empty());
  CHECK(hardware_of(slow).node.bandwidth == 0.5e9);
  CHECK(hardware_of(slow).network.bandwidth == 0.25e9);
  CHECK(slow.estimate->time.step > usual.estimate->time.step);
  std::vector<std::string> keys;
  for (const auto& each : plan(", stack: pytorch, dispatcher: nccl").warnings) keys.push_back(each.key);
  CHECK(keys == std::vector<std::string>{"hardware.stack", "hardware.dispatcher"});
}

TEST_CASE("attention is estimated at a rate of its own", "[plan]") {
  // With twice the tokens matmuls take twice as long and attention four times.
  for (const std::string stack : {"pytorch", "transformer_engine"}) {
    const auto plan = [&](int length) {
      return planned(usual(kLlama, "strategy: fsdp2, dp_size: 8", "h100, stack: " + stack, "", length));
    };
    const auto one = plan(8192), two = plan(16384);
    const auto& h = hardware_of(one);
    const double scores = 4 * 8192 * arch::layer_score_flops_per_token(one.model->spec, 0, 8192);
    const double fixed = 4 * h.layer_overhead;
    CHECK(forward(two) - 2 * forward(one) ==
          Approx(2 * scores / (h.peak * h.attention_efficiency) - fixed).epsilon(1e-3));
    CHECK(h.attention_efficiency < h.forward_efficiency);
  }
}

TEST_CASE("PyTorch's checkpoints do not repeat the last product of a layer without experts", "[plan]") {
  // What four layers' forward passes take that are not repeated; 4,096 tokens.
  const auto left_out = [](const std::string& model, const char* hardware) {
    auto longer = model;
    longer.replace(longer.find("num_hidden_layers: 4"), 20, "num_hidden_layers: 8");
    const auto time = [&](const std::string& config, const char* kept) {
      const auto mesh = fmt::format("strategy: fsdp2, dp_size: 8, activation_checkpointing: {}", kept);
      return planned(recipe(config, mesh, hardware)).estimate->time.stages[0];
    };
    const auto all = time(longer, "false").forward - time(model, "false").forward;
    return all - (time(model, "full").backward - time(model, "false").backward);
  };
  const double products = 4 * 4096 * 2.0 * 4096 * 14336 / (989.4e12 * 0.63);
  CHECK(left_out(kLlama, "h100, stack: pytorch") == Approx(products));
  for (const char* hardware : {"h100", "h100, stack: pytorch"})
    CHECK(left_out(kExperts, hardware) == Approx(0).margin(1e-9));
  CHECK(left_out(kLlama, "h100") == Approx(0).margin(1e-9));
}

TEST_CASE("what exists beside the logits, and what allocators reserve, follows from the stack", "[plan]") {
  const auto most = [](const char* hardware, const char* loss) {
    const auto plan = planned(recipe(kLlama, "strategy: fsdp2, dp_size: 8", hardware, loss));
    return plan.estimate->memory.ranks[0].most();
  };
  const auto per_logit = [&](const char* hardware, const char* loss) {
    return most(hardware, loss).logits / (4096.0 * 32000);
  };
  const char* plain = "";
  const char* fused = "loss_fn: {_target_: te_parallel_ce}\n";
  CHECK(per_logit("h100, stack: pytorch", plain) == 2 + 12);
  CHECK(per_logit("h100, stack: pytorch", fused) == 2);
  CHECK(per_logit("h100, stack: transformer_engine", plain) == 2 + 8);
  CHECK(per_logit("h100, stack: transformer_engine", fused) == 2);
  // This program's loss is one, whatever it is called.
  CHECK(per_logit("h100", plain) == per_logit("h100", fused));
  const auto reserved = [&](const char* hardware) {
    const auto shares = most(hardware, plain);
    return (shares.framework - 1.5 * 1024 * 1024 * 1024) / shares.tensors();
  };
  CHECK(reserved("h100, stack: pytorch") == Approx(0.16));
  CHECK(reserved("h100, stack: transformer_engine") == Approx(0.04));
}

TEST_CASE("float8 speeds up only the matmuls of layers", "[plan]") {
  const auto plain = planned(usual(kLlama, "strategy: megatron_fsdp, dp_size: 8", "h100"));
  const auto eight = planned(usual(kLlama, "strategy: megatron_fsdp, dp_size: 8", "h100", "fp8: {enabled: true}\n"));
  CHECK(hardware_of(eight).peak == Approx(1978.9e12));
  const auto reached = [](const EstimatedPlan& plan, double share) { return share * hardware_of(plan).peak; };
  CHECK(reached(eight, hardware_of(eight).forward_efficiency) > reached(plain, hardware_of(plain).forward_efficiency));
  CHECK(reached(eight, hardware_of(eight).attention_efficiency) ==
        Approx(reached(plain, hardware_of(plain).attention_efficiency)));
  CHECK(reached(eight, hardware_of(eight).head_efficiency) ==
        Approx(reached(plain, hardware_of(plain).head_efficiency)));
  // A given peak that exceeds that of 16-bit types is used; a device without float8 computes in 16 bits.
  const auto peak = planned(usual(kLlama, "strategy: megatron_fsdp, dp_size: 8", "h100, peak_tflops: 1978.9"));
  CHECK(peak.estimate->time.step == Approx(eight.estimate->time.step));
  CHECK(hardware_of(planned(usual(kLlama, "strategy: ddp, dp_size: 8", "a100-80", "fp8: {enabled: true}\n"))).peak ==
        312e12);
  CHECK(hardware_of(planned(usual(kLlama, "strategy: ddp, dp_size: 8", "h100", "fp8: {enabled: false}\n"))).peak ==
        989.4e12);
}

TEST_CASE("a plan says where this program's float8 is not calibrated", "[plan]") {
  const auto says = [](const std::string& hardware, const std::string& fp8) {
    const auto made = planned(recipe(kLlama, "strategy: fsdp2, dp_size: 8", hardware, fp8));
    return hardware_of(made).origin.find("; float8 is not calibrated there") != std::string::npos;
  };
  CHECK(says("b200", "fp8: {enabled: true}\n"));
  CHECK_FALSE(says("b200", ""));
  CHECK_FALSE(says("h100", "fp8: {enabled: true}\n"));
  CHECK_FALSE(says("b200, stack: pytorch", "fp8: {enabled: true}\n"));
}

TEST_CASE("8-bit weights are kept where a step has several microbatches, weights are whole, and memory suffices",
          "[plan]") {
  const auto keeps = [](const std::string& distributed, const std::string& hardware) {
    const auto made = planned(recipe(kLlama, distributed, hardware, "fp8: {enabled: true}\n"));
    return made.execution.precision.float8->keep_weights;
  };
  CHECK(keeps("strategy: ddp, dp_size: 1", "h100"));
  CHECK_FALSE(keeps("strategy: fsdp2, dp_size: 8", "h100"));
  CHECK_FALSE(keeps("strategy: ddp, dp_size: 1", "h100, stack: pytorch"));
  CHECK_FALSE(keeps("strategy: ddp, dp_size: 1", "h100, memory: 1GiB"));
}

TEST_CASE("experts cost a time each where they are multiplied one by one", "[plan]") {
  const auto each = [](const std::string& hardware, const std::string& rest = "", int ranks = 1) {
    const auto made = planned(recipe(kExperts, "strategy: ddp, dp_size: 8", hardware, rest));
    return dispatch_of(hardware_of(made), ranks).expert;
  };
  for (const char* name : {"h100", "b200"}) CHECK(each(name) == 0);
  for (const char* name : {"a100-80", "l40s"}) CHECK(each(name) == Approx(120e-6));
  CHECK(each("h100", "", 8) == Approx(120e-6));
  CHECK(each("h100", "fp8: {enabled: true}\n") == Approx(120e-6));
  CHECK(each("h100", "model_parallel: {gradient_accumulation_fusion: true}\n") == Approx(120e-6));
  CHECK(each("h100", "peft: {target_modules: '*q_proj'}\n") == 0);
  CHECK(each("h100", "peft: {target_modules: '*mlp.experts'}\n") == Approx(120e-6));
}

TEST_CASE("only whole sequences on one rank have cuDNN's attention", "[plan]") {
  const auto time = [](const std::string& more, const std::string& mesh = "dp_size: 8", const std::string& rest = "") {
    const auto made = planned(recipe(std::string(kLlama) + more, "strategy: fsdp2, " + mesh, "h200", rest));
    const auto& h = hardware_of(made);
    const auto seconds = score_time(made.model->spec, 0, 1e12, 2, 4096, made.mesh.sizes().cp, h);
    return seconds.forward * h.peak * h.attention_efficiency / 1e12;  // 1: at the rate of flash attention
  };
  CHECK(time("") < 0.5);
  CHECK(time("", "dp_size: 4, cp_size: 2") == Approx(1));
  CHECK(time("", "dp_size: 8", "packed_sequence: {packed_sequence_size: 4096}\n") == Approx(1));
  const auto window = [&](const std::string& tokens) {
    std::string model = kLlama;
    model.replace(model.find("llama"), 5, "mistral");
    const auto made = planned(recipe(model + ", sliding_window: " + tokens, "strategy: fsdp2, dp_size: 8", "h200"));
    const auto& h = hardware_of(made);
    return score_time(made.model->spec, 0, 1e12, 2, 4096, 1, h).forward * h.peak * h.attention_efficiency / 1e12;
  };
  CHECK(window("1024") == Approx(1));
  CHECK(window("4096") < 0.5);
}

TEST_CASE("overlapped communication takes less time per step but sends as many bytes", "[plan]") {
  const auto tensor = [](const std::string& switches) {
    return planned(usual(kLlama, "strategy: megatron_fsdp, dp_size: 1, tp_size: 8", "h100",
                         "model_parallel: {sequence_parallel: true" + switches + "}\n"));
  };
  const auto apart = tensor(""), over = tensor(", tp_comm_overlap: true");
  CHECK(forward(over) < forward(apart));
  CHECK(over.estimate->time.traffic[0].bytes == apart.estimate->time.traffic[0].bytes);
  const auto experts = [](const std::string& rest) {
    return planned(usual(kExperts, "strategy: megatron_fsdp, dp_size: 16, ep_size: 16", "h100", rest));
  };
  const auto waiting = experts(""), hidden = experts("model_parallel: {overlap_moe_expert_parallel_comm: true}\n");
  CHECK(forward(hidden) < forward(waiting));
  CHECK(experts_of(hidden).bytes == experts_of(waiting).bytes);
}

TEST_CASE("a dispatcher that sends a token to each machine only once sends fewer bytes", "[plan]") {
  const auto plan = [](const std::string& dispatcher) {
    return planned(usual(kExperts, "strategy: fsdp2, dp_size: 32, ep_size: 32", "h100" + dispatcher));
  };
  const double row = 4096.0 * 2048 * 2, layers = 4, times = 4 * 2;  // there and back, two passes, two microbatches
  const auto every = experts_of(plan(", dispatcher: nccl"));
  CHECK(every.bytes == Approx(layers * times * 8 * row * 31 / 32));
  // Eight choices among four machines reach 4 (1 - 0.75^8) of them, and one in four of these is the own machine.
  const auto once = experts_of(plan(", dispatcher: deduplicated"));
  CHECK(once.bytes == Approx(layers * times * row * 4 * (1 - std::pow(0.75, 8)) * 3 / 4));
  CHECK(once.seconds == Approx(once.bytes / 50e9));
  CHECK(experts_of(plan("")).bytes == once.bytes);
  CHECK(experts_of(plan(", stack: own")).bytes == every.bytes);
  // Within a machine FSDP2 recipes use DeepEP, Megatron Core's use NCCL.
  const auto inside = [](const std::string& strategy) {
    const auto made = planned(usual(kExperts, strategy + ", dp_size: 8, ep_size: 8", "h100"));
    return dispatch_of(hardware_of(made), 8).dispatcher;
  };
  CHECK(inside("strategy: fsdp2") == config::Dispatcher::kDeduplicated);
  CHECK(inside("strategy: megatron_fsdp") == config::Dispatcher::kNccl);
  CHECK(inside("strategy: ddp") == config::Dispatcher::kNccl);
}

TEST_CASE("a recipe can set the bandwidths of its cluster", "[plan]") {
  const auto seconds = [](const std::string& hardware) {
    const auto plan =
        planned(usual(kLlama, "strategy: ddp, dp_size: 2, pp_size: 4, pipeline: {}", hardware, "", 4096, 32, 4),
                {.ranks_per_node = 2});
    for (const auto& each : plan.estimate->time.traffic)
      if (each.axis == mesh::Axis::kPp) return each.seconds;
    return 0.0;
  };
  CHECK(seconds("h100, network_bandwidth: 12.5") == Approx(4 * seconds("h100")));
  const auto near = planned(usual(kLlama, "strategy: ddp, dp_size: 8", "h100, node_bandwidth: 32"));
  CHECK(hardware_of(near).node.bandwidth == 32e9);
}

TEST_CASE("every hardware profile gives a plan with a plausible MFU", "[plan]") {
  for (const auto& each : device_profiles()) {
    CAPTURE(each.name);
    const auto plan = planned(usual(kLlama, "strategy: fsdp2, dp_size: 2", std::string(each.name)));
    CHECK(plan.estimate->time.mfu > 0.01);
    CHECK(plan.estimate->time.mfu < 1);
  }
  for (const char* name : {"gb200", "b300", "gh200", "h200-nvl", "a100-40", "a100-80", "mi300x"})
    CHECK(find_device(name) != nullptr);
}

TEST_CASE("without a profile a plan for GPUs is for the GPU of this machine", "[plan]") {
  const auto plan = [](const std::string& device, const std::string& hardware, const std::string& gpu) {
    const auto text = recipe(kLlama, "strategy: fsdp2, dp_size: 2", hardware);
    return planned("device: " + device + text.substr(text.find('\n')), {.cuda_available = !gpu.empty(), .gpu = gpu});
  };
  const auto named = plan("cuda", "h200", ""), found = plan("cuda", "null", "NVIDIA H200");
  CHECK(hardware_of(found).name == "h200");
  CHECK(hardware_of(found).origin ==
        "the GPU of this machine, NVIDIA H200; data sheet of NVIDIA H200 SXM, 141 GB, kernels of own");
  const auto hosts = planned(recipe(kLlama, "strategy: fsdp2, dp_size: 16", "null"), {.gpu = "NVIDIA H200"});
  CHECK(hardware_of(hosts).origin.starts_with("the GPU of this machine, NVIDIA H200, taken for that of all hosts; "));
  CHECK(hardware_of(found).memory == hardware_of(named).memory);
  CHECK(hardware_of(found).peak_known);
  CHECK(found.estimate->time.step == named.estimate->time.step);
  CHECK(hardware_of(plan("auto", "null", "NVIDIA H200")).name == "h200");
  // The recipe comes first, key by key.
  CHECK(hardware_of(plan("cuda", "a100-80", "NVIDIA H200")).name == "a100-80");
  CHECK(hardware_of(plan("cuda", "null, memory: 20GiB", "NVIDIA H200")).memory == 20.0 * 1024 * 1024 * 1024);
  CHECK(hardware_of(plan("cpu", "null", "NVIDIA H200")).name == "cpu");
  for (const char* other : {"", "NVIDIA H20", "NVIDIA A100 80GB PCIe"}) {
    const auto unknown = plan("cuda", "null", other);
    CHECK(hardware_of(unknown).name == "cuda");
    CHECK(hardware_of(unknown).origin == "no device profile given; assuming NVIDIA H100 SXM, 80 GB");
    CHECK_FALSE(hardware_of(unknown).memory);
    CHECK_FALSE(hardware_of(unknown).peak_known);
  }
}

TEST_CASE("MFU has a denominator where the recipe or a known GPU gives it", "[plan]") {
  const auto known = [](const std::string& device, const std::string& hardware) {
    const auto text = recipe(kLlama, "strategy: fsdp2, dp_size: 2", hardware);
    const auto made = planned("device: " + device + text.substr(text.find('\n')));
    return hardware_of(made).peak_known ? hardware_of(made).peak : 0;
  };
  CHECK(known("cuda", "h200") == 989.4e12);
  CHECK(known("cuda", "null") == 0);
  CHECK(known("cuda", "null, peak_tflops: 100") == 100e12);
  // Float32 does not run in TF32; autocast makes 16 bits of it.
  const auto float32 = [](const std::string& hardware, const std::string& mesh = "") {
    auto text = recipe(kLlama, "strategy: fsdp2, dp_size: 2" + mesh, hardware);
    text.replace(text.find("torch_dtype: bfloat16"), 21, "torch_dtype: float32 ");
    return planned(text);
  };
  CHECK_FALSE(hardware_of(float32("h200")).peak_known);
  CHECK(hardware_of(float32("h200, peak_tflops: 60")).peak_known);
  const auto half = planned(recipe(kLlama, "strategy: fsdp2, dp_size: 2", "h200"));
  CHECK(hardware_of(half).tells_mfu(false));
  CHECK_FALSE(hardware_of(half).tells_mfu(true));
  CHECK(hardware_of(float32("h200, peak_tflops: 60")).tells_mfu(true));
  const auto cast = float32("h200", ", autocast_dtype: bfloat16");
  CHECK(hardware_of(cast).peak_known);
  CHECK(hardware_of(cast).peak == 989.4e12);
  CHECK(known("cpu", "null") == 0);
  CHECK(known("cpu", "null, peak_tflops: 2") == 2e12);
  CHECK(known("cpu", "h200, peak_tflops: 2") == 2e12);  // the profile has no effect on a CPU
}

TEST_CASE("multi-token prediction in a layout is planned but refused for training", "[plan]") {
  const auto text = [](const std::string& layout) {
    return usual(kDeepseek,
                 "strategy: megatron_fsdp, dp_size: 2, pp_size: 2, pipeline: {pp_schedule: MegatronInterleaved, "
                 "pipeline_model_parallel_layout: \"" +
                     layout + "\"}",
                 "h100", "", 128, 8, 4);
  };
  const auto without = planned(text("Ett|t|t|ttL")), with = planned(text("Ett|t|t|ttmL"));
  CHECK(without.unsupported.empty());
  REQUIRE(with.unsupported.size() == 1);
  CHECK(with.unsupported[0].key == "distributed.pipeline.pipeline_model_parallel_layout");
  const auto elements = [](const EstimatedPlan& plan) { return stage_elements(plan, 3).total(); };
  const auto& shares = without.shares.layer(5);
  CHECK(elements(with) - elements(without) == Approx(shares.dense + shares.expert + 2 * 256 * 256));
  CHECK(with.estimate->time.stages[3].flops > without.estimate->time.stages[3].flops);
  CHECK(with.estimate->memory.ranks[1].most().total() > without.estimate->memory.ranks[1].most().total());
  const auto problems = [](const std::string& yaml, bool training) {
    const auto loaded = config::read_recipe(yaml, "recipe.yaml", {}, {});
    REQUIRE(loaded.problems.empty());
    PlanRequest request;
    request.training = request.cuda_available = training;
    return to_text(make_plan(loaded, request).problems);
  };
  CHECK(problems(text("Ett|t|t|ttmmL"), false).find("'m' (mtp) appears 2 times, not 1") != std::string::npos);
  CHECK(problems(text("Ett|t|t|ttmL"), true).find("can be planned but not trained") != std::string::npos);
  CHECK(problems(text("Ett|t|t|ttL"), true).empty());
}

TEST_CASE("DeepSeek V3 with a softmax router is plan-only", "[plan]") {
  const auto plan =
      planned(usual(std::string(kDeepseek) + ", scoring_func: softmax", "strategy: fsdp2, dp_size: 2", "h100"));
  CHECK(plan.model->spec.plan_only.find("softmax") != std::string::npos);
}

TEST_CASE("selective recomputation also works under megatron_fsdp", "[plan]") {
  const auto kept = [](const std::string& how) {
    return planned(usual(kLlama, "strategy: megatron_fsdp, dp_size: 8, activation_checkpointing: " + how, "h100"))
        .estimate->memory.ranks[0]
        .most_activations;
  };
  CHECK(kept("selective") < kept("off"));
  CHECK(kept("full") < kept("selective"));
}

}  // namespace automodel::estimate
