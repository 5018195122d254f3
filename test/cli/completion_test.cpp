// Shell completion, run by the shells themselves. zsh and fish are tested if they are installed.
#include <cstdlib>
#include <set>
#include <sstream>

#include <catch2/catch.hpp>

#include "cli/program.h"

namespace automodel {
namespace {

using Words = std::set<std::string>;

/// The words that a shell script prints, one per line, run in a folder with a recipe and another file.
Words lines_of(const std::string& shell, const std::string& script) {
  const test::TemporaryFolder folder;
  folder.write("recipe.yaml", "");
  folder.write("notes.txt", "");
  folder.write("completion", test::run_program(folder, "completion " + shell).out);
  folder.write("script", script);
  const std::string command =
      "cd '" + folder.path().string() + "' && HOME=$PWD " + shell + " script >.out 2>.err </dev/null";
  if (std::system(command.c_str()) != 0) FAIL(folder.read(".err"));
  Words out;
  std::istringstream text(folder.read(".out"));
  for (std::string line; std::getline(text, line);) out.insert(line.substr(0, line.find('\t')));
  return out;
}

/// Completions of the last word.
Words bash(const std::string& words) {
  return lines_of("bash",
                  "source completion\nCOMP_WORDS=(" + words +
                      ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_automodel\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n");
}

Words fish(const std::string& line) {
  return lines_of("fish", "source completion\ncomplete -C '" + line + "'\n");
}

bool installed(const std::string& shell) {
  return std::system(("command -v " + shell + " >/dev/null").c_str()) == 0;
}

}  // namespace

TEST_CASE("bash completes commands, recipes, options, values and keys", "[cli]") {
  CHECK(bash("automodel pl") == Words{"plan"});
  CHECK(bash("automodel rec") == Words{"recipe.yaml"});
  CHECK(bash("automodel --v") == Words{"--version"});
  CHECK(bash("automodel plan ''") == Words{"recipe.yaml"});
  CHECK(bash("automodel plan recipe.yaml --world") == Words{"--world-size"});
  CHECK(bash("automodel plan recipe.yaml --actions ''") == Words{"compute", "lowered"});
  CHECK(bash("automodel train recipe.yaml --world") == Words{""});
  CHECK(bash("automodel train recipe.yaml --distributed.pipeline.layers") ==
        Words{"--distributed.pipeline.layers_per_stage"});
  CHECK(bash("automodel train recipe.yaml --optim") == Words{"--optimizer", "--optimizer."});
  CHECK(bash("automodel train recipe.yaml optim") == Words{"optimizer=", "optimizer."});
  const auto sections = bash("automodel plan recipe.yaml --");
  CHECK((sections.size() > 60 && sections.size() < 160));  // a level of the recipe, not its 600 keys
  CHECK(sections.contains("--world-size"));
  CHECK(bash("automodel recipe.yaml --distributed.pp_") == Words{"--distributed.pp_size"});
  CHECK(bash("automodel train recipe.yaml optimizer.weight_d") == Words{"optimizer.weight_decay="});
  CHECK(bash("automodel train recipe.yaml --model.config.m") == Words{"--model.config.model_type"});
  CHECK(bash("automodel completion ''") == Words{"bash", "fish", "zsh"});
  CHECK(bash("automodel schema --") == Words{"--errors", "--help", "--markdown", "--plan"});
  CHECK(bash("automodel plan recipe.yaml --distributed.pipeline.pp_schedule ZBV") == Words{"ZBVZeroBubble"});
  CHECK(bash("automodel plan recipe.yaml --model.config.model_type qwen3_m") == Words{"qwen3_moe"});
  CHECK(bash("automodel plan recipe.yaml --optimizer._target_ adam") == Words{"adam", "adamw"});
  CHECK(bash("automodel plan recipe.yaml device=c") == Words{"device=cpu", "device=cuda"});
  CHECK(bash("automodel plan recipe.yaml device = c") == Words{"cpu", "cuda"});
  CHECK(bash("automodel plan recipe.yaml --checkpoint.enabled ''") == Words{"false", "true"});
}

TEST_CASE("fish completes commands, recipes, options, values and keys", "[cli]") {
  if (!installed("fish")) return;
  CHECK(fish("automodel pl") == Words{"plan"});
  CHECK(fish("automodel plan rec") == Words{"recipe.yaml", "recipe="});
  CHECK(fish("automodel plan --json rec") == Words{"recipe.yaml", "recipe="});
  CHECK(fish("automodel plan recipe.yaml --world") == Words{"--world-size"});
  CHECK(fish("automodel plan recipe.yaml --actions ") == Words{"compute", "lowered"});
  CHECK(fish("automodel train recipe.yaml --distributed.pipeline.layers") ==
        Words{"--distributed.pipeline.layers_per_stage"});
  CHECK(fish("automodel completion ") == Words{"bash", "fish", "zsh"});
  CHECK(fish("automodel plan recipe.yaml --distributed.pipeline.pp_schedule ZBV") == Words{"ZBVZeroBubble"});
  CHECK(fish("automodel plan recipe.yaml --device=c") == Words{"--device=cpu", "--device=cuda"});
  CHECK(fish("automodel plan recipe.yaml device=c") == Words{"device=cpu", "device=cuda"});
  CHECK(fish("automodel plan recipe.yaml optimizer.weight_d") == Words{"optimizer.weight_decay="});
  const auto sections = fish("automodel plan recipe.yaml --");
  CHECK((sections.size() > 60 && sections.size() < 160));  // a level of the recipe, not its 600 keys
  CHECK(sections.contains("--distributed."));
}

TEST_CASE("zsh offers commands, options, values and keys", "[cli]") {
  if (!installed("zsh")) return;
  // What the script would hand to zsh's completion system, without a terminal.
  const auto offered = [](const std::string& words) {
    return lines_of(
        "zsh",
        "compdef() {}\ncompset() {}\n_files() { print -l -- *.y*ml(N); }\n"
        "_describe() { local name=${@[-1]} item; [[ $1 == -t ]] && name=$4 || name=$5\n"
        "  for item in ${(P)name}; do print -r -- ${item%%:*}; done }\n"
        "compadd() { local -a given=(\"$@\"); local prefix=''\n"
        "  [[ $1 == -P ]] && { prefix=$2; shift 3 }\n  [[ $1 == -S ]] && shift 3\n  [[ $1 == -- ]] && shift\n"
        "  print -rl -- $prefix$^@ }\n"
        "source ./completion\nwords=(" +
            words + ")\nCURRENT=${#words}\n_automodel\n");
  };
  CHECK(offered("automodel ''").contains("plan"));
  CHECK(offered("automodel ''").contains("recipe.yaml"));
  CHECK(offered("automodel plan recipe.yaml --").contains("--world-size"));
  const auto sections = offered("automodel plan recipe.yaml --");
  CHECK((sections.size() > 60 && sections.size() < 160));  // a level of the recipe, not its 600 keys
  CHECK(sections.contains("--distributed."));
  CHECK(offered("automodel plan recipe.yaml --distributed.p").contains("--distributed.pp_size"));
  CHECK(offered("automodel plan recipe.yaml --distributed.p").contains("--distributed.pipeline."));
  CHECK(offered("automodel train recipe.yaml optimizer.weight_d").contains("optimizer.weight_decay"));
  CHECK(offered("automodel plan recipe.yaml --actions ''") == Words{"compute", "lowered"});
  CHECK(offered("automodel completion ''") == Words{"bash", "fish", "zsh"});
  CHECK(offered("automodel plan recipe.yaml --distributed.pipeline.pp_schedule ''").contains("ZBVZeroBubble"));
  CHECK(offered("automodel plan recipe.yaml device=c") == Words{"auto", "cpu", "cuda"});
}

}  // namespace automodel
