// What causes each problem, the rule behind it and its exit code: the text of docs/errors.md.
// long: the table of all problems.
#include <algorithm>
#include <array>
#include <ostream>

#include <fmt/format.h>

#include "base/problem_id.h"

namespace automodel {
namespace {

struct PageSection {
  int level;
  std::string_view title, introduction;
  ExitCode exit;    ///< the exit code of a row that does not mention one
  ProblemId first;  ///< where the section begins
};
constexpr auto kSections = std::to_array<PageSection>({
    PageSection{2, "Command line, recipe and overrides", "", ExitCode::kBadInput, "usage"},
    PageSection{2, "Restarts and bad steps", "", ExitCode::kBadInput, "host-lost"},
    PageSection{2, "Mesh and batch", "", ExitCode::kBadInput, "world-size-mismatch"},
    PageSection{2, "Memory", "", ExitCode::kBadInput, "too-large-to-measure"},
    PageSection{2, "Model", "", ExitCode::kBadInput, "model-not-found"},
    PageSection{2, "Stages of a pipeline", "", ExitCode::kBadInput, "too-many-stages"},
    PageSection{2, "Schedules", "", ExitCode::kBadInput, "schedule-unknown"},
    PageSection{3, "Tables from CSV files", "`file:line:column` is the location of the cell.", ExitCode::kBadInput,
                "schedule-csv-file"},
    PageSection{
        3, "The proof",
        "These are found when a complete table (derived, or given as `compute_comms`) is proved before it runs. A "
        "test shows that the built-in schedules never cause them.",
        ExitCode::kBadInput, "schedule-send"},
    PageSection{2, "Data", "", ExitCode::kBadInput, "dataset-not-found"},
    PageSection{
        2, "Weights and checkpoints",
        "For a folder that the recipe or the command line names as a model, the exit code is 2; it is 13 where a run "
        "reads or writes a checkpoint.",
        ExitCode::kBadInput, "missing-weights"},
    PageSection{
        2, "Gradients of another trainer",
        "`automodel verify --against` also uses the ids of weights (`weights-missing`, `weights-unexpected`, "
        "`weights-shape`, `safetensors-...`) for the gradients in a dump, and `token-out-of-range` for its batch; "
        "the place names the file.",
        ExitCode::kBadInput, "dump-meta"},
    PageSection{2, "The machine and the job",
                "The job's last line on standard error is `rank R: CAUSE` from the first rank that failed.",
                ExitCode::kBadInput, "cannot-start"},
});

struct ProblemRow {
  ProblemId id;
  ExitCode exit;  ///< kOk: only a warning
  std::string_view cause, rule;
};
constexpr auto kProblemRows = std::to_array<ProblemRow>({
    {"usage", ExitCode::kBadInput,
     "The command line is invalid: an unknown command, an option without its value, a value that the option does not "
     "accept.",
     "`automodel --help` and `automodel COMMAND --help` list commands and options; the nearest command is named."},
    {"bad-override", ExitCode::kBadInput,
     "A word after the recipe is neither an option nor an override; a key has an empty part; a key descends into a "
     "scalar or names a list item that does not exist.",
     "`--a.b.c VALUE`, `--a.b.c=VALUE` or `a.b.c=VALUE`; items of lists count from 0."},
    {"missing-file", ExitCode::kBadInput,
     "A file that the recipe or the command line names does not exist or cannot be read: the recipe, a model's "
     "`config.json`, data, a schedule's CSV.",
     "Relative paths are tried beside the recipe, then in the working directory. Exit 4 if a file disappears while the "
     "run reads it."},
    {"cannot-write", ExitCode::kEnvironment,
     "A file for `--timeline`, `--trace` or `--apply`, standard output, the calibration file, or the folder "
     "`checkpoint.checkpoint_dir` or `dataset.cache_dir` cannot be created or written.",
     "Choose an existing folder that you can write to. Exit 13 while a checkpoint is being saved."},
    {"disk-space", ExitCode::kEnvironment,
     "The disk of `checkpoint.checkpoint_dir` has less room than one checkpoint of the plan takes; `plan` only warns. "
     "Or that of `dataset.cache_dir` has less than the outputs of the tower take (`dataset.cache_features: true`).",
     "Free some, or name another folder; `checkpoint.save_consolidated: false` and fewer copies take less."},
    {"yaml-syntax", ExitCode::kBadInput,
     "The recipe is not valid YAML: an unclosed bracket, a tab as indentation, several documents, an alias without its "
     "anchor, a key that is a list.",
     "The location is where parsing failed; the mistake is there or shortly before."},
    {"duplicate-key", ExitCode::kBadInput,
     "A key appears twice in a mapping (or under two spellings with different values).",
     "YAML would keep the last one silently. Remove one."},
    {"unknown-key", ExitCode::kBadInput, "A key that does not exist, at any depth.",
     "The nearest key is named; [recipe-reference.md](recipe-reference.md) lists all. A key of another strategy, "
     "optimizer or dataset is also unknown."},
    {"missing-key", ExitCode::kBadInput,
     "The recipe lacks something required: the model, a dataset, the number of steps, a `pipeline` section with "
     "`pp_size` above 1, a size in the model's configuration.",
     "Add the key that the message names."},
    {"bad-type", ExitCode::kBadInput, "A value of the wrong type: a string for a number, a list for a section.",
     "Values are typed as in YAML; quotes make a string; `null`, `none` and `None` are null."},
    {"bad-value", ExitCode::kBadInput,
     "A value of the right type that the key does not accept: out of range, not one of the names, in conflict with "
     "another key. Or a prompt of `generate` that holds the placeholder of a picture itself.",
     "The message states the rule, the help the nearest valid value or the list of names."},
    {"unknown-target", ExitCode::kBadInput,
     "`model.config._target_` names something other than `transformers.AutoConfig.from_pretrained`.",
     "`_target_` selects from a fixed list; no code is ever loaded."},
    {"environment", ExitCode::kBadInput,
     "The recipe uses `${VAR}` (or `$VAR`, `${oc.env:VAR}`) and the variable is not set; one reference is nested in "
     "another; or the values make more than 16 MiB. Values are not searched for further references.",
     "Set it, or give a default: `${VAR,default}`, which is plain text."},
    {"unsupported-option", ExitCode::kBadInput, "An option is set that this program knows but does not support.",
     "Remove it; the message says what applies instead."},
    {"no-effect", ExitCode::kOk,
     "*Warning.* A section or key has no effect in combination with the rest, for example `distributed.pipeline` with "
     "`pp_size` 1.",
     "Remove it, or change what prevents its effect."},
    {"from-format", ExitCode::kBadInput,
     "A file is another trainer's configuration and given as a recipe, or `--from` was given a file that it cannot "
     "read: "
     "a shell script, Python, something that is no mapping.",
     "The command to use is named: `automodel plan --from FORMAT FILE --world-size N`. Nothing is executed."},
    {"from-refused", ExitCode::kBadInput,
     "The configuration trains in a way that has no equivalent (preference optimization, rewards, encoder-decoder, "
     "low-rank optimizers), or its own trainer refuses it with this number of ranks.",
     "A plan of something else would mislead. [other-trainers.md](other-trainers.md) lists what is refused."},
    {"from-missing", ExitCode::kBadInput,
     "The configuration lacks what a plan needs: number of ranks, sequence length, vocabulary, the model of a folder.",
     "The option that gives it is named; nothing is guessed."},
    {"from-inexact", ExitCode::kBadInput, "A key changes the computation, and a recipe cannot say it.",
     "`--allow-inexact` plans without it; `plan --json` has it under `from.not_expressed`."},
    {"size-conflict", ExitCode::kBadInput,
     "A mesh size is given under `distributed` and, with a different value, under `model_parallel`; or `max_length` of "
     "a collate function and keys of the data set give rows different lengths; or `teacher_model` has another "
     "vocabulary than `model`.",
     "Remove one of the two sizes; a teacher and its student need the same tokenizer and `vocab_size`."},
    {"backend-conflict", ExitCode::kBadInput, "`dist_env.backend` and `distributed.backend` name different backends.",
     "Remove one of the two."},
    {"other-recipe", ExitCode::kBadInput,
     "`recipe` names a NeMo AutoModel class for something else: diffusion, images, "
     "retrieval, draft models. Or it names no class of NeMo AutoModel's for language models.",
     "The rest of the recipe is not read."},
    {"device-conflict", ExitCode::kOk,
     "*Warning.* `device: cpu` with a GPU's `hardware.profile`: dtypes, memory and time are those of this machine's "
     "CPU, and the profile has no effect.",
     "Set `device: cuda` to plan for the GPU, or remove the profile to plan for this machine."},
    {"strategy-conflict", ExitCode::kBadInput,
     "`distributed._target_` is the class of a strategy other than `distributed.strategy`.", "Remove one of the two."},
    {"precision-conflict", ExitCode::kBadInput,
     "Two keys give the same role different types: `params_dtype` and `torch_dtype`, `bf16` or `fp16` and "
     "`mp_policy.param_dtype`, `main_grads_dtype` and `grad_reduce_in_fp32: false`, both `autocast_dtype`.",
     "Remove one of the two; [precision.md](precision.md) says which key decides what."},
    {"low-precision-masters", ExitCode::kOk,
     "*Warning.* `preserve_fp32_weights: false` under `megatron_fsdp`, or `optimizer.main_params_dtype: bfloat16`: the "
     "optimizer updates low-precision weights.",
     "Remove the key; masters are then float32."},
    {"slow-bfloat16", ExitCode::kOk,
     "*Warning.* A CPU without instructions for bfloat16 (AVX512-BF16, AMX or Arm's) computes in bfloat16 because the "
     "recipe or the model's `config.json` says so; a step is no faster than in float32.",
     "Set `model.torch_dtype: float32`."},
    {"sequence-parallel", ExitCode::kOk, "*Warning.* `enable_async_tensor_parallel` turned `sequence_parallel` on.",
     "Set `distributed.sequence_parallel: true`."},
    {"length-conflict", ExitCode::kBadInput,
     "`distributed.pipeline.pp_seq_len` is not the length of the data's sequences.",
     "Remove it: it is for data whose length is not declared."},
    {"host-lost", ExitCode::kBadInput, "mpirun or srun lost the connection to a host, or cannot start ranks there.",
     "Its lines above name the host. `--max-restarts` with `--min-ranks` continues without it."},
    {"no-progress", ExitCode::kBadInput,
     "Under `--max-restarts`: two consecutive attempts ended after the same step, without a new checkpoint between "
     "them.",
     "The cause, printed below it, is in the run itself: more restarts would fail in the same way. The exit code is "
     "that of the cause."},
    {"restarts-used-up", ExitCode::kBadInput, "The run ended more often than restarts are allowed.",
     "The same command resumes from the newest checkpoint; `--max-restarts` allows more."},
    {"checkpoints-gone", ExitCode::kBadInput,
     "`checkpoint.checkpoint_dir` is no longer the folder that it was when the run began: it was on a lost host, or "
     "somebody removed or replaced it. Checked before each save, at the end of the run, and before a restart.",
     "Restore it, and the same command resumes; a restart would begin at step 0. Put the folder on a file system that "
     "every host sees."},
    {"too-few-ranks", ExitCode::kBadInput,
     "Under `--min-ranks`: the hosts that answer have too few ranks, or no plan for them with the same global batch "
     "fits.",
     "Bring hosts back, or lower `--min-ranks`; the same command resumes from the newest checkpoint."},
    {"memory-copies-too-large", ExitCode::kCheckpoint,
     "With `checkpoint.memory_every_steps`: a host's memory file system has no room for two copies of its share.",
     "Enlarge it (`mount -o remount,size=... /dev/shm`), use more hosts, or remove the key."},
    {"no-memory-folder", ExitCode::kCheckpoint,
     "With `checkpoint.memory_every_steps`: `/dev/shm`, or what `AUTOMODEL_MEMORY_DIR` names, is not a writable "
     "folder, or the run's folder there is somebody else's.",
     "Name another memory file system."},
    {"changed-while-running", ExitCode::kBadInput,
     "The recipe or the program has changed since the run began, so the run is not restarted automatically.",
     "If the change is intended, start it by hand: it resumes from the newest checkpoint."},
    {"non-finite-weights", ExitCode::kNonFinite,
     "A checkpoint is due, but a weight or an optimizer state is not finite after an update, or too large for the "
     "file's dtype: nothing is written.",
     "Earlier checkpoints are intact. Lower the learning rate; the same command resumes from the newest one."},
    {"loss-spike", ExitCode::kNonFinite,
     "A loss is above `fault_tolerance.loss_spike.factor` times the median of the last steps, and `action` is `stop`.",
     "Look at the samples of the step; `skip` or `rollback` leaves them out."},
    {"no-checkpoint-before", ExitCode::kNonFinite,
     "After a bad step the run should go back to a checkpoint (`rollback`), but there is none yet.",
     "Save more often, or choose `skip`."},
    {"world-size-mismatch", ExitCode::kBadInput, "All sizes are given, but do not multiply to the number of ranks.",
     "pp × dp × cp × tp = ranks. Without `dp_size`, data parallelism takes the remaining factor. The nearest sizes are "
     "named."},
    {"indivisible", ExitCode::kBadInput,
     "One number must be a multiple of another: ranks of pp × cp × tp, `dp_size` of `dp_replicate_size`, ranks per "
     "stage of `ep_size`, global batch of local batch × dp, local batch of `pp_microbatch_size`, sequence length of 2 "
     "× `cp_size`; heads, key-value heads, feed-forward width and (with sequence parallelism) tokens of `tp_size`; "
     "key-value heads of the ranks that exchange them, heads of key-value heads, stages of ranks.",
     "The nearest valid numbers are named. Exit 3 if the recipe is consistent but the model cannot be divided that "
     "way."},
    {"sharding-level", ExitCode::kOk,
     "*Warning.* `data_parallel_sharding_strategy` is `params` or `grads_params` (nvFSDP's documentation): "
     "Megatron-FSDP has no level that shards these without the optimizer states.",
     "Write `optim_grads_params`, which is how it is interpreted."},
    {"unit-modules", ExitCode::kOk,
     "*Warning.* `distributed.megatron_fsdp_unit_modules` does not name the decoder layer of the model: a whole stage "
     "is one unit, whose parameters stay gathered from the forward pass to the end of the backward pass.",
     "Name the decoder layer (`LlamaDecoderLayer`, or its dotted path), or remove the key: layers are then units."},
    {"expert-tensor-parallel", ExitCode::kOk, "*Warning.* Expert and tensor parallelism without sequence parallelism.",
     "Set `model_parallel.sequence_parallel: true`, as Megatron Core advises."},
    {"unknown-style", ExitCode::kBadInput, "`distributed.tp_plan` gives a module an unknown parallel style.",
     "Styles: colwise, rowwise, colwise_rep, rowwise_rep, sequence_parallel, replicated_with_grad_allreduce, "
     "replicated; the nearest is named."},
    {"unknown-tp-plan", ExitCode::kBadInput,
     "`distributed.tp_plan` is neither a mapping nor a known name, or is `auto` for a family without a plan in "
     "transformers.",
     "Give a mapping of module patterns to styles, or `auto`, or leave the key out for the family's own plan. Python "
     "code is never loaded."},
    {"recurrent-context", ExitCode::kRefused,
     "`cp_size` does not divide the heads of a model's recurrent layers (Mamba-2, delta rules, lightning attention), "
     "or the heads of attention that sees only tokens selected by an index.",
     "Choose a `cp_size` that divides them; tensor parallelism with `sequence_parallel` divides the activations of a "
     "sequence, too."},
    {"tp-plan", ExitCode::kBadInput,
     "Styles of a `tp_plan` do not fit together: linear layers with the same input are divided differently, or one "
     "produces output that the next cannot take.",
     "colwise goes with rowwise; colwise_rep or replicated with rowwise_rep or replicated."},
    {"sequence-too-long", ExitCode::kBadInput,
     "Sequences (of the dataset, or one row of it) are longer than the model's table of positions (GPT-2, OPT) or than "
     "`seq_length`.",
     "Shorten them, or use a model with a larger `max_position_embeddings`."},
    {"beyond-positions", ExitCode::kOk,
     "*Warning.* Sequences are longer than the model's `max_position_embeddings`. Its positions are computed (RoPE, "
     "ALiBi), so it runs, but pretrained weights have not seen such positions.",
     "Use shorter sequences, or scale RoPE (`model.config.rope_scaling`) and train long enough to adapt."},
    {"too-large-to-measure", ExitCode::kEnvironment,
     "With `plan --calibrate`: some layers of the model do not fit in this machine's free memory.",
     "Use a smaller microbatch or shorter sequences; `plan --calibrate` without a recipe measures common sizes."},
    {"does-not-fit", ExitCode::kRefused,
     "The heaviest rank's peak is above its device's memory: an error with `plan --require-fit`, a warning when a run "
     "starts.",
     "`plan --search` finds plans that fit."},
    {"memory-unknown", ExitCode::kRefused, "With `plan --require-fit`: the memory of the device is unknown.",
     "Give `--memory 80GiB`, `hardware.memory` or `hardware.profile`."},
    {"model-not-found", ExitCode::kBadInput,
     "`pretrained_model_name_or_path` is neither a folder nor a `config.json` nor a name in the local Hugging Face "
     "cache.",
     "Nothing is downloaded. Give a path, or fill the cache (`HF_HOME`, `HF_HUB_CACHE`) beforehand."},
    {"model-unknown", ExitCode::kOk,
     "*Warning* under `plan`: the model is neither on this machine nor in the catalogue (`recipes/models`).",
     "Mesh and schedule are still planned; for stages, memory and time, give `--model.config PATH`."},
    {"length-unknown", ExitCode::kOk, "*Warning* under `plan`: the sequence length is unknown.",
     "Shapes and estimates assume 4096 tokens, or the model's maximum if that is lower. Give "
     "`distributed.pipeline.pp_seq_len` or `dataset.seq_length`."},
    {"unsupported", ExitCode::kRefused,
     "The recipe has a part that can be planned but not trained: a NeMo AutoModel dataset that cannot be read here, "
     "`domain_mixture`, multi-token-prediction layers, recomputation of parts of layers.",
     "`automodel plan` lists such parts with reasons; [data.md](data.md) lists the kinds of data that can be read."},
    {"freeze-target", ExitCode::kBadInput,
     "A selector of `freeze_config` matches no module of the model, or nothing would be left to train.",
     "A `path` is the full name of a module, a `glob` a pattern for full names (`*.layers.0.*`); everything below it "
     "is included."},
    {"adapter-target", ExitCode::kBadInput,
     "`peft` selects no linear module of the model, or modules that cannot have an adapter: experts stored as one "
     "tensor or split by width, modules of a vision tower with `dropout` (of both, `plan` goes without them), a head "
     "that shares its weight with the embedding (a *warning* if `match_all_linear` or `exclude_modules` select it "
     "among others: it is left out). A *warning* names Gemma 4's `per_layer_model_projection`, which gets none.",
     "The nearest name is given. `target_modules` takes fully qualified names, their last components, and patterns "
     "with `*`."},
    {"router-bias", ExitCode::kBadInput,
     "`model.moe_overrides.gate_bias_update_factor` would update router biases, but the model's routers have none, or "
     "`peft` trains only adapters.",
     "Remove the key, or `peft`."},
    {"quantized-weights", ExitCode::kBadInput,
     "`quantization` of frozen weights without a `peft` section, together with `fp8` or `peft.use_dora`, or for a "
     "model without quantizable weights (GPT-2).",
     "Remove one of the two."},
    {"adapter-base", ExitCode::kOk, "*Warning.* The frozen weights under the adapters are randomly initialized.",
     "Name trained weights with `model.pretrained_model_name_or_path`; otherwise the adapters are useless to other "
     "programs."},
    {"no-chat-template", ExitCode::kBadInput,
     "`generate --chat` or `--image` with a tokenizer that has no chat template.",
     "Omit `--chat`, or name another tokenizer with `--tokenizer`."},
    {"no-end-of-turn", ExitCode::kOk,
     "*Warning.* The tokenizer has a token that ends a turn or a text, but in no conversation of the data set is it a "
     "label: the model does not learn to stop.",
     "Use a chat template that ends the assistant's turns with it (and marks it, if it has `{% generation %}`)."},
    {"answers-end-early", ExitCode::kOk,
     "*Warning.* Rows with pictures: labels end at the first token that the chat template puts behind an answer, as "
     "NeMo AutoModel's do, and answers of the data set have this token, too.",
     "Use a chat template that puts a special token there; `automodel data` shows what is learned."},
    {"prompt-too-long", ExitCode::kBadInput,
     "The prompt given to `generate`, with its pictures, has at least as many tokens as the model has positions.",
     "Shorten it, or show fewer or smaller pictures."},
    {"adapters-alone", ExitCode::kBadInput, "`generate` is pointed at adapters that do not name their model.",
     "Name the folder of that model: `--base DIR`."},
    {"bad-json", ExitCode::kBadInput, "A `config.json` is not a JSON object, or holds a number out of range.",
     "The location is where parsing failed."},
    {"unknown-model-type", ExitCode::kOk,
     "*Warning.* `model_type` is missing or not one of the families: `plan` plans the model by its sizes, `train` "
     "refuses it as `unsupported-model`.",
     "The families are listed, the nearest is named."},
    {"unsupported-model", ExitCode::kRefused,
     "`generate` is given a classifier, or pictures for a model without a vision tower, or the model cannot be trained "
     "here (its `model_type` is not known, an "
     "encoder, an encoder-decoder, a quantized checkpoint, a multimodal model whose tower is not trained here, a "
     "family that can only be planned), or a class that takes pictures, or data that holds them, is named for a model "
     "without a vision tower, or the processor of its "
     "pictures is of an unsupported kind or gives another size than the tower takes.",
     "The message says why."},
    {"multimodal", ExitCode::kOk,
     "*Warning.* This multimodal model can be planned, not trained. Its towers and projectors are placed on the first "
     "stage, with parameters, memory and time if the config gives their sizes.",
     "The message names each with its size, or says that the size is unknown; estimates then exclude it. They assume "
     "one image of the configured size per sequence."},
    {"quantized", ExitCode::kOk,
     "*Warning.* The stored weights are quantized; the plan's sizes are those of the unquantized model.",
     "Store the model unquantized to train it."},
    {"too-many-stages", ExitCode::kBadInput, "More stages than layers.",
     "Every stage needs a layer: use fewer ranks, or fewer stages per rank."},
    {"unknown-module", ExitCode::kBadInput,
     "`module_fqns_per_model_part` names a module that the model does not have, or a part of a layer; or a pattern of "
     "`distributed.tp_plan` matches no module.",
     "The nearest name is given; a layer is the smallest part of a stage."},
    {"missing-module", ExitCode::kBadInput, "No stage holds a layer, an embedding, the norm or the head.",
     "Every module with parameters belongs to one stage."},
    {"duplicate-module", ExitCode::kBadInput, "A module is in two stages, or twice in one.", "As above."},
    {"stage-order", ExitCode::kBadInput,
     "An embedding is not in the first stage, norm or head are not in the last, or layers are not in ascending order.",
     "Layers run in their order."},
    {"split-conflict", ExitCode::kBadInput,
     "Two keys determine the number of stages or the split of layers, and they disagree; the message names both.",
     "Remove one, or make them agree."},
    {"schedule-unknown", ExitCode::kBadInput, "`pp_schedule` is not the name of a schedule.",
     "The nearest name is given; [adding-a-schedule.md](adding-a-schedule.md) lists them."},
    {"schedule-needs-csv", ExitCode::kBadInput,
     "`PipelineScheduleSingle` or `PipelineScheduleMulti` without `pp_schedule_csv`.",
     "Give the file, or name a schedule with a built-in order."},
    {"schedule-single-stage", ExitCode::kBadInput, "A schedule for one stage per rank, but a split into more.",
     "Choose an interleaved schedule, or as many stages as ranks."},
    {"schedule-multi-stage", ExitCode::kBadInput, "A schedule for several stages per rank, but a split into one.",
     "At least two stages per rank."},
    {"schedule-v-stages", ExitCode::kBadInput,
     "A schedule with V placement, but a split that does not give two stages per rank.",
     "Exactly 2 × `pp_size` stages."},
    {"schedule-stages-per-rank", ExitCode::kBadInput, "The schedule does not support this number of stages per rank.",
     "The range is named."},
    {"schedule-stages", ExitCode::kBadInput, "A table leaves out a stage, or the number of stages cannot be placed.",
     "Every stage has its forwards and backwards on one rank."},
    {"schedule-ranks", ExitCode::kBadInput,
     "A table has more or fewer rows than the pipeline has ranks, or there are too many ranks.", "One row per rank."},
    {"schedule-microbatches", ExitCode::kBadInput, "The schedule cannot run this number of microbatches.",
     "The nearest valid numbers are named; the number is `step_scheduler.local_batch_size` / `pp_microbatch_size`."},
    {"schedule-group-size", ExitCode::kBadInput, "`microbatch_group_size_per_vp_stage` is out of range.",
     "It ranges from the number of ranks to the number of microbatches."},
    {"few-microbatches", ExitCode::kOk, "*Warning.* Fewer microbatches than pipeline ranks: the pipeline never fills.",
     "Use a smaller `pp_microbatch_size`, or a larger batch."},
    {"schedule-costs", ExitCode::kBadInput,
     "`automodel schedule --costs`: a number is negative or not finite, a list has the wrong length, a key is unknown, "
     "or no stage takes any time.",
     "One number for all stages or one per stage, at least 0; the nearest possible value is named."},
    {"schedule-memory-limit", ExitCode::kBadInput,
     "`automodel schedule --memory-limit`: less than one microbatch needs on a rank, or less than a named or read "
     "schedule holds.",
     "The least possible limit is named. Exit 3 for the latter."},
    {"schedule-too-large", ExitCode::kBadInput, "A schedule too large to be checked.", "The limits are named."},
    {"schedule-csv-file", ExitCode::kBadInput, "The file cannot be read.", "The file has one line per pipeline rank."},
    {"schedule-csv-empty", ExitCode::kBadInput, "The file is empty.", "As above."},
    {"schedule-csv-cell", ExitCode::kBadInput, "A cell is not an action.",
     "`2F0`, `1I3`, `0RECV_F1`, `(0F3;7B0)OVERLAP_F_B`, or empty."},
    {"schedule-csv-bubble", ExitCode::kBadInput, "An empty cell in a table with communication.",
     "Remove it: such a table has no idle steps."},
    {"schedule-csv-communication", ExitCode::kBadInput,
     "A message or gather in a `compute_only` table. A recipe's table that has them is read as `compute_comms` "
     "instead.",
     "A `compute_only` table holds only F, I, W, B and OVERLAP_F_B."},
    {"schedule-wait", ExitCode::kBadInput,
     "`WAIT_SEND_F`, `WAIT_SEND_B` or `WAIT_REDUCE_GRAD` of PyTorch 2.15 before what it waits for, or twice.",
     "A wait follows its message or reduction, once."},
    {"schedule-idle-rank", ExitCode::kBadInput, "A row without actions.", "Every rank has a stage."},
    {"schedule-stage-range", ExitCode::kBadInput, "An action names a stage that does not exist.",
     "Stages count from 0."},
    {"schedule-stage-twice", ExitCode::kBadInput, "A stage has actions on two ranks.", "A stage belongs to one rank."},
    {"schedule-microbatch-range", ExitCode::kBadInput, "An action names a microbatch that does not exist.",
     "Microbatches count from 0."},
    {"schedule-missing", ExitCode::kBadInput, "A stage lacks an action of a microbatch.",
     "Each needs one F and one B (or one I and one W)."},
    {"schedule-duplicate", ExitCode::kBadInput, "An action appears twice, or a microbatch has both B and I or W.",
     "Once each."},
    {"schedule-order", ExitCode::kBadInput, "An action precedes one that it depends on, on the same rank.",
     "F before B or I, I before W; forwards go up the stages."},
    {"schedule-backward-in-evaluation", ExitCode::kBadInput, "A backward pass in a table for evaluation.",
     "Only forwards."},
    {"schedule-send", ExitCode::kBadInput, "A SEND without its RECV, before its data is computed, or twice.",
     "Each message is sent once, after it is computed."},
    {"schedule-recv", ExitCode::kBadInput, "A RECV without its SEND, after its data is used, twice, or missing.",
     "Each message is received once, before it is used."},
    {"schedule-send-order", ExitCode::kBadInput,
     "Between two ranks, messages are received in a different order than they are sent.",
     "Use the same order on both sides."},
    {"schedule-unshard", ExitCode::kBadInput,
     "A stage is computed while its parameters are not gathered, or gathered twice.", "UNSHARD and RESHARD alternate."},
    {"schedule-reduce-grad", ExitCode::kBadInput,
     "Gradients are reduced before the last backward pass, twice, or never.",
     "Once, after the last backward pass of the stage."},
    {"schedule-meeting", ExitCode::kBadInput,
     "A table terminates over MPI but not over NCCL, where sender and receiver must reach a transfer at the same time; "
     "the error prints the cycle.",
     "Reorder the sends or receives of one of these ranks to match the other, or use `dist_env.backend: mpi`."},
    {"schedule-deadlock", ExitCode::kBadInput, "The ranks wait for each other; the error prints the cycle.",
     "Every action must come after those that it depends on, across all ranks."},
    {"dataset-not-found", ExitCode::kBadInput,
     "A data set that the recipe names is neither a folder nor in the Hugging Face cache, or its folder has no data "
     "files, or lacks files that its card names.",
     "The places searched are listed. Nothing is downloaded: use `hf download --repo-type dataset NAME`."},
    {"features-damaged", ExitCode::kEnvironment,
     "A file of a tower's outputs (`dataset.cache_features`) has changed since it was written: its rows have another "
     "checksum; or outputs that were just written are not there. A file that was cut is computed again.",
     "Remove the file that the message names: the next run computes its pictures again."},
    {"bad-table", ExitCode::kBadInput,
     "A Parquet or Arrow file, or a `.gz` or `.zst` text, is damaged: truncated, a wrong magic number, offsets out of "
     "range. Or it asks for too much: more memory, rows, columns or text than [SECURITY.md](../SECURITY.md#limits) "
     "allows.",
     "Copy the file again. A single row that cannot be read is a `bad-row` with its number."},
    {"unavailable", ExitCode::kBadInput,
     "A file needs a library that this build lacks: Apache Arrow for Parquet, Arrow, `.gz` and `.zst`.",
     "`scripts/install_dependencies.sh` installs it; then rebuild."},
    {"bad-row", ExitCode::kBadInput,
     "A row cannot be used: it is not a JSON object, lacks a column or has one of another type, has lists of different "
     "lengths, is rejected by the chat template, or names a picture that cannot be decoded. The first few are listed "
     "with file and line, or the row number in a table.",
     "[data.md](data.md) lists the columns of each kind of data; a row of `tokens` is `{\"input_ids\": [...], "
     "\"labels\": [...]}`. Exit 4 if a file changes while the run reads it."},
    {"empty-data", ExitCode::kBadInput,
     "There is nothing to train on: no rows, no label tokens, fewer than two tokens, no full batch with `drop_last`.",
     "Provide more data, or set `drop_last: false`."},
    {"bad-file", ExitCode::kBadInput,
     "A nanoGPT token file cannot be used: too short, an unknown header, no element type given. Or a picture of "
     "`generate --image` cannot: damaged, of another kind, or too large.",
     "Files without a header need `dtype: uint16` or `uint32`. Pictures are JPEG, PNG or WebP, within the limits of "
     "[SECURITY.md](../SECURITY.md#limits)."},
    {"bad-index", ExitCode::kBadInput, "A Megatron index (`.idx`) cannot be used, or does not belong to its `.bin`.",
     "The two files must be complete and belong together."},
    {"bad-template", ExitCode::kBadInput,
     "A chat template uses unsupported Jinja, or fails on a row. The location is a line of the template.",
     "`for`, `if`, `set`, `break`, `continue`, macros, filters, tests and string methods are supported."},
    {"bad-tokenizer", ExitCode::kBadInput,
     "A `tokenizer.json` is malformed, truncated or uses an unsupported feature, or its pattern fails on a text. All "
     "problems of the file are reported at once, each with its path inside the file.",
     "The folder must have been written by Hugging Face's tokenizers."},
    {"token-out-of-range", ExitCode::kBadInput,
     "A token, the padding token or the tokenizer's vocabulary does not fit the model's vocabulary.",
     "The model's `vocab_size` must be at least the tokenizer's."},
    {"missing-weights", ExitCode::kBadInput,
     "A model folder has neither a safetensors file nor an index; Python pickles are never read.",
     "Save the model again with transformers (`save_pretrained`)."},
    {"cannot-read", ExitCode::kBadInput, "A file of weights or of a checkpoint cannot be read.",
     "The message includes the system's reason."},
    {"safetensors-header", ExitCode::kBadInput,
     "The header of a safetensors file is not valid JSON of the expected form.",
     "The file is damaged or not a safetensors file; copy or download it again."},
    {"safetensors-dtype", ExitCode::kBadInput, "A tensor has an unknown dtype.", "The known ones are listed."},
    {"safetensors-shape", ExitCode::kBadInput, "A tensor's shape and byte count do not agree.", "As for the header."},
    {"safetensors-offsets", ExitCode::kBadInput, "Tensors overlap, leave gaps, or end before they begin.",
     "As for the header."},
    {"safetensors-duplicate", ExitCode::kBadInput, "A tensor appears twice in the header.", "As for the header."},
    {"safetensors-truncated", ExitCode::kBadInput, "The file is shorter or longer than its header promises.",
     "Copy or download it again."},
    {"index-syntax", ExitCode::kBadInput, "`model.safetensors.index.json` is not a valid index.",
     "The folder is damaged; copy it again."},
    {"index-duplicate", ExitCode::kBadInput, "The index lists a tensor, or its map, twice.", "As above."},
    {"index-path", ExitCode::kBadInput, "The index names a file outside the model's folder.",
     "Files of a model are inside its folder."},
    {"index-missing-tensor", ExitCode::kBadInput, "A file lacks a tensor that the index places there.",
     "Index and files belong to different models."},
    {"weights-missing", ExitCode::kBadInput,
     "A folder lacks a parameter of the model, or a checkpoint lacks an adapter matrix that `peft` asks for.",
     "Folder and `config.json`, or checkpoint and `peft` section, do not belong together."},
    {"weights-unexpected", ExitCode::kBadInput, "A folder or an adapter checkpoint holds unexpected tensors.",
     "As above."},
    {"weights-shape", ExitCode::kBadInput,
     "A stored tensor's shape differs from what the model, or the adapters' rank, requires.", "As above."},
    {"expert-out-of-range", ExitCode::kCheckpoint,
     "The table by which a model chooses experts for tokens names an expert that the model does not have.",
     "The file is damaged, or belongs to another model."},
    {"weights-quantized", ExitCode::kBadInput, "Stored weights are quantized (8 or 4 bits).",
     "Use the model in bfloat16 or float32."},
    {"weights-not-tied", ExitCode::kBadInput, "Head and embedding differ in the files, but `config.json` ties them.",
     "Set `model.tie_word_embeddings: false`; of a dump's gradients: its trainer lost the tie."},
    {"adapter-config", ExitCode::kBadInput, "An adapter's configuration is not in the PEFT library's format.",
     "The message says what is wrong."},
    {"adapter-shape", ExitCode::kBadInput,
     "An adapter's tensors do not form pairs `lora_A [r, in]`, `lora_B [out, r]`.", "As above."},
    {"missing-option", ExitCode::kBadInput, "`checkpoint export` of adapters without `--merge`.",
     "Add `--merge` (and `--base` if the base model has moved); the PEFT library can open the folder as it is."},
    {"checkpoint-of-another-run", ExitCode::kBadInput,
     "The newest checkpoint in `checkpoint.checkpoint_dir` was saved with a different model, data set or method (all "
     "parameters, or adapters of a given rank).",
     "Use a separate `checkpoint_dir` per run (the default for every recipe is `checkpoints/` in the working folder). "
     "`--checkpoint.restore_from LATEST` resumes from it anyway, `--checkpoint.resume never` starts over."},
    {"checkpoint-missing", ExitCode::kCheckpoint,
     "The folder holds no checkpoint; for `checkpoint import`, none in a layout that is known, or none of this model.",
     "Give a folder of checkpoints, or one checkpoint; `checkpoint import` needs the recipe of the same model."},
    {"checkpoint-damaged", ExitCode::kCheckpoint,
     "A file of a checkpoint differs from its manifest in size or checksum. `checkpoint import`: a file is not what "
     "its "
     "format says, a pickle asks for a class that is not of PyTorch's distributed checkpoints (nothing of it was "
     "executed), or the parts of a tensor overlap or leave holes.",
     "Use another checkpoint (`checkpoint.restore_from`), or copy this one again."},
    {"manifest-syntax", ExitCode::kCheckpoint, "A checkpoint's manifest is not a valid manifest.", "As above."},
    {"state-syntax", ExitCode::kCheckpoint, "A checkpoint's `state.json` is invalid, or from another release.",
     "As above."},
    {"verify-failed", ExitCode::kBadInput, "`automodel verify`: the reference run on one rank failed.",
     "The message and the exit code are those of that run."},
    {"optimizer-differs", ExitCode::kCheckpoint, "The checkpoint was saved with another optimizer.",
     "Use that optimizer, or start from the checkpoint's weights."},
    {"dump-meta", ExitCode::kBadInput,
     "`automodel verify --against DIR`: `DIR/meta.json` is not JSON, has no finite number `loss`, or a `reduction` "
     "other "
     "than `mean` and `sum`.",
     "`{\"loss\": 4.158}`; `reduction` is `mean`, over the label tokens of the batch, where it is absent."},
    {"dump-batch", ExitCode::kBadInput,
     "A tensor of `DIR/batch.safetensors` is missing, unknown, of another shape or type than it should be, or has "
     "values "
     "that transformers gives no meaning.",
     "`input_ids` and `labels` are whole numbers [rows, tokens], so are `attention_mask` (0 or 1) and `position_ids` "
     "where they are given; labels stand under their own token, -100 is not counted."},
    {"dump-not-finite", ExitCode::kBadInput,
     "A gradient in `DIR/gradients.safetensors`, or what the weights in `DIR/model` give, is infinite or not a number.",
     "Save the gradients of a step whose loss is finite, before they are clipped or unscaled."},
    {"cannot-start", ExitCode::kEnvironment,
     "`automodel-worker` or `mpirun` cannot be started, or `studio` cannot "
     "listen on its port.",
     "`automodel-worker` is installed beside `automodel`; `AUTOMODEL_WORKER` names another place. For `studio` give "
     "another `--port`, or "
     "none."},
    {"folder-in-use", ExitCode::kEnvironment,
     "Another process on this host trains into the same `checkpoint.checkpoint_dir`: two runs would mix their records "
     "and delete each other's half-written checkpoints. A run of another host that holds it is a warning, for that "
     "host may be lost.",
     "Wait for it, or give this run another `checkpoint_dir`."},
    {"unwritable-file", ExitCode::kEnvironment, "A metrics file cannot be written (permissions, full disk).",
     "`checkpoint.checkpoint_dir` must be a folder that can be written to."},
    {"no-device", ExitCode::kEnvironment,
     "The host has no device of the kind that the recipe asks for; or `plan --calibrate` is given a GPU recipe.",
     "Use `device: cpu`, or a host (and a build) with such a device."},
    {"no-cuda-half", ExitCode::kEnvironment,
     "`device: cuda`, but `automodel-cuda.so` is not beside the program, belongs to another build, or lacks a library; "
     "or LibTorch is a CPU build.",
     "The message names what is missing. `cmake --preset cuda` builds it, `pip install torch` installs NVIDIA's "
     "libraries ([gpu.md](gpu.md))."},
    {"no-gpu-used", ExitCode::kOk,
     "*Warning.* `device: auto` uses the CPU although a host has an NVIDIA driver: there is no CUDA half "
     "(`no-cuda-half`), the driver is too old for it, or some ranks see no device.",
     "Run `automodel doctor`; set `device: cpu` if the CPU is intended."},
    {"gpu-shared", ExitCode::kEnvironment, "Two ranks of a group share one GPU, which NCCL does not support.",
     "Use at most as many ranks per host as it has GPUs, or `dist_env.backend: mpi`. NCCL 2.30 and later can be told "
     "to allow it, for tests: `NCCL_MULTI_RANK_GPU_ENABLE=1`."},
    {"cuda-failed", ExitCode::kEnvironment, "The CUDA driver or runtime reports a failure.",
     "Look at `nvidia-smi` and at Xid messages in the kernel log."},
    {"too-many-ranks", ExitCode::kRefused,
     "`verify` in one process on a mesh with more ranks than it can run as threads.",
     "Start it with `mpirun`, or reduce the sizes."},
    {"one-rank", ExitCode::kBadInput, "`verify` on a mesh of one rank, which there is nothing to compare with.",
     "Give ranks: `--nproc-per-node 2`, or sizes."},
    {"unknown-backend", ExitCode::kBadInput, "Unknown communication backend.", "The names are listed."},
    {"backend-unavailable", ExitCode::kEnvironment, "This build or this host cannot use the backend.",
     "The message says why."},
    {"mpi-threads", ExitCode::kEnvironment, "The MPI library does not support calls from several threads.",
     "Use an MPI with `MPI_THREAD_SERIALIZED` or better."},
    {"transport-failed", ExitCode::kEnvironment, "MPI reports a failure of the network or of a rank.",
     "A host or its network was lost; the message includes MPI's text."},
    {"plans-differ", ExitCode::kEnvironment, "Ranks made different plans of the same recipe.",
     "The program, or the files that the recipe names, differ between hosts."},
    {"no-start", ExitCode::kEnvironment,
     "The ranks that `automodel train` starts have not all joined within "
     "`fault_tolerance.start_minutes`; the launcher, which would wait for a silent host forever, was killed.",
     "A host does not answer, or the program does not start on it: run `automodel doctor` there. With `--max-restarts` "
     "and `--min-ranks` the run continues without it."},
    {"rank-killed", ExitCode::kBadInput, "A signal killed a rank of `--nproc-per-node`; mpirun's lines above name it.",
     "For signal 9, look for the kernel's out-of-memory killer (`dmesg`). The exit code is 128 + the signal number."},
    {"out-of-memory", ExitCode::kEnvironment, "The memory of the host or of a GPU is exhausted.",
     "Use fewer or shorter sequences per microbatch, activation checkpointing, more ranks, or a sharding strategy."},
    {"non-finite", ExitCode::kNonFinite,
     "The loss or the gradient norm of a step is not finite; the message names a parameter. The weights were not "
     "changed.",
     "Lower the learning rate, or look at the data of the step."},
    {"hang", ExitCode::kHang,
     "A rank waited longer than the deadline. The report says what each rank along the chain does and which rank it "
     "waits for, and gives the most likely cause.",
     "See [troubleshooting.md](troubleshooting.md#a-hang)."},
    {"internal", ExitCode::kInternal, "A defect of this program.", "Please report it with the message and the recipe."},
});

constexpr bool rows_in_order() {
  for (std::size_t i = 0; i < kProblemRows.size(); ++i)
    if (kProblemRows[i].id.name() != detail::kProblemIds[i]) return false;
  return kProblemRows.size() == std::size(detail::kProblemIds);
}
static_assert(rows_in_order(), "the ids of problem_id.h and the rows of this table differ");

constexpr std::string_view kPageIntroduction =
    "# Errors and warnings\n"
    "\n"
    "Every problem caused by a user, a file or a machine is reported in one form:\n"
    "\n"
    "    recipe.yaml:19:5: error[unknown-key]: unknown key 'distributed.pipeline.pp_shedule'\n"
    "            pp_shedule: 1f1b\n"
    "            ^\n"
    "        help: did you mean 'pp_schedule'?\n"
    "    1 problem in recipe.yaml\n"
    "\n"
    "The word in brackets is the **id**. Ids do not change between releases; messages may. All problems that can be "
    "found together are reported together. With `--json` they are `{\"errors\": [{\"id\", \"message\", \"help\", "
    "\"file\", \"line\", \"column\", \"key\"}]}` on standard output; `line` 0 means that the line is unknown, `key` is "
    "the dotted recipe key.\n"
    "\n"
    "The program ends with exit code 2 unless the table says otherwise; after a *warning* it continues. All codes are "
    "listed in [troubleshooting.md](troubleshooting.md#exit-codes). This page is printed by `automodel schema "
    "--errors`.\n";

}  // namespace

ExitCode ProblemId::exit() const {
  return kProblemRows[index_].exit;
}

std::ostream& operator<<(std::ostream& out, ProblemId id) {
  return out << id.name();
}

std::string errors_page() {
  std::string out(kPageIntroduction);
  ExitCode usual = ExitCode::kBadInput;
  for (const auto& row : kProblemRows) {
    if (const auto* section = std::ranges::find(kSections, row.id, &PageSection::first); section != kSections.end()) {
      usual = section->exit;
      out += fmt::format("\n{} {}\n\n", std::string(static_cast<std::size_t>(section->level), '#'), section->title);
      if (!section->introduction.empty()) out += fmt::format("{}\n\n", section->introduction);
      out += "| id | what causes it | the rule, and how to fix it |\n| --- | --- | --- |\n";
    }
    const bool special = row.exit != ExitCode::kOk && row.exit != usual;
    out += fmt::format("| `{}` | {} | {}{} |\n", row.id.name(), row.cause, row.rule,
                       special ? fmt::format(" Exit {}.", static_cast<int>(row.exit)) : "");
  }
  return out;
}

}  // namespace automodel
