/* Which model a row of a table of published runs is of: a file of the folder models/ beside the table, or a preset. */
#ifndef SPW_SIM_SCORE_RUNS_RUN_MODEL_H
#define SPW_SIM_SCORE_RUNS_RUN_MODEL_H

#include "base/status.h"

#include <stddef.h>

enum { SPW_RUN_MODEL_PATH = 1024 };

/* `table`: the path of the table. `said`: a file of models/ or a preset, as a command names it, without another folder; NULL: only `name`
 * is known, as the table prints it ("Qwen3_30B_a3B", "Moonlight-16B selective"). Of a name count letters and digits in any case.
 * A preset is meant by its whole name, by one in front of a blank, or by a beginning that no other has; a file of models/ by a
 * name that begins with its own and goes on with neither letter nor digit. The longest counts. out: a path or the name of
 * a preset. SPW_ECONFIG: none. */
SPW_MUST_CHECK spw_status spw_run_model_find(const char *table, const char *said, const char *name,
                                             char out[SPW_RUN_MODEL_PATH]);

#endif
