// Compares the results of a mesh with those of one rank: the same recipe without the keys of the mesh.
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
  std::string config = {};       ///< the whole configuration of another model, except initializer_range; then family,
                                 ///< layers and tied are ignored
  std::string model = {};        ///< further keys of the model's configuration: "key: value, ..."
  std::string distributed = {};  ///< keys of the mesh's `distributed` section: "strategy: ddp, pp_size: 2, ..."
  std::string model_parallel = {};
  std::string dataset = {};  ///< value of that section; empty: random sequences of 16 tokens
  /// Keys of that section. With Adam's usual eps of 1e-8 an element whose gradient is rounding noise moves by a whole
  /// lr, up on one mesh and down on another; an eps above the noise of float32 prevents this.
  std::string optimizer = "lr: 0.01, eps: 0.001";
  std::string sections = {};           ///< whole lines for both recipes
  std::string mesh_sections = {};      ///< whole lines for the mesh's recipe only
  train::RuntimeOptions runtime = {};  ///< of the mesh
  int steps = 2;
};

std::string recipe_text(const TinyRun& run, bool single);
/// Throws Error with all problems if the text is not a valid recipe.
config::LoadedRecipe load_recipe(const std::string& text);
/// Trains on a separate single rank in this process. Results are cached: equal recipes are trained once.
train::Trace on_one_rank(const std::string& text, int steps, int gradients_of = -1);

/// Trains the mesh in `world` and compares on rank 0; a difference beyond the tolerance of the type (float64 1e-9,
/// float32 1e-5) ends the test with `what` and the worst parameter.
void check_parity(comm::World& world, const TinyRun& run, const std::string& what);

/// Small models with recurrent layers, one for each mixer and storage layout; 2 groups of keys, 4 heads.
extern const std::vector<std::string> kRecurrentModels;

/// Models whose layers differ in their heads; the first has layers with inputs of their own, and with keys of others.
extern const std::vector<std::string> kUnlikeModels;

}  // namespace automodel::test
