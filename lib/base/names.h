/* names.h - the names of files that more than one room knows */
#ifndef NAMES_H
#define NAMES_H

/* A checkpoint: step-00000100/ in a run's folder (lib/checkpoint). */
#define NAME_MANIFEST "manifest.json"
#define NAME_WEIGHTS "model.safetensors"
#define NAME_OPTIMIZER "optimizer.safetensors"
#define NAME_CONFIG "config.json"
#define NAME_TOKENIZER "tokenizer.json" /* token shards have one too */
#define NAME_STATE "state.json"
#define NAME_PRODUCTS "products.json" /* the algorithms of matrix products */
#define NAME_FITTED "fitted.json"     /* what was fitted to the model later */

/* A run (lib/train) and a comparison (lib/compare). */
#define NAME_RECIPE "recipe.json"
#define NAME_LOG "log.jsonl"
#define NAME_TIMING "timing.json"
#define NAME_SOURCE "source.json"      /* where the text of a run is */
#define NAME_SEEN "seen.tmp"           /* of a run that starts: whether all ranks see its folder */
#define NAME_COMPARED_TEXT "text.json" /* the first file that a comparison writes */
#define NAME_RESULT "result.json"      /* of one method of a comparison */
#define NAME_RESULTS "results.json"    /* of all methods */
#define NAME_PAGE "report.html"
#define NAME_LOCK "lock"
#define NAME_EXPERIMENT "experiment.json" /* the first file of an experiment's folder */
#define NAME_MODELS "models"              /* the folder of its models, which are runs */

/* Token shards (lib/text). */
#define NAME_SHARD_INDEX "index.json"
#define NAME_SHARD_PROGRESS "progress.json"
#define NAME_SHARD_REQUEST "request.json"

/* The suffix of the file that file_replace() writes and then renames. */
#define NAME_ASIDE ".tmp"

#endif
