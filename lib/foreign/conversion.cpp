#include "foreign/conversion.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "base/utf8.h"
#include "foreign/model_name.h"
#include "foreign/recipe_text.h"
#include "foreign/trainers.h"

namespace automodel::foreign {
namespace {

namespace fs = std::filesystem;
using Reader = void (*)(const SourceFile&, const Surroundings&, Resolved&, Findings&);

struct Trainer {
  std::string_view format;
  Reader read;
};
constexpr auto kTrainers = std::to_array<Trainer>({
    {"axolotl", read_axolotl},
    {"llamafactory", read_llamafactory},
    {"megatron", read_megatron},
    {"torchtitan", read_torchtitan},
    {"torchtune", read_torchtune},
    {"trl", read_trl},
    {"hf-trainer", read_hf_trainer},
    {"accelerate", read_accelerate},
    {"deepspeed", read_deepspeed},
});

/// A file that another one names. Only configurations are opened.
std::optional<SourceFile> open_referenced(const std::string& name, const SourceFile& from, Findings& findings) {
  const fs::path wanted(name);
  const auto extension = wanted.extension();
  if (extension != ".json" && extension != ".yaml" && extension != ".yml") {
    findings.problems.add("from-format")
        .says("'{}' is named as a configuration, but its name does not end with .json", printable(name))
        .at({from.path, 0, 0});
    return std::nullopt;
  }
  std::vector<fs::path> places = {wanted};
  std::error_code ignored;
  if (wanted.is_relative()) {
    auto folder = fs::absolute(from.path, ignored).parent_path();
    for (int depth = 0; depth < 8 && !folder.empty(); ++depth, folder = folder.parent_path()) {
      places.push_back(folder / wanted);
      if (folder == folder.root_path()) break;
    }
  }
  const auto place =
      std::ranges::find_if(places, [&](const fs::path& each) { return fs::is_regular_file(each, ignored); });
  if (place == places.end()) {
    findings.problems.add("missing-file")
        .says("'{}', which the configuration names, is not here", printable(name))
        .hint(
            "it was looked up in the working directory, beside {} and in the folders above; or give it with --from "
            "deepspeed FILE",
            printable(from.path))
        .at({from.path, 0, 0});
    return std::nullopt;
  }
  auto file = read_source("deepspeed", place->string(), findings.problems);
  return findings.problems.empty() ? std::optional(std::move(file)) : std::nullopt;
}

/// What all trainers share: the model's name, the mesh, the batch.
void finish(const Request& request, Resolved& out, Findings& findings) {
  if (!request.model.empty()) {
    std::erase_if(findings.missing, [](const Missing& each) { return each.option == "--model NAME"; });
    out.model = {request.model, "--model"};
    out.sizes = {};
  }
  if (request.seq_length) out.seq_length = {*request.seq_length, "--seq-length"};
  name_model(out, findings);
  constexpr const char* kLength = "--seq-length N";
  if (out.seq_length)
    std::erase_if(findings.missing, [](const Missing& each) { return each.option == kLength; });
  else if ((out.model || out.sizes) &&
           std::ranges::find(findings.missing, kLength, &Missing::option) == findings.missing.end())
    findings.ask("sequence length", "the file does not say it", kLength);
  const auto product = times(times(*out.tp, *out.pp), *out.cp);
  if (!request.world_size) {
    findings.ask("number of ranks", "no file decides it", "--world-size N");
  } else if (product < 1 || *request.world_size % product != 0) {
    findings.refuse(fmt::format("{} ranks", *request.world_size),
                    fmt::format("not a multiple of tp {} x pp {} x cp {} = {}", *out.tp, *out.pp, *out.cp, product));
  } else {
    out.dp = *request.world_size / product;
    const auto stage = *request.world_size / *out.pp, experts = times(*out.ep, out.etp.value_or(1));
    if (*out.ep > 1 && (experts < 1 || stage % experts != 0))
      findings.refuse(
          fmt::format("expert parallelism {} (x {} tensor-parallel ranks of an expert)", *out.ep, out.etp.value_or(1)),
          fmt::format("does not divide the {} ranks of a stage", stage));
  }
  if (!out.copy_per_machine.empty()) {
    if (!request.ranks_per_node) {
      findings.ask(out.copy_per_machine, "HYBRID_SHARD keeps a copy of the weights on each machine",
                   "--gpus-per-node N");
    } else if (const int ranks = request.world_size.value_or(0); ranks > 0) {
      const int here = std::min(ranks, *request.ranks_per_node);
      if (ranks % here != 0)
        findings.refuse(out.copy_per_machine, fmt::format("{} ranks do not fill machines of {}", ranks, here));
      else
        out.dp_replicate = {ranks / here, out.copy_per_machine + ", --gpus-per-node"};
    }
  }
  if (out.dp > 0 && out.dp % out.dp_replicate.value_or(1) != 0)
    findings.refuse(out.dp_replicate.key,
                    fmt::format("{} does not divide the {} data-parallel ranks", *out.dp_replicate, out.dp));
  const auto one = [](const Setting<std::int64_t>& each) { return each && *each > 0; };
  for (const auto* each : {&out.micro_batch, &out.grad_accumulation, &out.global_batch, &out.seq_length})
    if (*each && (**each < 1 || **each > 1 << 30)) findings.refuse(each->key, "must be from 1 to 2^30");
  if (out.dp == 0) return;
  if (one(out.global_batch) && one(out.micro_batch)) {
    const auto once = times(*out.micro_batch, out.dp);
    if (*out.global_batch % once != 0)
      findings.refuse(
          fmt::format("{}: {}", out.global_batch.key, *out.global_batch),
          fmt::format("not a multiple of {} sequences on each of {} data-parallel ranks", *out.micro_batch, out.dp));
    if (!out.grad_accumulation)
      out.grad_accumulation = {*out.global_batch / once, out.global_batch.key};
    else if (times(*out.grad_accumulation, once) != *out.global_batch)
      findings.refuse(fmt::format("{}: {}", out.global_batch.key, *out.global_batch),
                      fmt::format("{} x {} x {} ranks is {}", *out.micro_batch, *out.grad_accumulation, out.dp,
                                  times(*out.grad_accumulation, once)));
  } else if (one(out.micro_batch)) {
    out.grad_accumulation =
        out.grad_accumulation ? out.grad_accumulation : Setting<std::int64_t>{1, "one pass per step"};
    out.global_batch = {
        times(times(*out.micro_batch, *out.grad_accumulation), out.dp),
        fmt::format("{} x {} x {} data-parallel ranks", out.micro_batch.key, out.grad_accumulation.key, out.dp)};
  } else if (one(out.global_batch)) {
    const auto passes = out.grad_accumulation.value_or(1);
    if (*out.global_batch % (times(passes, out.dp)) != 0)
      findings.refuse(fmt::format("{}: {}", out.global_batch.key, *out.global_batch),
                      fmt::format("cannot be divided over {} data-parallel ranks", out.dp));
    out.grad_accumulation = {passes, out.grad_accumulation ? out.grad_accumulation.key : "one pass per step"};
    out.micro_batch = {*out.global_batch / (times(passes, out.dp)), out.global_batch.key + " / data-parallel ranks"};
  } else if (findings.missing.empty()) {
    findings.ask("batch size", "the file does not say it", "the trainer's own option after '--'");
  }
}

/// Options stand in quotes, as in all hints.
std::string quoted(const std::string& option) {
  return option.starts_with("--") ? "'" + option + "'" : option;
}

/// Everything that keeps the recipe from being used, the gravest alone.
Diagnostics problems_of(const Request& request, const Conversion& made, const std::string& path) {
  if (!made.findings.problems.empty()) return made.findings.problems;
  Diagnostics out;
  const SourceLocation where{path, 0, 0};
  if (const auto& refused = made.findings.refused) {
    out.add("from-refused")
        .says("{}: {}", printable(refused->key), printable(refused->reason))
        .hint("a plan of something else would mislead; docs/other-trainers.md lists what is refused")
        .at(where);
    return out;
  }
  for (const auto& each : made.findings.missing)
    out.add("from-missing")
        .says("{}: {}", printable(each.key), printable(each.reason))
        .hint("give {}", quoted(each.option))
        .at(where);
  if (!request.allow_inexact)
    for (const auto& each : made.findings.not_expressed)
      out.add("from-inexact")
          .says("{}: {}", printable(each.key), printable(each.reason))
          .hint("'--allow-inexact' plans without it")
          .at(where);
  return out;
}

}  // namespace

std::span<const std::string_view> formats() {
  static const auto names = [] {
    std::array<std::string_view, kTrainers.size()> out;
    std::ranges::transform(kTrainers, out.begin(), &Trainer::format);
    return out;
  }();
  return names;
}

Conversion convert(const Request& request) {
  Conversion made;
  Findings& findings = made.findings;
  std::vector<SourceFile> files;
  for (const auto& each : request.files) {
    made.origin += (made.origin.empty() ? "" : ", ") +
                   fmt::format("{} ({})", each.path.empty() ? "arguments" : printable(each.path), each.format);
    if (each.path.empty())
      files.push_back({.format = each.format, .path = "command line"});
    else
      files.push_back(read_source(each.format, each.path, findings.problems));
  }
  if (files.empty()) return made;
  // The configuration that decides is the trainer's; accelerate's and DeepSpeed's files stand beside it. Arguments
  // alone beside them are a Trainer's.
  auto decides = std::ranges::find_if(
      files, [](const SourceFile& each) { return each.format != "accelerate" && each.format != "deepspeed"; });
  if (decides == files.end() && !request.arguments.empty()) {
    files.push_back({.format = "hf-trainer", .path = "command line"});
    decides = files.end() - 1;
  }
  if (decides == files.end()) decides = std::ranges::find(files, "accelerate", &SourceFile::format);
  if (decides == files.end()) decides = files.begin();
  add_arguments(decides->root, request.arguments, "after --");
  made.format = decides->format;
  Surroundings around{.world_size = request.world_size.value_or(0),
                      .environment = request.environment,
                      .referenced = [&](const std::string& name,
                                        const SourceFile& from) { return open_referenced(name, from, findings); },
                      .vocab_size = request.vocab_size,
                      .accept_adamw = request.accept_adamw};
  for (const auto& each : files) {
    if (&each == &*decides) continue;
    auto& place = each.format == "accelerate" ? around.accelerate : around.deepspeed;
    if ((each.format != "accelerate" && each.format != "deepspeed") || place != nullptr)
      findings.problems.add("usage")
          .says("--from {} {}: one trainer's configuration, and beside it one of accelerate and one of DeepSpeed",
                each.format, printable(each.path))
          .at({"command line", 0, 0});
    place = &each;
  }
  if (findings.problems.empty()) {
    const auto* trainer = std::ranges::find(kTrainers, made.format, &Trainer::format);
    trainer->read(*decides, around, made.resolved, findings);
    finish(request, made.resolved, findings);
  }
  made.problems = problems_of(request, made, decides->path);
  if (made.problems.empty()) made.recipe = recipe_text(made.resolved, findings, made.origin);
  return made;
}

}  // namespace automodel::foreign
