// What a mesh computes against what one rank computes: the same recipe, the mesh's keys left out.
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"
#include "config/recipe.h"
#include "train/verify.h"

namespace automodel::test {

/// A tiny model and a global batch; every mesh of a test trains the same.
struct TinyRun {
  int layers = 4;
  bool tied = false;
  int global_batch = 8;
  int local_batch = 8;           ///< of the mesh
  int single_batch = 0;          ///< of one rank; 0: the whole batch at once
  std::string family = "llama";  ///< model_type
  std::string dtype = "float64";
  std::string config = {};       ///< another model's whole configuration but initializer_range; then family, layers and
                                 ///< tied are not looked at
  std::string model = {};        ///< further keys of the model's configuration: "key: value, ..."
  std::string distributed = {};  ///< keys of the mesh's section: "strategy: ddp, pp_size: 2, ..."
  std::string model_parallel = {};
  std::string dataset = {};  ///< value of that section; empty: random sequences of 16 tokens
  /// Keys of that section. With Adam's usual eps of 1e-8 an element whose gradient is rounding noise moves by a whole
  /// lr, up on one mesh and down on another; with an eps above the noise of float32 it does not.
  std::string optimizer = "lr: 0.01, eps: 0.001";
  std::string sections = {};           ///< whole lines that both recipes have
  std::string mesh_sections = {};      ///< those that the mesh's alone has
  train::RuntimeOptions runtime = {};  ///< of the mesh
  int steps = 2;
};

std::string recipe_text(const TinyRun& run, bool single);
/// Throws Error with all problems where the text is no recipe.
config::LoadedRecipe load_recipe(const std::string& text);
/// Trains on one rank of its own, in this process. Results are kept: equal recipes are trained once.
train::Trace on_one_rank(const std::string& text, int steps, int gradients_of = -1);

/// Trains the mesh in `world` and compares on rank 0; a difference beyond the tolerance of the type (float64 1e-9,
/// float32 1e-5) ends the test with `what` and the worst parameter.
void check_parity(comm::World& world, const TinyRun& run, const std::string& what);

/// Small models with recurrent layers, one for each mixer and way to store it; 2 groups of keys, 4 heads.
extern const std::vector<std::string> kRecurrentModels;

}  // namespace automodel::test
