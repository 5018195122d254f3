#include "base/spelling.h"

#include <catch2/catch.hpp>

namespace automodel {

TEST_CASE("edit distance counts insertions, deletions, substitutions and swaps", "[base]") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("mld", "mdl") == 1);
  CHECK(edit_distance("ca", "abc") == 3);
  CHECK(edit_distance("aaaaaaaaaa", "bbbbbbbbbb", 2) == 3);
}

TEST_CASE("the nearest known word is suggested, or all known words are listed if none is near", "[base]") {
  const std::vector<std::string_view> known = {"pp_size", "tp_size", "pipeline", "Interleaved1F1B"};
  CHECK(nearest("pp_sise", known) == "pp_size");
  CHECK(nearest("interleaved-1f1b", known) == "Interleaved1F1B");
  CHECK(nearest("zzz", known).empty());
  CHECK(nearest("bfloat", {"float", "bfloat16", "half"}) == "bfloat16");
  CHECK(nearest("foo", {"fp8", "for"}) == "for");  // one letter of three, not two
  CHECK(nearest("foo", {"fp8"}).empty());
  CHECK(nearest("f", {"FB", "F"}) == "F");
  CHECK(nearest("tcsh", {"bash", "zsh", "fish"}).empty());
  CHECK(nearest("mld", {"mw", "mdl"}) == "mdl");
  CHECK(suggestion("pipelin", known) == "did you mean 'pipeline'?");
  CHECK(suggestion("qqqqqqqq", known) == "known: pp_size, tp_size, pipeline, Interleaved1F1B");
}

}  // namespace automodel
