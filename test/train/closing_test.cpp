#include "train/closing.h"

#include <algorithm>

#include <catch2/catch.hpp>

namespace automodel::train {

TEST_CASE("the last lines of a run export the checkpoint with the lowest validation loss", "[train]") {
  Closing closing;
  closing.add(0, 3.0);
  closing.add_validation(0, 2.5);
  closing.add(1, 1.0);
  closing.add_validation(1, 2.75);
  Closing::Ending ending{.checkpoint = "run/epoch_0_step_1", .has_text = true};
  CHECK(closing.lines(ending).back() == "export    automodel checkpoint export run/epoch_0_step_1 NEW_FOLDER");
  ending.lowest = "run/LOWEST_VAL";
  ending.lowest_loss = 2.5;
  const auto lines = closing.lines(ending);
  CHECK(lines.back() == "export    automodel checkpoint export run/LOWEST_VAL NEW_FOLDER");
  CHECK(std::count(lines.begin(), lines.end(),
                   "best      run/LOWEST_VAL: the lowest loss on validation data of a checkpoint, 2.5000") == 1);
}

TEST_CASE("adapters can be tried if their model is in a folder", "[train]") {
  const auto tries = [](bool has_base) {
    const auto lines = Closing().lines(
        {.checkpoint = "run/epoch_0_step_1", .adapters = true, .has_base = has_base, .has_text = true, .prompt = "Hi"});
    return std::count(lines.begin(), lines.end(), "try       automodel generate run/epoch_0_step_1 --prompt Hi");
  };
  CHECK(tries(true) == 1);
  CHECK(tries(false) == 0);
}

TEST_CASE("a run is tried with its own prompt, as a chat, or with any text", "[train]") {
  const auto tries = [](Closing::Ending ending) {
    ending.checkpoint = "run/epoch_0_step_1";
    ending.has_text = true;
    return Closing().lines(ending).at(1);
  };
  CHECK(tries({.prompt = "Hi", .chats = true}) == "try       automodel generate run/epoch_0_step_1 --prompt Hi");
  CHECK(tries({.chats = true}) == "try       automodel generate run/epoch_0_step_1 --chat");
  CHECK(tries({.pictures = true, .chats = true}) ==
        "try       automodel generate run/epoch_0_step_1 --image FILE --prompt \"What is this?\"");
  CHECK(tries({}) == "try       automodel generate run/epoch_0_step_1 --prompt \"Once upon a time\"");
}

}  // namespace automodel::train
