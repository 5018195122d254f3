#include <algorithm>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "base/text_table.h"
#include "commands.h"
#include "launch/doctor.h"
#include "launch/train_command.h"
#include "report.h"

namespace automodel::app {
namespace {

std::string to_json(const std::vector<launch::Finding>& findings) {
  JsonWriter json;
  json.begin_object();
  json.key("checks");
  json.begin_array();
  for (const auto& finding : findings) {
    json.begin_object();
    json.member("check", finding.check);
    json.member("health", launch::name_of(finding.health));
    json.member("seen", finding.seen);
    json.member("advice", finding.advice);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.take() + "\n";
}

std::string to_text(const std::vector<launch::Finding>& findings) {
  std::string text;
  for (const auto& finding : findings) {
    text += fmt::format("{:<8} {:<14} {}\n", launch::name_of(finding.health), finding.check, finding.seen);
    if (!finding.advice.empty()) text += fmt::format("{:<8} {:<14} help: {}\n", "", "", finding.advice);
  }
  return text;
}

}  // namespace

int run_doctor(const Options& options) {
  if (options.ranks) {
    launch::RankJob job{.work = launch::Work::kMeasureRanks,
                        .ranks = options.nproc_per_node.value_or(1),
                        .starter = launch::words_of(options.start_with)};
    if (options.json) job.overrides = {"--json"};
    if (launch::in_parallel_job() || (job.ranks == 1 && job.starter.empty())) return launch::exec_worker(job);
    return launch::watch_ranks(job).code;
  }
  const auto findings = launch::examine();
  options.json ? out(to_json(findings)) : say(to_text(findings));
  const bool sick = std::any_of(findings.begin(), findings.end(),
                                [](const auto& finding) { return finding.health == launch::Health::kBad; });
  return code(sick ? ExitCode::kEnvironment : ExitCode::kOk);
}

}  // namespace automodel::app
