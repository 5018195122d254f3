// Runs with failures: limits with closed forms, the rules of restarts, and published runs.
#include "estimate/failures.h"

#include <chrono>
#include <cmath>

#include <catch2/catch.hpp>
#include <fmt/format.h>

namespace automodel::estimate {
namespace {

constexpr double kHour = 3600, kDay = 24 * kHour;

/// 100 hosts, steps of 10 s, on average a failure of software every four hours.
FailingRun usual() {
  FailingRun run{.steps = 50000, .hosts = 100, .step = 10};
  run.rates[static_cast<std::size_t>(FailureKind::kSoftware)] = 1 / (4 * kHour * run.hosts);
  run.checkpoints = {.every = 60, .waiting = 30};
  run.restart = 300;
  return run;
}

FailingRun of_kind(FailureKind kind, FailingRun run) {
  std::swap(run.rates[static_cast<std::size_t>(kind)], run.rates[static_cast<std::size_t>(FailureKind::kSoftware)]);
  return run;
}

}  // namespace

TEST_CASE("without failures a run takes its steps and saves") {
  auto run = usual();
  run.rates = {};
  const auto made = simulate_failures(run, 10);
  CHECK(made.ends);
  CHECK(made.total == Approx(50000 * 10.5));
  CHECK(made.goodput == Approx(1 / 1.05));
  CHECK(made.mean_interruptions == 0);
}

TEST_CASE("the mean time with failures is that of the exponential law") {
  // An interval of length c, repeated until no failure falls into it, after restarts of length R that may fail too
  // (Daly 2006): exp(rate R) (exp(rate c) - 1) / rate on average.
  const auto run = usual();
  const double rate = run.rate(), interval = 60 * 10 + 30;
  const double mean = 50000.0 / 60 * std::exp(rate * run.restart) * std::expm1(rate * interval) / rate;
  const auto made = simulate_failures(run, 2000);
  CHECK(made.total == Approx(mean).epsilon(0.002));
  CHECK(made.mean_interruptions == Approx(rate * made.total).epsilon(0.01));
  CHECK(made.end.low < made.end.middle);
  CHECK(made.end.middle < made.end.high);
  // The parts are the whole.
  CHECK(50000 * 10 + made.saving + made.again + made.restarting + made.waiting + made.slower == Approx(made.total));
}

TEST_CASE("the best interval between saves is near the square root of twice save time and time between failures") {
  const auto run = usual();
  const auto [every, made] = best_interval(run, &FailingRun::checkpoints);
  const double young = std::sqrt(2 * 30 * 4 * kHour) / 10;  // 93 steps
  CHECK(static_cast<double>(every) > young / 1.6);
  CHECK(static_cast<double>(every) < young * 1.6);
  for (const auto other : {std::int64_t{10}, std::int64_t{1000}}) {
    auto worse = run;
    worse.checkpoints.every = other;
    CHECK(simulate_failures(worse).goodput < made.goodput);
  }
}

TEST_CASE("a save in the background counts only when it is complete, and the next one waits for it") {
  auto run = usual();
  run.checkpoints = {.every = 60, .waiting = 0, .background = 0};
  const auto at_once = simulate_failures(run);
  run.checkpoints.background = 500;
  const auto late = simulate_failures(run);
  CHECK(late.saving == 0);
  CHECK(late.again / late.mean_interruptions == Approx(at_once.again / at_once.mean_interruptions + 500).epsilon(0.05));
  run.checkpoints.background = 660;  // an interval takes 600 s
  CHECK(simulate_failures(run).saving == Approx(50000.0 / 60 * 60).epsilon(0.05));
}

TEST_CASE("ranks notice a lost host or network after the timeout, and a killed rank at once") {
  auto run = usual();
  run.timeout = 600;
  run.spares = 1000;
  run.repair = kDay;
  const auto per_failure = [&](FailureKind kind) {
    const auto made = simulate_failures(of_kind(kind, run));
    return made.restarting / made.mean_interruptions;
  };
  // A restart that fails is cut short.
  CHECK(per_failure(FailureKind::kSoftware) == Approx(300).epsilon(0.03));
  CHECK(per_failure(FailureKind::kGpu) == Approx(300).epsilon(0.03));
  CHECK(per_failure(FailureKind::kNetwork) == Approx(900).epsilon(0.05));
  CHECK(per_failure(FailureKind::kHost) == Approx(900).epsilon(0.05));
}

TEST_CASE("a lost host is replaced by a spare, missed by a smaller plan, or waited for") {
  auto run = of_kind(FailureKind::kHost, usual());
  run.repair = 10 * kHour;
  const auto waits = simulate_failures(run);
  CHECK(waits.waiting > 0.4 * waits.total);
  CHECK(waits.slower == 0);
  run.spares = 30;  // 2.5 hosts are under repair on average
  const auto spared = simulate_failures(run);
  CHECK(spared.waiting == 0);
  CHECK(spared.goodput > waits.goodput);
  run.spares = 0;
  run.fewer = [](int hosts) -> std::optional<Pace> {
    if (hosts < 50) return std::nullopt;
    return Pace{hosts, 1000.0 / hosts};
  };
  const auto smaller = simulate_failures(run);
  CHECK(smaller.waiting == 0);
  CHECK(smaller.slower > 0.01 * smaller.total);
  CHECK(smaller.goodput < spared.goodput);
  CHECK(smaller.goodput > waits.goodput);
}

TEST_CASE("copies in memory survive the loss of a host, but not of both hosts that have one") {
  auto run = of_kind(FailureKind::kHost, usual());
  run.repair = kHour;
  run.spares = 100;
  const auto without = simulate_failures(run);
  run.copies = {.every = 1};
  const auto with = simulate_failures(run);
  // Half an interval is made again without copies, half a step with them.
  CHECK(without.again / without.mean_interruptions == Approx(315).epsilon(0.05));
  CHECK(with.again / with.mean_interruptions < 20);
  const auto of_hosts = [&](int hosts) {
    auto few = run;
    few.rates[1] *= static_cast<double>(few.hosts) / hosts;
    few.hosts = hosts;
    few.restart = kHour;  // time for a second loss
    const auto made = simulate_failures(few);
    return made.again / made.mean_interruptions;
  };
  CHECK(of_hosts(2) > 50);
  CHECK(of_hosts(100) < 20);
  // On one host all copies are lost with it.
  CHECK(of_hosts(1) > 200);
}

TEST_CASE("a run that makes no progress is given up, and the same run gives the same figures") {
  auto run = usual();
  run.checkpoints.every = 0;  // never four undisturbed days
  const auto lost = simulate_failures(run);
  CHECK_FALSE(lost.ends);
  CHECK(lost.goodput < 0.05);
  for (auto& rate : run.rates) rate = 1e9;
  CHECK_FALSE(simulate_failures(run).ends);
  const auto once = simulate_failures(usual()), again = simulate_failures(usual());
  CHECK(once.total == again.total);
  CHECK(once.interruptions.high == again.interruptions.high);
}

namespace {

struct Planned {
  config::LoadedRecipe loaded;
  EstimatedPlan whole;
  MonthPlan month;
};

Planned planned(const std::string& text, int ranks) {
  auto loaded = config::read_recipe(text, "r.yaml", {}, [](const std::string&) { return std::nullopt; });
  REQUIRE(to_text(loaded.problems) == "");
  auto made = make_plan(loaded, {.world_size = ranks});
  REQUIRE(to_text(made.problems) == "");
  Planned out{std::move(loaded), std::move(*made.plan), {}};
  SmallerPlans plans(out.loaded, out.whole, {.world_size = ranks}, 8, 1);
  out.month = plan_month(out.loaded.recipe, out.whole, 8, plans);
  return out;
}

/// A pipeline of eight layers per stage, tensor parallel on 8 ranks.
std::string large(int hidden, int inner, int layers, int heads, int kv_heads, int batch, double days,
                  const std::string& rest) {
  // The number of steps follows from the step time; ten steps are enough to know it.
  const auto text = [&](const std::string& steps) {
    return fmt::format(
        "model: {{config: {{model_type: llama, hidden_size: {}, intermediate_size: {}, num_hidden_layers: {}, "
        "num_attention_heads: {}, num_key_value_heads: {}, vocab_size: 128256, max_position_embeddings: 8192}}}}\n"
        "dataset: {{_target_: mock, vocab_size: 128256, seq_length: 8192}}\n"
        "step_scheduler: {{global_batch_size: {}, local_batch_size: 16, ckpt_every_steps: 50{}}}\n"
        "device: cuda\n"
        "distributed: {{strategy: fsdp2, tp_size: 8, pp_size: 16, pipeline: {{}}}}\n{}",
        hidden, inner, layers, heads, kv_heads, batch, steps, rest);
  };
  const auto short_run = planned(text(", max_steps: 10"), batch / 16 * 128);
  return text(fmt::format(", max_steps: {}", std::llround(days * kDay / short_run.month.run.step)));
}

double interruptions_in(double days, const RunOutcome& run) {
  return run.mean_interruptions / run.total * days * kDay;
}

}  // namespace

TEST_CASE("Llama 3 405B: 419 interruptions in 54 days on 16,384 GPUs, of which more than nine tenths train") {
  // arXiv 2407.21783, section 3.3.4. The default rates are of this run; the time lost to each interruption is not.
  const auto begin = std::chrono::steady_clock::now();
  const auto made =
      planned(large(16384, 53248, 128, 128, 8, 2048, 54,
                    "hardware: {profile: h100, stack: transformer_engine, failures: {spare_hosts: 64}}\n"),
              16384);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  UNSCOPED_INFO(fmt::format("{:.1f} in 54 days, {:.4f}, {} remedies, {:.2f} s",
                            interruptions_in(54, made.month.outcome), made.month.outcome.goodput,
                            made.month.remedies.size(), took.count()));
  CHECK(interruptions_in(54, made.month.outcome) == Approx(419).epsilon(0.02));
  CHECK(made.month.outcome.goodput > 0.90);
  CHECK(made.month.outcome.goodput < 0.96);
  for (const auto& each : made.month.remedies)
    if (each.key == "all of these") CHECK(each.outcome.goodput > made.month.outcome.goodput);
}

TEST_CASE("MegaScale: over a hundred restarts in several weeks on 12,288 GPUs, of which more than nine tenths train") {
  // arXiv 2402.15627, section 6: 175 B parameters on Ampere GPUs. None of it was used for the defaults but the ten
  // minutes within which it detects and diagnoses a failure.
  const auto made =
      planned(large(12288, 32768, 96, 96, 96, 1536, 28,
                    "hardware: {profile: a100-80, stack: transformer_engine, failures: {spare_hosts: 64}}\n"),
              12288);
  UNSCOPED_INFO(
      fmt::format("{:.1f} in 28 days, {:.4f}", interruptions_in(28, made.month.outcome), made.month.outcome.goodput));
  CHECK(interruptions_in(28, made.month.outcome) > 100);
  CHECK(interruptions_in(28, made.month.outcome) < 250);
  CHECK(made.month.outcome.goodput > 0.90);
}

TEST_CASE("ByteRobust: 97 % of three months on 9,600 GPUs, with copies in memory and hosts that stand by") {
  // arXiv 2509.16293. Its rates and restarts are its own; ours with the defaults are within two points.
  const auto made = planned(large(12288, 32768, 96, 96, 96, 1200, 90,
                                  "hardware: {profile: h100, stack: transformer_engine, failures: {spare_hosts: 64}}\n"
                                  "checkpoint: {is_async: true, memory_every_steps: 2}\n"),
                            9600);
  UNSCOPED_INFO(fmt::format("{:.4f}", made.month.outcome.goodput));
  CHECK(made.month.outcome.goodput == Approx(0.97).margin(0.02));
}

TEST_CASE("every key of hardware.failures changes the run") {
  const auto recipe = [](const std::string& failures, const std::string& rest = "") {
    return "model: {config: {model_type: llama, hidden_size: 4096, intermediate_size: 11008, num_hidden_layers: 8, "
           "num_attention_heads: 32, num_key_value_heads: 32, vocab_size: 32000, max_position_embeddings: 4096}}\n"
           "dataset: {_target_: mock, vocab_size: 32000, seq_length: 4096}\n"
           "step_scheduler: {global_batch_size: 1024, local_batch_size: 1}\n"
           "device: cuda\nhardware: {profile: h100, storage_bandwidth: 0.01, failures: {" +
           failures + "}}\ndistributed: {strategy: fsdp2}\n" + rest;
  };
  const std::string many = "gpu: 2, host: 20";
  const auto base = planned(recipe(many), 64).month.outcome;
  for (const char* key : {"network: 9", "software: 9", "restart_minutes: 60", "repair_hours: 2", "spare_hosts: 2"}) {
    INFO(key);
    CHECK(planned(recipe(many + ", " + key), 64).month.outcome.total != base.total);
  }
  CHECK(planned(recipe("gpu: 3, host: 20"), 64).month.outcome.total != base.total);
  CHECK(planned(recipe("gpu: 2, host: 30"), 64).month.outcome.total != base.total);
  auto faster = recipe(many);
  faster.replace(faster.find("0.01"), 4, "10.0");
  CHECK(planned(faster, 64).month.outcome.total < base.total);
  // What the recipe says about the run counts too.
  const auto fewer = planned(recipe(many, "fault_tolerance: {max_restarts: 1000, min_ranks: 8}\n"), 64).month.outcome;
  CHECK(fewer.slower > 0);
  CHECK(fewer.waiting < base.waiting);
  CHECK(planned(recipe(many, "dist_env: {timeout_minutes: 60}\n"), 64).month.outcome.restarting > base.restarting);
  const auto none = planned(recipe("gpu: 0, host: 0, network: 0, software: 0"), 64).month;
  CHECK(none.outcome.mean_interruptions == 0);
  CHECK(none.remedies.empty());
}

}  // namespace automodel::estimate
