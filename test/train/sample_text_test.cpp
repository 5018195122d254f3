#include "train/sample_text.h"

#include <catch2/catch.hpp>

namespace automodel::train {

TEST_CASE("a sample is shown up to its last whole sentence", "[train]") {
  CHECK(up_to_sentence("One. Two three. And th") == "One. Two three.");
  CHECK(up_to_sentence("\"Is he?\" cried she; \"I am") == "\"Is he?\"");
  CHECK(up_to_sentence("She saw Mr. Darcy. Then Mrs. B") == "She saw Mr. Darcy.");
  CHECK(up_to_sentence("It costs 3.5 and m") == "It costs 3.5 and m");
  CHECK(up_to_sentence("no end") == "no end");
  CHECK(up_to_sentence("Mr.") == "Mr.");
  CHECK(up_to_sentence("The end!") == "The end!");
  CHECK(up_to_sentence(".") == ".");
  CHECK(up_to_sentence("").empty());
}

}  // namespace automodel::train
