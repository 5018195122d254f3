#include "schedule/action.h"

#include <map>

#include <catch2/catch.hpp>

#include "golden.h"

namespace automodel::schedule {
namespace {

struct Refusal {
  std::string text;
  std::size_t offset;
  std::string message;
  std::string help;
};

}  // namespace

TEST_CASE("actions are formatted as in torch", "[schedule]") {
  CHECK(to_text(make_action(Op::kForward, 2, 0)) == "2F0");
  CHECK(to_text(make_action(Op::kSendBackward, 13, 40)) == "13SEND_B40");
  CHECK(to_text(make_action(Op::kReduceGrad, Stage{7})) == "7REDUCE_GRAD");
  CHECK(to_text(Slot()) == "");
  const Slot pair(Overlap{make_action(Op::kForward, 0, 3), make_action(Op::kFullBackward, 7, 0)});
  CHECK(to_text(pair) == "(0F3;7B0)OVERLAP_F_B");
  CHECK(to_text(Row{Slot(make_action(Op::kForward, 0, 0)), Slot(), pair}) == "0F0,,(0F3;7B0)OVERLAP_F_B");
}

TEST_CASE("every action is parsed back from its text", "[schedule]") {
  for (std::size_t op = 0; op < kOps.size(); ++op) {
    const Action action{static_cast<Op>(op), Stage{kMaxStages - 1},
                        kOps[op].has_microbatch ? Microbatch{kMaxMicrobatches - 1} : kNoMicrobatch};
    ParseProblem problem;
    const auto slot = parse_slot(to_text(action), problem);
    REQUIRE(slot.has_value());
    CHECK(*slot == Slot(action));
  }
}

TEST_CASE("text that torch parses as an action is parsed the same or refused with a reason", "[schedule][golden]") {
  // Torch matches a prefix and ignores the rest; it also accepts actions without their microbatch, microbatches where
  // none belong, and an overlap of anything. All of these are slips that would train something unintended.
  const std::map<std::string, std::string> refused_here = {
      {"0F", "no microbatch"},
      {"0F0xyz", "unexpected"},
      {"0FB1", "unknown action"},
      {"2REDUCE_GRAD5", "takes no microbatch"},
      {"()OVERLAP_F_B", "no stage number"},
      {"(0F1;7B0)F", "expected 'OVERLAP_F_B'"},
      {"(0F1;;7B0)OVERLAP_F_B", "no stage number"},
      {"(0F1,7B0)OVERLAP_F_B", "expected ';'"},
      {"0F0 1F0", "unexpected"},
      {"0FULL_BACKWARD0", "unknown action"},
      {"0BACKWARD_INPUT1", "unknown action"},
      {"1F0.5", "unexpected"},
      {"\t0F0\n", "unexpected"},  // a line end cannot be in a cell
  };
  int same = 0;
  int refused = 0;
  const auto words = golden("torch_words.json");
  for (const auto& [text, torch] : words["action_from_str"].items()) {
    INFO("'" << text << "'");
    ParseProblem problem;
    const auto slot = parse_slot(text, problem);
    if (torch.is_object() || refused_here.count(text) > 0) {
      CHECK_FALSE(slot.has_value());
      CHECK_FALSE(problem.message.empty());
      CHECK_FALSE(problem.help.empty());
      if (!torch.is_object()) CHECK_THAT(problem.message, Catch::Contains(refused_here.at(text)));
      ++refused;
    } else {
      REQUIRE(slot.has_value());
      CHECK(to_text(*slot) == (torch.is_null() ? "" : torch.get<std::string>()));
      ++same;
    }
  }
  CHECK(same == 17);
  CHECK(refused == 27);
}

TEST_CASE("a refused action is reported with its position, the fault and a fix", "[schedule]") {
  const std::vector<Refusal> refusals = {
      {"0F0zzz", 3, "unexpected 'zzz' after 0F0", "one action per cell; PyTorch would ignore the rest and run 0F0"},
      {" 0f0", 2, "unknown action 'f'", "did you mean 'F'?"},
      {"0SEND_0", 1, "unknown action 'SEND_'", "did you mean 'SEND_F'?"},
      {"F0", 0, "no stage number at 'F0'", "an action is <stage><action><microbatch>, for example 2F0"},
      {"3", 1, "no action after the stage number", "an action is <stage><action><microbatch>, for example 2F0"},
      {"1F", 2, "1F has no microbatch", "write the microbatch after the action, for example 1F0"},
      {"1UNSHARD2", 8, "UNSHARD takes no microbatch", "write 1UNSHARD"},
      {"4096F0", 0, "stage '4096' is too large", "a stage is at most 4095"},
      {"0F99999999999999999999", 2, "microbatch '99999999999999999999' is too large", "a microbatch is at most 65535"},
      {"(7B0;0F1)OVERLAP_F_B", 1, "an overlap is a forward and a full backward, not 7B0 and 0F1",
       "write it as (0F3;7B0)OVERLAP_F_B"},
      {"(0F1;7I0)OVERLAP_F_B", 5, "an overlap is a forward and a full backward, not 0F1 and 7I0",
       "write it as (0F3;7B0)OVERLAP_F_B"},
      {"0OVERLAP_F_B", 1, "OVERLAP_F_B without its two actions", "write it as (0F3;7B0)OVERLAP_F_B"},
      {std::string("0F0\0", 4), 3, "unexpected '\\x00' after 0F0",
       "one action per cell; PyTorch would ignore the rest and run 0F0"},
  };
  for (const auto& refusal : refusals) {
    INFO(refusal.text);
    ParseProblem problem;
    CHECK_FALSE(parse_slot(refusal.text, problem).has_value());
    CHECK(problem.offset == refusal.offset);
    CHECK(problem.message == refusal.message);
    CHECK(problem.help == refusal.help);
  }
}

TEST_CASE("leading zeros and blanks in actions are ignored", "[schedule]") {
  ParseProblem problem;
  CHECK(to_text(*parse_slot(" 00F007\t", problem)) == "0F7");
  CHECK(to_text(*parse_slot("( 0F1 ; 7B0 )OVERLAP_F_B ", problem)) == "(0F1;7B0)OVERLAP_F_B");
  CHECK(parse_slot(" \t", problem)->is_bubble());
}

TEST_CASE("a table can be reduced to its computations or to its forward passes", "[schedule]") {
  const Schedule full = table({"0UNSHARD,0F0,0SEND_F0,(0F1;0B0)OVERLAP_F_B,0B1,0REDUCE_GRAD"});
  CHECK(to_text(compute_only(full)[0]) == "0F0,(0F1;0B0)OVERLAP_F_B,0B1");
  CHECK(to_text(forward_only(full)[0]) == "0F0,0F1");
  CHECK(shape_of(full) == Shape{1, 1, 2});
}

}  // namespace automodel::schedule
