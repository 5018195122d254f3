#include "from_option.h"

#include <algorithm>
#include <cstdlib>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/spelling.h"
#include "base/utf8.h"
#include "foreign/conversion.h"
#include "option_checks.h"
#include "report.h"
#include "report/plan_json.h"

namespace automodel::app {
namespace {

/// "-" names no file: the configuration is what follows "--".
foreign::Request foreign_request(const Options& options) {
  foreign::Request request{.arguments = options.arguments,
                           .world_size = options.world_size,
                           .ranks_per_node = options.gpus_per_node,
                           .model = options.model,
                           .seq_length = options.seq_length,
                           .vocab_size = options.vocab_size,
                           .accept_adamw = options.accept_optimizer == "adamw",
                           .allow_inexact = options.allow_inexact,
                           .environment = [](const std::string& name) -> std::optional<std::string> {
                             const char* value = std::getenv(name.c_str());
                             return value == nullptr ? std::nullopt : std::optional<std::string>(value);
                           }};
  for (std::size_t i = 0; i + 1 < options.from.size(); i += 2) {
    const auto& format = options.from[i];
    if (std::ranges::find(foreign::formats(), format) == foreign::formats().end())
      throw wrong_words(
          fmt::format("--from knows no format '{}'", printable(format)),
          suggestion(format, std::vector<std::string_view>(foreign::formats().begin(), foreign::formats().end())));
    const auto& file = options.from[i + 1];
    if (file.starts_with("--"))
      throw wrong_words(fmt::format("--from {} needs a file, but '{}' follows", format, printable(file)),
                        fmt::format("write '--from {} FILE {}'", format, printable(file)));
    request.files.push_back({format, file == "-" ? "" : file});
  }
  return request;
}

void print(const foreign::Findings& findings) {
  for (const auto& each : findings.not_expressed)
    err(fmt::format("warning: not expressed: {}: {}\n", printable(each.key), printable(each.reason)));
  for (const auto& each : findings.notes)
    err(fmt::format("note: {}: {}\n", printable(each.key), printable(each.reason)));
  for (const auto& each : findings.ignored)
    if (!each.meant.empty())
      err(fmt::format("warning: unknown key: {}: did you mean '{}'? It is planned without\n", printable(each.key),
                      each.meant));
}

/// Of keys with a common section only the section, so that the line stays short.
std::string ignored_text(const foreign::Findings& findings) {
  std::vector<std::string> known, unknown;
  for (const auto& each : findings.ignored) {
    auto& list = each.unknown ? unknown : known;
    auto name = printable(each.key);
    if (const auto dot = name.find('.'); !each.unknown && dot != std::string::npos) name = name.substr(0, dot) + ".*";
    if (std::ranges::find(list, name) == list.end()) list.push_back(std::move(name));
  }
  std::string out;
  if (!known.empty()) out += fmt::format("ignored   without effect on a plan: {}\n", fmt::join(known, ", "));
  if (!unknown.empty())
    out += fmt::format("unknown   assumed without effect on a plan: {}\n", fmt::join(unknown, ", "));
  return out;
}

}  // namespace

void add_from_options(CLI::App& sub, Options& options) {
  const auto names = foreign::formats();
  sub.add_option("--from", options.from,
                 fmt::format("Plan another trainer's configuration: {}; may be repeated. Its own arguments follow '--' "
                             "(megatron, hf-trainer: - as FILE)",
                             fmt::join(names, ", ")))
      ->type_name("FORMAT FILE")
      ->type_size(2)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  sub.add_flag("--print-recipe", options.print_recipe, "--from: print the recipe that says the same, and nothing else");
  sub.add_flag("--allow-inexact", options.allow_inexact, "--from: plan although something cannot be expressed");
  sub.add_option("--model", options.model, "--from: the model, in place of the configuration's")->type_name("NAME");
  sub.add_option("--seq-length", options.seq_length, "--from: tokens of a sequence")->check(whole_number());
  sub.add_option("--vocab-size", options.vocab_size, "--from: tokens that the tokenizer knows")->check(whole_number());
  sub.add_option("--accept-optimizer", options.accept_optimizer,
                 "--from: plan this one for an optimizer without equivalent")
      ->check(one_of({"adamw"}));
}

FromRecipe load_from(const Options& options) {
  const auto made = foreign::convert(foreign_request(options));
  FromRecipe out{.json = foreign::to_json(made)};
  out.loaded.path = made.origin;
  if (!made.problems.empty()) {
    out.exit = refuse(made.problems, out.loaded, options.json, out.json);
    return out;
  }
  if (options.print_recipe) {
    if (!options.overrides.empty())
      throw wrong_words("--print-recipe prints what the configuration says",
                        "override keys of the recipe that it prints");
    app::out(made.recipe);
    out.exit = code(ExitCode::kOk);
    return out;
  }
  Diagnostics words;
  // Places are lines of the recipe, not of the trainer's file.
  // No variables: text of a stranger's file must not be replaced by what this environment holds.
  out.loaded =
      config::read_recipe(made.recipe, "recipe from " + made.origin, config::parse_overrides(options.overrides, words),
                          [](const std::string&) { return std::nullopt; });
  out.loaded.problems.insert(out.loaded.problems.begin(), words.begin(), words.end());
  if (!options.json) print(made.findings);
  out.ignored = ignored_text(made.findings);
  return out;
}

Diagnostics name_trainer(const config::LoadedRecipe& loaded) {
  if (loaded.problems.empty()) return loaded.problems;
  const auto format = foreign::recognise(loaded.path, loaded.text);
  if (format.empty()) return loaded.problems;
  Diagnostics out;
  out.add("from-format")
      .says("this is a configuration of {}, not a recipe", format)
      .hint("'automodel plan --from {} {} --world-size N' plans it; with '--print-recipe' it prints the recipe", format,
            printable(loaded.path))
      .at({loaded.path, 1, 1});
  return out;
}

}  // namespace automodel::app
