#include "train/sample_text.h"

#include <catch2/catch.hpp>

namespace automodel::train {

TEST_CASE("a sample is shown up to its last whole sentence", "[train]") {
  CHECK(up_to_sentence("One. Two three. And th", false) == "One. Two three.");
  CHECK(up_to_sentence("\"Is he?\" cried she; \"I am", false) == "\"Is he?\"");
  CHECK(up_to_sentence("She saw Mr. Darcy. Then Mrs. B", false) == "She saw Mr. Darcy.");
  CHECK(up_to_sentence("It costs 3.5 and m", false) == "It costs 3.5 and m");
  CHECK(up_to_sentence("no end", false) == "no end");
  CHECK(up_to_sentence("Mr.", false) == "Mr.");
  CHECK(up_to_sentence("The end!", false) == "The end!");
  CHECK(up_to_sentence(".", false) == ".");
  CHECK(up_to_sentence("", false).empty());
  CHECK(up_to_sentence("One. Two three. And th", true) == "One. Two three.");
  CHECK(up_to_sentence("not one end of a sent", true) == "not one end of a ...");
  CHECK(up_to_sentence("saw Mr. Darcy \n\n wh", true) == "saw Mr. Darcy ...");
  CHECK(up_to_sentence("word", true) == "word");
  CHECK(up_to_sentence(" word", true) == " word");
  CHECK(up_to_sentence("", true).empty());
}

}  // namespace automodel::train
